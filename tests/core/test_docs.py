"""The examples in the guides run and print what they say."""

import doctest
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_the_page_run(page):
    text = page.read_text()
    if ">>> " not in text:
        pytest.skip("the page has no interactive example")
    if needed := re.search(r"<!-- needs: (\w+) -->", text):
        pytest.importorskip(needed[1], reason="the page's framework is not installed here")
    found = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(found).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(ROOT.glob("examples/*.txt"))], ids=lambda p: p.name
)
def test_what_the_page_installs_is_there(page):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for named in re.findall(r"(?:quantal|\.)\[([\w,-]+)\]", page.read_text()):
        assert set(named.split(",")) <= extras.keys()
    for file in re.findall(r"pip install -r (\S+)", page.read_text()):
        assert (ROOT / file).exists()
