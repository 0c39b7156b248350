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


def is_rare(code):
    """Whether it is that for slices of over 2 GB at odd addresses on gfx942, which is longer.

    There LLVM makes one way of the two, and asks of each unit whether it is there.
    """
    return (code["kernel"], code["target"]) == ("seed, odd address, over 2 GB", "gfx942")


def test_no_kernel_needs_more_than_32_registers_or_any_other_memory(codes):
    for code in codes:
        assert code["registers"] <= (38 if is_rare(code) and code["dtype"] == "fp64" else 32), code
        assert code["spilled"] == code["shared"] == 0, code
        assert not code["exchanges"], code


def test_philox_takes_at_most_26_instructions_a_unit(codes):
    """For any number of units: only the last tile takes more."""
    # gfx942 neither rounds to bfloat16 nor, at odd addresses, reads or writes two at once.
    exception = ("seed, odd address", "bf16", "gfx942")
    for code in codes:
        if code["kernel"].startswith("seed"):
            name = code["kernel"], code["dtype"], code["target"]
            most = 34 if is_rare(code) else 29 if name == exception else 26
            assert code["instructions"] <= most, code
            assert code["last"] <= (38 if code["target"] == "gfx942" else 31), code


def test_in_full_tiles_no_unit_is_asked_whether_it_is_there(codes):
    for code in codes:
        if "ragged" in code["kernel"]:
            assert code["asked"], code  # so the question is known where it stands
        elif not is_rare(code):
            # Of numbers of 64 bits, only gfx942's vector unit can ask whether a tile is full.
            wide = code["target"] == "gfx942" and "2³¹" in code["kernel"]
            assert code["asked"] == wide, code
            assert code["last"] > code["instructions"], code


def test_float32_is_read_and_written_in_128_bits(codes):
    whole = ["seed", "key", "seed, over 2 GB", "seed, over 2³¹ units"]
    for code in each(codes, kernel=whole, dtype=["fp32"]):
        wide, rest = 0, 0
        for name, count in code["accesses"].items():
            if "128" in name or "dwordx4" in name:
                wide += count
            elif name.startswith("STG") or "_store_" in name:
                rest += count
        assert wide == 2 * code["units"] // 4, code
        assert not rest, code


def test_bfloat16_is_rounded_to_nearest(codes):
    for code in each(codes, dtype=["bf16"], target=NVIDIA):
        assert code["roundings"], code
        assert all(name.startswith("cvt.rn.") for name in code["roundings"]), code
    for code in each(codes, dtype=["bf16"], target=["gfx942"]):
        # No instruction does it there: what is added depends on whether a number is odd. It stands
        # there once for each way.
        ways = 1 if "ragged" in code["kernel"] else 2
        assert code["roundings"] == {"v_bfe_u32": ways * code["units"]}, code
