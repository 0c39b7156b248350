"""What a pass costs: launches, bytes kept for the backward pass, bytes read and written."""

import pytest
import torch
from counts import passes

import quantal


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("generator", [None, quantal.key(0)], ids=["native", "key"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_pass_costs_one_kernel_and_a_seed(dtype, generator):
    found = passes(dtype, generator)
    own = "multiply_by_seed" if generator is None else "multiply_by_key"
    assert found["launches"] == [["randint", own] if generator is None else [own], [own]]
    assert found["kept"] == (16 if generator is None else 0)
    for moved, source in zip(found["moved"], ("x", "upstream"), strict=True):
        assert moved.pop(f"read {source}") == dtype.itemsize
        assert moved.pop("written elsewhere") == dtype.itemsize
        assert moved.pop("read the table") == 4
        # Seed and threshold: 20 bytes for a tile, or 4 for a block of keys.
        assert moved.pop("read elsewhere") == (20 / 1024 if generator is None else 4 / 512)
        assert not moved
