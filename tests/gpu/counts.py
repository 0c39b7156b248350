"""What a pass costs, counted without a GPU: launches, bytes kept, bytes read and written.

    TRITON_INTERPRET=1 python tests/gpu/counts.py

The kernels run in Triton's interpreter, on tensors of a CPU; every address that they read or write
is looked up among the tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import interpreter

import quantal
from quantal.torch import QSD, _self_check

# Operators that launch nothing on a device: they make or show memory.
SILENT = {"empty", "empty_like", "empty_strided", "detach", "lift_fresh", "view"}


class Operations(TorchDispatchMode):
    """Collects the operators that launch something on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name not in SILENT:
            self.names.append(name)
        return function(*args, **(kwargs or {}))


@contextmanager
def traffic(tensors: dict[str, torch.Tensor]) -> Iterator[Counter[str]]:
    """Count the bytes that kernels read and write, by the tensor in which they lie."""
    moved: Counter[str] = Counter()
    builder = interpreter.InterpreterBuilder

    def counted(what, method):
        original = getattr(builder, method)

        def access(self, pointers, *rest):
            mask = rest[-3] if what == "written" else rest[0]
            at = pointers.data[mask.data]
            size = pointers.get_element_ty().primitive_bitwidth // 8
            for name, tensor in tensors.items():
                start = tensor.data_ptr()
                inside = (at >= start) & (at < start + tensor.nbytes)
                moved[f"{what} {name}"] += int(inside.sum()) * size
                at = at[~inside]
            moved[f"{what} elsewhere"] += at.size * size
            return original(self, pointers, *rest)

        return access

    with pytest.MonkeyPatch.context() as patch:
        for what, method in (("read", "create_masked_load"), ("written", "create_masked_store")):
            patch.setattr(builder, method, counted(what, method))
        yield moved


def passes(dtype: torch.dtype, generator: quantal.Key | None) -> dict[str, Any]:
    """Run a layer forwards and backwards and return what was counted."""
    layer = QSD(0.2, 0.2, generator=generator)
    x = torch.randn(4, 1024).to(dtype).requires_grad_()
    upstream = torch.randn(4, 1024).to(dtype)
    with Operations() as forward:
        y = layer(x)
    with Operations() as backward:
        y.backward(upstream)
    # Once more, since under a mode every call makes its tables anew.
    kept: list[int] = []
    tensors = {"x": x, "upstream": upstream, "the table": layer._tables.values}
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t),
        traffic(tensors) as moved_forward,
    ):
        y = layer(x)
    with traffic(tensors) as moved_backward:
        y.backward(upstream)
    moved = [
        {name: count / x.numel() for name, count in part.items() if count}
        for part in (moved_forward, moved_backward)
    ]
    return {"launches": [forward.names, backward.names], "kept": sum(kept), "moved": moved}


def main() -> None:
    _self_check.DEVICES.add("cpu")
    print("| stream | dtype | launches | bytes kept | bytes a unit, forward | backward |")
    print("|---|---|---|---|---|---|")
    for stream, generator in (("torch's own", None), ("key", quantal.key(0))):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            found = passes(dtype, generator)
            launches = " + ".join(str(len(part)) for part in found["launches"])
            moved = [", ".join(f"{k} {v:.2g}" for k, v in part.items()) for part in found["moved"]]
            cells = stream, str(dtype)[6:], launches, str(found["kept"]), *moved
            print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
