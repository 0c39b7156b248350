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

ROOT = Path(__file__).parents[2]

# What a page takes for granted: the reader's own imports and variables.
READERS = {
    "README.md": {
        "model": torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.5)), "x": torch.ones(3, 4),
    },
    "docs/torch.md": {
        "torch": torch, "nn": torch.nn, "quantal": quantal,
        "x": torch.ones(3, 4), "step": 1, "seed": 0, "rank": 1,
    },
    "docs/monte-carlo.md": {},
    "docs/keras.md": {},
    "docs/jax.md": {
        "eqx": eqx, "jnp": jnp, "rngs": nnx.Rngs(0), "x": jnp.ones((3, 4)), "key": jax.random.key(0),
    },
}  # fmt: skip


@pytest.mark.parametrize("page", READERS)
def test_the_code_of_the_page_runs(page):
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    blocks = [block for block in found if ">>> " not in block]  # those are tested as they print
    assert blocks
    names = dict(READERS[page])
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_the_guide_to_torch_trains_what_it_builds():
    names = dict(READERS["docs/torch.md"])
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs/torch.md").read_text(), re.DOTALL)
    exec(block[1], names)
    names["model"](torch.ones(2, 784)).sum().backward()
    assert all(p.grad is not None for p in names["model"].parameters())
