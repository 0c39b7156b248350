"""The kernels compiled for GPUs that need not be there, and what their machine code tells.

    python tests/gpu/machine_code.py           a table
    python tests/gpu/machine_code.py --json    the same for tests

The operators are called as on a device, with tensors of a CPU that lie as those of a device would.
Triton takes them for tensors of the target, so it compiles what it would compile there, from the
same addresses, sizes and numbers. In place of the launch, the machine code is read. Triton brings
NVIDIA's assembler and disassembler, and has AMD's built in.

Instructions are counted along the ways that a thread can take through its kernel. There are two:
one through tiles that are full, and one, with masks, through the last tile. What a mask leaves out
counts as executed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from quantal.torch import _launch

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}


class Case(NamedTuple):
    """A call: its stream, the shape, how many units too far the memory starts, and which dtypes."""

    stream: str
    shape: tuple[int, ...]
    offset: int = 0
    dtypes: tuple[str, ...] = tuple(DTYPES)


# Numbers of units that are multiples of nothing: the code is the same for all.
CASES = {
    "seed": Case("seed", (2051,)),
    "seed, odd address": Case("seed", (2051,), 1),
    "seed, over 2 GB": Case("seed", (2**30 + 3,)),
    "seed, odd address, over 2 GB": Case("seed", (2**30 + 3,), 1, ("fp32", "fp64")),
    "seed, over 2³¹ units": Case("seed", (2**31 + 3,), dtypes=("fp32", "bf16")),
    "key": Case("key", (2051,)),
    "key, odd address": Case("key", (2051,), 1, ("fp32", "bf16")),
    "key, ragged rows": Case("key", (293, 7)),
    "key, ragged rows, over 2³¹ units": Case("key", (2**29, 7), dtypes=("fp32",)),
}
UNITS = {"seed": 8, "key": 4}  # of a thread
# Bytes of a store, told by the end of its name.
BYTES = {".128": 16, "x4": 16, ".64": 8, "x2": 8, ".U16": 2, "short": 2, "dword": 4, "STG.E": 4}


@dataclass
class Code:
    """What was counted in one kernel.

    Instructions are those a unit: on the way through full tiles, of them AMD's scalar ones, and on
    the way through the last tile. ``asked`` counts what asks, in full tiles, whether units are
    there.
    """

    kernel: str
    dtype: str
    target: str
    registers: int
    spilled: int
    shared: int
    instructions: float
    scalar: float
    last: float
    asked: int
    accesses: dict[str, int]
    exchanges: list[str]
    roundings: dict[str, int]
    units: int


def compiled(kernel: str, dtype: str, target: str) -> Code:
    case, gpu, made = CASES[kernel], TARGETS[target], []
    device = SimpleNamespace(
        get_current_device=lambda: target,  # Triton keeps what it compiles by this name
        get_current_stream=lambda device: 0,
        get_current_target=lambda: gpu,
    )
    run = JITFunction.run

    def compile_only(self, *args, grid, warmup, **options):
        made.append(run(self, *args, grid=grid, warmup=True, **options))

    options = _launch.options_of_target(gpu)
    driver.set_active(device)
    with (
        patch.object(_launch, "_options_of_device", lambda device: options),
        patch.object(JITFunction, "run", compile_only),
        tempfile.NamedTemporaryFile() as file,
    ):
        x = memory(file, case, DTYPES[dtype])
        values, threshold = torch.empty(2**17), torch.empty((), dtype=torch.int32)
        if case.stream == "seed":
            seed = torch.empty(2, dtype=torch.int64)
            _launch.multiply_by_seed(x, x, values, threshold, seed)
        else:
            _launch.multiply_by_key(x, x, values, threshold, 1, 2, 3)
    (code,) = made
    read = _nvidia if gpu.backend == "cuda" else _amd
    registers, spilled, lines, roundings, asks = read(code.asm)
    units = UNITS[case.stream]
    # A way on which less is written ends early, by a mask or by a branch that nothing takes.
    ways = [way for way in _ways(lines) if _written(way) == units * x.itemsize]
    ways = sorted(([_name(line) for line in way], way) for way in ways)
    (full, full_lines), (last, _) = min(ways, key=_length), max(ways, key=_length)
    names = [_name(line) for kind, line in lines if kind == "instruction"]
    return Code(
        kernel=kernel,
        dtype=dtype,
        target=target,
        registers=registers,
        spilled=spilled,
        shared=code.metadata.shared,
        instructions=len(full) / units,
        scalar=sum(name.startswith("s_") for name in full) / units,
        last=len(last) / units,
        asked=sum(bool(re.match(asks, line)) for line in full_lines),
        accesses=dict(Counter(name for name in full if _is_access(name))),
        exchanges=[n for n in names if n.startswith(("LDS", "STS", "BAR", "SHFL", "ds_"))],
        roundings=roundings,
        units=units,
    )


def memory(file, case: Case, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in a file, which has holes: what is not touched takes no memory."""
    count = torch.Size(case.shape).numel()
    x = torch.from_file(file.name, shared=True, size=count + case.offset, dtype=dtype)
    return x[case.offset :].view(case.shape)


