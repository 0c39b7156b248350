"""The kernels compiled for GPUs that need not be there, and what their machine code tells.

    python tests/gpu/machine_code.py           a table
    python tests/gpu/machine_code.py --json    the same for tests

Triton brings NVIDIA's assembler and disassembler, and has AMD's built in.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from quantal.torch import _triton_kernels as kernels
from quantal.torch._launch import LANES, options_of_target

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
DTYPES = ("fp32", "bf16", "fp16", "fp64")
# Which kernel, whether the number of units is a multiple of 16, what is fixed, units a lane.
WIDE = "over 2³¹ units"
KERNELS = {
    "seed": (kernels.multiply_by_seed, True, {}, 8),
    "seed, any count": (kernels.multiply_by_seed, False, {}, 8),
    "key": (kernels.multiply_by_key, True, {"RAGGED": False}, 4),
    "key, ragged rows": (kernels.multiply_by_key, False, {"RAGGED": True}, 4),
    f"seed, {WIDE}": (kernels.multiply_by_seed, True, {"WIDE": True}, 8),
    f"key, ragged rows, {WIDE}": (
        kernels.multiply_by_key,
        False,
        {"RAGGED": True, "WIDE": True},
        4,
    ),
}
POINTERS = {"seed_pointer": "*i64", "values_pointer": "*fp32", "threshold_pointer": "*i32"}


@dataclass
class Code:
    """What was counted in one kernel."""

    kernel: str
    dtype: str
    target: str
    registers: int
    spilled: int
    shared: int
    instructions: float
    scalar: float
    accesses: dict[str, int]
    roundings: dict[str, int]
    units: int


def compiled(kernel: str, dtype: str, target: str) -> Code:
    function, multiple, fixed, units = KERNELS[kernel]
    fixed = {"WIDE": False, **fixed, "ALIGNED": multiple, "LANES": LANES}
    gpu = TARGETS[target]
    options = options_of_target(gpu)
    fixed["BY_HAND"] = options.pop("BY_HAND")
    names = function.arg_names
    kinds = {"x_pointer": f"*{dtype}", "y_pointer": f"*{dtype}", **POINTERS}
    signature = {n: "constexpr" if n in fixed else kinds.get(n, "i32") for n in names}
    # As at a launch: what torch allocates is aligned to 16 bytes, and numbers are looked at.
    aligned = {n for n in names if n.endswith("_pointer")} | (
        {"count", "last"} if multiple else set()
    )
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in aligned if n in names}
    constants = {(names.index(n),): value for n, value in fixed.items()}
    source = ASTSource(function, signature, constexprs=constants, attrs=attributes)
    made = triton.compile(source, gpu, options)
    read = _nvidia if gpu.backend == "cuda" else _amd
    registers, spilled, names, accesses, roundings = read(made.asm)
    scalar = sum(name.startswith("s_") for name in names) / units
    shared = made.metadata.shared
    return Code(
        kernel,
        dtype,
        target,
        registers,
        spilled,
        shared,
        len(names) / units,
        scalar,
        accesses,
        roundings,
        units,
    )


def _nvidia(code: dict) -> tuple[int, int, list[str], dict[str, int], dict[str, int]]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code["cubin"])
        file.flush()
        usage, listing = (
            subprocess.run(
                [TOOLS / name, *options, file.name], capture_output=True, text=True, check=True
            ).stdout
            for name, *options in (("cuobjdump", "-res-usage"), ("nvdisasm", "-c"))
        )
    (registers,), (stack,), (local,) = (
        re.findall(rf"{n}:(\d+)", usage) for n in ("REG", "STACK", "LOCAL")
    )
    lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", listing)
    names = [re.sub(r"^@!?U?P\w+\s+", "", line).split()[0] for line in lines]
    names = [name for name in names if name != "NOP"]
    accesses = Counter(
        n for n in names if n.startswith(("LDG", "STG", "LDS", "STS", "LDL", "STL", "BAR", "SHFL"))
    )
    roundings = Counter(re.findall(r"cvt\.r\w+\.(?:bf16|f16)\w*\.f32", code["ptx"]))
    return int(registers), int(stack) + int(local), names, dict(accesses), dict(roundings)


def _amd(code: dict) -> tuple[int, int, list[str], dict[str, int], dict[str, int]]:
    text = code["amdgcn"]
    facts = {name: int(number) for name, number in re.findall(r"\.(\w+):\s+(\d+)", text)}
    spilled = sum(
        facts[n] for n in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")
    )
    names = re.findall(r"^\s+((?:v|s|global|buffer|ds|flat|scratch)_\w+)", text, re.M)
    accesses = Counter(
        n for n in names if n.startswith(("global", "buffer", "ds", "flat", "scratch"))
    )
    # To bfloat16: bit 16 says whether what is cut off leaves an odd number.
    roundings = Counter(re.findall(r"v_bfe_u32(?=.*, 16, 1$)", text, re.M))
    return facts["vgpr_count"], spilled, names, dict(accesses), dict(roundings)


def main() -> None:
    codes = [
        compiled(kernel, dtype, target)
        for kernel in KERNELS
        for dtype in (DTYPES[:1] if WIDE in kernel else DTYPES)
        for target in TARGETS
    ]
    if "--json" in sys.argv:
        print(json.dumps([asdict(code) for code in codes]))
        return
    heads = "stream", "dtype", "target", "registers", "spilled", "shared"
    print("|", " | ".join(heads), "| instructions a unit | of them scalar | accesses |")
    print("|---|---|---|---|---|---|---|---|---|")
    for c in codes:
        accesses = ", ".join(f"{n} {name}" for name, n in sorted(c.accesses.items()))
        cells = (
            c.kernel,
            c.dtype,
            c.target,
            c.registers,
            c.spilled,
            c.shared,
            f"{c.instructions:.1f}",
            f"{c.scalar:.1f}",
            accesses,
        )
        print("|", " | ".join(map(str, cells)), "|")


if __name__ == "__main__":
    main()
