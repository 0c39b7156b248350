"""Each recipe of docs/recipes.md runs by itself, if the library that it names is installed."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
RECIPES = re.findall(r"<!-- needs: (\w+) -->\n\n```python\n(.*?)```", TEXT, re.DOTALL)


def test_every_block_says_what_it_needs():
    assert len(RECIPES) == TEXT.count("```python") >= 5


@pytest.mark.filterwarnings("default")  # how other libraries use torch is their affair
@pytest.mark.parametrize(
    ("needed", "block"), RECIPES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(RECIPES)]
)
def test_the_recipe_runs(needed, block, request):
    if find_spec(needed) is None:
        assert "models" not in request.config.getoption("backend"), f"{needed} is not installed"
        pytest.skip(f"{needed} is not installed here")
    exec(compile(block, "recipes.md", "exec"), {"__name__": "recipe"})
