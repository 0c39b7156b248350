"""The code on every page runs: as it stands, from top to bottom, with nothing taken for granted."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
APART = {
    "conformance.md",  # tests/conformance/test_guide.py writes its files, and judges them
    "recipes.md",  # tests/models/test_recipes.py, where the libraries are that it is about
}


def blocks(page):
    """The blocks that are not interactive; those are tested with what they print."""
    return [block for block in BLOCK.findall(page.read_text()) if ">>> " not in block]


PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name not in APART and blocks(page)
]


def test_pages_are_found():
    assert {"README.md", "torch.md", "keras.md", "jax.md"} <= {p.name for p in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_the_page_runs(page):
    names = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)
