"""The code on every page runs from top to bottom as it stands, and prints what the page says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A block of text right below a block of code is what the code prints.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
APART = {
    "conformance.md",  # tests/conformance/test_guide.py writes its files, and judges them
    "recipes.md",  # tests/models/test_recipes.py, where the libraries are that it is about
}


def blocks(page):
    """Blocks with what they print, if the page says it; interactive ones are tested elsewhere."""
    found = BLOCK.findall(page.read_text())
    return [(code, printed) for code, printed in found if ">>> " not in code]


PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name not in APART and blocks(page)
]


def test_pages_are_found():
    assert {"README.md", "torch.md", "keras.md", "jax.md"} <= {p.name for p in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_output_is_without_its_code(page):
    assert page.read_text().count("```text\n") == sum(bool(p) for _, p in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_the_page_runs(page, capsys):
    names = {"__name__": page.stem}
    for code, printed in blocks(page):
        exec(compile(code, str(page), "exec"), names)
        shown = capsys.readouterr().out
        if printed:
            assert [line.rstrip() for line in shown.splitlines()] == printed.splitlines()
