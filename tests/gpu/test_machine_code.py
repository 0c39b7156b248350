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


def test_no_kernel_needs_more_than_32_registers_or_any_other_memory(codes):
    for code in codes:
        assert code["registers"] <= 32, code
        assert code["spilled"] == code["shared"] == 0, code
        assert not [n for n in code["accesses"] if n.startswith(("LDS", "STS", "BAR", "ds_"))], code


def test_philox_takes_at_most_26_instructions_a_unit(codes):
    for code in each(codes, kernel=["seed"]):
        # Those of a wavefront's scalar unit run once for 64 lanes: see docs/gpu.md.
        assert code["instructions"] - code["scalar"] <= 26, code
    for code in each(codes, kernel=["seed"], target=NVIDIA):
        assert code["instructions"] <= 26, code
    for code in each(codes, kernel=["seed"], dtype=["fp32", "fp16"]):
        assert code["instructions"] <= 26, code


def test_float32_is_read_and_written_in_128_bits(codes):
    for code in each(codes, kernel=["seed", "key"], dtype=["fp32"]):
        wide, rest = 0, 0
        for name, count in code["accesses"].items():
            if "128" in name or "dwordx4" in name:
                wide += count
            elif name.startswith(("STG", "global_store")):
                rest += count
        units = 8 if code["kernel"] == "seed" else 4
        assert wide == 2 * units // 4, code
        assert not rest, code


def test_bfloat16_is_rounded_to_nearest(codes):
    for code in each(codes, dtype=["bf16"], target=NVIDIA):
        assert code["roundings"], code
        assert all(name.startswith("cvt.rn.") for name in code["roundings"]), code
    for code in each(codes, dtype=["bf16"], target=["gfx942"]):
        # No instruction does it there: half a unit is added, and one for odd numbers.
        assert "v_add3_u32" in code["roundings"], code
