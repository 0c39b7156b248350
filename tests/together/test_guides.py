"""The code on every page runs: as it stands, from top to bottom, with nothing taken for granted."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A comment before a block may name a package that it needs beside the frameworks.
BLOCK = re.compile(r"(?:<!-- needs: (\w+) -->\n\n)?```python\n(.*?)```", re.DOTALL)
APART = {
    "conformance.md",  # tests/conformance/test_guide.py writes its files, and judges them
}


def blocks(page):
    """The blocks that are not interactive; those are tested with what they print."""
    return [found for found in BLOCK.findall(page.read_text()) if ">>> " not in found[1]]


PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name not in APART and blocks(page)
]


def test_pages_are_found():
    assert {"README.md", "torch.md", "keras.md", "jax.md", "recipes.md"} <= {p.name for p in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_the_page_runs(page):
    names = {"__name__": page.stem}
    for needed, block in blocks(page):
        if not needed or find_spec(needed):
            exec(compile(block, str(page), "exec"), names)
