"""The code in the guides runs."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx

import quantal

DOCS = Path(__file__).parents[2] / "docs"

# What a page takes for granted: the reader's own imports and variables.
READERS = {
    "torch.md": {
        "torch": torch, "nn": torch.nn, "quantal": quantal,
        "x": torch.ones(3, 4), "step": 1, "seed": 0, "rank": 1,
    },
    "keras.md": {},
    "jax.md": {
        "eqx": eqx, "jnp": jnp, "rngs": nnx.Rngs(0), "x": jnp.ones((3, 4)), "key": jax.random.key(0),
    },
}  # fmt: skip


@pytest.mark.parametrize("page", READERS)
def test_the_code_of_the_page_runs(page):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert blocks
    names = dict(READERS[page])
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_the_guide_to_torch_trains_what_it_builds():
    names = dict(READERS["torch.md"])
    block = re.search(r"```python\n(.*?)```", (DOCS / "torch.md").read_text(), re.DOTALL)
    exec(block[1], names)
    names["model"](torch.ones(2, 784)).sum().backward()
    assert all(p.grad is not None for p in names["model"].parameters())
