"""The examples in the guides run and print what they say."""

import doctest
import re
import runpy
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((DOCS / "tutorials").glob("*.md"))]
FIGURES = sorted((DOCS / "figures").glob("*.svg"))


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


# Who runs the blocks of a language: python, the tests of the guides; code-cell, the site's build; the
# commands of sh and console cannot all run, but their options, sessions and files are checked.
RUN_OR_CHECKED = {"python", "{code-cell} python", "sh", "console", "text"}
LAYOUT = {
    "{toctree}",
    "{include} ../README.md",
    "{include} ../CHANGELOG.md",
    "{include} ../CONTRIBUTING.md",
}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_no_block_is_in_a_language_that_nobody_runs(page):
    fences = re.findall(r"^[ ]*(?:```|~~~)(.*)$", page.read_text(), re.M)
    assert set(fences[1::2]) <= {""}, "a block does not end"
    assert set(fences[::2]) <= RUN_OR_CHECKED | LAYOUT


def test_a_tutorial_runs_in_the_build_of_the_site():
    configuration = (DOCS / "conf.py").read_text()
    assert "nb_execution_raise_on_error = True" in configuration
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        text = page.read_text()
        assert "```python" not in text
        if "{code-cell}" in text:
            assert text.startswith("---\nfile_format: mystnb\n"), page.name


def without_code(page):
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    seen = []
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)  # a link is its text
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        seen.append(words if words not in seen else f"{words}-{seen.count(words)}")
    return seen


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_of_the_page_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", without_code(page)):
        if target.startswith(("http:", "https:")):
            continue
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), f"{target}#{anchor}"


@pytest.fixture
def without_paths(monkeypatch):
    """What makes the README of wheels and archives; hatchling itself is there only while building."""
    interface = types.ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    return runpy.run_path(str(ROOT / "hatch_build.py"))["without_paths"]


def test_links_of_the_readme_need_no_files_on_a_package_index(without_paths):
    text, source = (ROOT / "README.md").read_text(), "https://example.org/quantal"
    link = re.compile(r"\]\(([^)#\s]+)\)")
    relative = [path for path in link.findall(text) if not path.startswith("http")]
    assert len(relative) > 20
    plain, linked = without_paths(text), without_paths(text, source)
    assert [path for path in link.findall(plain) if not path.startswith("http")] == []
    assert "[The paper](https://arxiv.org/abs/2009.13165)" in plain
    expected = {f"{source}/{kind}/main/{path}" for path in relative for kind in ("blob", "raw")}
    made = [path for path in link.findall(linked) if path.startswith(source)]
    assert len(made) == len(relative)
    assert set(made) <= expected
    code = re.compile(r"^```.*?^```", re.DOTALL | re.M)
    assert code.findall(plain) == code.findall(linked) == code.findall(text)


def test_every_page_is_in_the_list_of_the_site():
    listed = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    names = {line for block in listed for line in block.splitlines() if line and line[0] != ":"}
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert pages <= names
    assert names - pages - {"results"} == {"reference/index", "tutorials/index"}


def test_the_oldest_and_the_tested_versions_are_as_the_page_says():
    text = (ROOT / "pyproject.toml").read_text()
    declared = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', text))
    declared["python"] = re.search(r'requires-python = ">=([\d.]+)"', text)[1]
    tested = dict(re.findall(r"^([\w-]+)==(.*)$", (ROOT / "constraints.txt").read_text(), re.M))
    packages = {"PyTorch": "torch", "Haiku": "dm-haiku"}
    rows = re.findall(
        r"^\| (\w+) \| ([\d.]*) \| ([\d.]+) \|$", (DOCS / "versions.md").read_text(), re.M
    )
    assert len(rows) >= 10
    for name, oldest, newest in rows:
        package = packages.get(name, name.lower())
        if oldest:
            assert declared[package] == oldest, name
        if name != "Python":
            assert tested.get(package, tested.get(f"{package}_cpu")) == newest, name


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_sessions_that_the_page_names_are_there(page):
    there = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), re.M))
    named = re.findall(r"nox -s (\w+)", page.read_text())
    assert set(named) <= there


def contrast(one, other):
    """The contrast of two colours, by WCAG's formula."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_can_be_read_on_white_and_on_black(figure):
    colours = set(re.findall(r"(?:stroke|fill): (#\w{6})", figure.read_text()))
    assert colours
    for colour in colours:
        assert min(contrast(colour, ground) for ground in ("#ffffff", "#131416")) > 3, colour


def test_figures_are_those_that_the_script_draws(tmp_path):
    pytest.importorskip("matplotlib")
    subprocess.run([sys.executable, DOCS / "figures" / "draw.py", tmp_path], check=True)
    assert {f.name for f in tmp_path.iterdir()} == {f.name for f in FIGURES}
    for figure in FIGURES:
        assert_shows_the_same(tmp_path / figure.name, figure)


def assert_shows_the_same(figure, other):
    """Have the same words and styles in two figures, and the same lines and marks in their axes.

    Where the axes stand, how letters are drawn, and which points of a straight line are left out is a
    matter of Matplotlib's version.
    """
    one, two = svg_of(figure), svg_of(other)
    assert words_and_styles(one) == words_and_styles(two), other.name
    axes = list(zip(axes_of(one), axes_of(two), strict=True))
    assert axes
    for drawn, expected in axes:
        assert drawn.keys() == expected.keys(), other.name
        for name in drawn:
            apart = max(
                farthest(drawn[name], expected[name]), farthest(expected[name], drawn[name])
            )
            # Points are left out where that moves a line by less than a ninth of a pixel, and no axes
            # here are smaller than 150 pixels.
            assert apart < 1 / 9 / 150, f"{other.name}: {name}"


def svg_of(figure):
    with_comments = ElementTree.TreeBuilder(insert_comments=True)  # which hold the words
    return ElementTree.parse(figure, ElementTree.XMLParser(target=with_comments)).getroot()


def words_and_styles(svg):
    return [
        node.text.strip() if node.tag is ElementTree.Comment else node.get("style")
        for node in svg.iter()
        if node.tag is ElementTree.Comment or node.get("style")
    ]


def axes_of(svg):
    """The points of every line and of all marks in each axes of a figure, as parts of these axes."""
    for axes in svg.iterfind(".//*[@id]"):
        if not axes.get("id").startswith("axes_"):
            continue
        corners = points_of(axes[0])
        low, high = corners.min(axis=0), corners.max(axis=0)
        kinds = ("line2d", "PathCollection")
        yield {
            f"{axes.get('id')} {part.get('id')}": (points_of(part) - low) / (high - low)
            for part in axes
            if part.get("id", "").startswith(kinds)
        }


def points_of(part):
    lines = [node.get("d") for node in part.iterfind("./{*}path")]
    marks = [(float(n.get("x")), float(n.get("y"))) for n in part.iterfind(".//{*}use")]
    numbers = [float(n) for line in lines for n in re.findall(r"-?[\d.]+", line)]
    return np.array([*np.reshape(numbers, (-1, 2)), *marks])


def farthest(points, line):
    """How far the farthest of some points is from a line through others."""
    if len(line) == 1:
        return float(np.max(np.abs(points - line)))
    start, step = line[:-1], np.diff(line, axis=0)
    length = np.maximum((step**2).sum(axis=1), 1e-30)
    along = np.einsum("pse,se->ps", points[:, None] - start, step) / length
    nearest = start + np.clip(along, 0, 1)[..., None] * step
    return float(np.linalg.norm(points[:, None] - nearest, axis=-1).min(axis=1).max())


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