Lines = list[tuple[str, str]]  # "instruction" or "label", and its text


def _nvidia(code: dict) -> tuple[int, int, Lines, dict[str, int], str]:
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
    found = re.findall(r"^(\.L_x_\d+|\$[\w$]+):|/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", listing, re.M)
    lines = [("label", a) if a else ("instruction", b) for a, b in found if b != "NOP"]
    roundings = Counter(re.findall(r"cvt\.r\w+\.(?:bf16|f16)\w*\.f32", code["ptx"]))
    return int(registers), int(stack) + int(local), lines, dict(roundings), r"@.*\b(LDG|STG)"


def _amd(code: dict) -> tuple[int, int, Lines, dict[str, int], str]:
    text = code["amdgcn"]
    facts = {name: int(number) for name, number in re.findall(r"\.(\w+):\s+(\d+)", text)}
    spilled = sum(
        facts[n] for n in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")
    )
    kinds = "v|s|global|buffer|ds|flat|scratch"
    found = re.findall(rf"^(\.LBB\w+):|^\s+((?:{kinds})_\w.*?)\s*(?:;.*)?$", text, re.M)
    lines = [("label", a) if a else ("instruction", b) for a, b in found]
    # To bfloat16: bit 16 says whether what is cut off leaves an odd number.
    roundings = Counter(re.findall(r"v_bfe_u32(?=.*, 16, 1$)", text, re.M))
    return facts["vgpr_count"], spilled, lines, dict(roundings), r"v_cmp|\w+saveexec"


def _ways(lines: Lines) -> Iterator[list[str]]:
    """Yield the instructions on every way through a kernel; there must be no loop."""
    code: list[str] = []
    labels: dict[str, int] = {}
    for kind, text in lines:
        if kind == "label":
            labels[text] = len(code)
        else:
            code.append(text)
    waiting: list[tuple[int | None, list[str], tuple[int, ...]]] = [(0, [], ())]
    while waiting:
        at, way, returns = waiting.pop()
        while at is not None:
            assert len(way) <= len(code), "a loop"
            line = code[at]
            way.append(line)
            if _name(line).startswith("CALL"):
                returns = (at + 1, *returns)
            at, *others = _next(line, at, labels, returns)
            if _name(line).startswith("RET"):
                returns = returns[1:]
            waiting += [(other, list(way), returns) for other in others]
        yield way


def _next(line: str, at: int, labels: dict[str, int], returns: tuple[int, ...]) -> list[int | None]:
    """Return where a thread can go from an instruction: to others, or to its end."""
    name, target = _name(line), re.search(r"\.L(?:_x_|BB)\w+|\$[\w$]+", line)
    # Threads that are all masked may skip what is masked; here they never do, so all is counted.
    if name == "s_cbranch_execz":
        return [at + 1]
    if name.startswith("RET"):
        return [returns[0]]
    if name in ("EXIT", "s_endpgm"):
        ahead: int | None = None
    elif name.startswith(("BRA", "CALL", "s_branch", "s_cbranch")):
        assert target, line
        ahead = labels[target[0]]
    else:
        assert not target, line
        return [at + 1]
    sometimes = line.startswith("@") or ("cbranch" in name and name != "s_cbranch_execnz")
    return [at + 1, ahead] if sometimes else [ahead]


def _name(line: str) -> str:
    return re.sub(r"^@!?U?P\w+\s+", "", line).split()[0]


def _length(way: tuple[list[str], list[str]]) -> int:
    return len(way[0])


def _is_access(name: str) -> bool:
    return name.startswith(("LDG", "STG", "LDL", "STL", "global", "buffer", "flat", "scratch"))


def _written(way: list[str]) -> int:
    """Return how many bytes are written on a way."""
    stores = [_name(line) for line in way if "STG" in line or "_store_" in line]
    return sum(next(size for end, size in BYTES.items() if end in name) for name in stores)


def main() -> None:
    codes = [
        compiled(kernel, dtype, target)
        for kernel, case in CASES.items()
        for dtype in case.dtypes
        for target in TARGETS
    ]
    if "--json" in sys.argv:
        print(json.dumps([asdict(code) for code in codes]))
        return
    print("| stream | dtype | target | registers | spilled | shared | instructions a unit", end="")
    print(" | of them scalar | last tile | accesses |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for c in codes:
        accesses = ", ".join(f"{n} {name}" for name, n in sorted(c.accesses.items()))
        counts = c.registers, c.spilled, c.shared, f"{c.instructions:.1f}", f"{c.scalar:.1f}"
        cells = c.kernel, c.dtype, c.target, *counts, f"{c.last:.1f}", accesses
        print("|", " | ".join(map(str, cells)), "|")


if __name__ == "__main__":
    main()
