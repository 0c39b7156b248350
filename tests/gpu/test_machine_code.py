"""The machine code of the kernels, compiled for GPUs that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("machine_code.py")


@pytest.fixture(scope="module")
def codes():
    # A process of its own, since here kernels are interpreted.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, str(SCRIPT), "--json"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def each(codes, **wanted):
    found = [c for c in codes if all(c[name] in values for name, values in wanted.items())]
    assert found
    return found


NVIDIA = ("sm_80", "sm_90")
# What passes from thread to thread, or waits for others.
EXCHANGED = ("LDS", "STS", "BAR", "SHFL", "ds_")


def test_no_kernel_needs_more_than_32_registers_or_any_other_memory(codes):
    for code in codes:
        assert code["registers"] <= 32, code
        assert code["spilled"] == code["shared"] == 0, code
        assert not [n for n in code["accesses"] if n.startswith(EXCHANGED)], code


def test_philox_takes_at_most_26_instructions_a_unit(codes):
    """Where the number of units is a multiple of 16; docs/gpu.md has the others."""
    for code in each(codes, kernel=["seed", "seed, over 2³¹ units"]):
        assert code["instructions"] <= 26, code


def test_float32_is_read_and_written_in_128_bits(codes):
    for code in each(codes, kernel=["seed", "key"], dtype=["fp32"]):
        wide, rest = 0, 0
        for name, count in code["accesses"].items():
            if "128" in name or "dwordx4" in name:
                wide += count
            elif name.startswith(("STG", "global_store")):
                rest += count
        assert wide == 2 * code["units"] // 4, code
        assert not rest, code


def test_bfloat16_is_rounded_to_nearest(codes):
    for code in each(codes, dtype=["bf16"], target=NVIDIA):
        assert code["roundings"], code
        assert all(name.startswith("cvt.rn.") for name in code["roundings"]), code
    for code in each(codes, dtype=["bf16"], target=["gfx942"]):
        # No instruction does it there: what is added depends on whether a number is odd.
        assert code["roundings"] == {"v_bfe_u32": code["units"]}, code
