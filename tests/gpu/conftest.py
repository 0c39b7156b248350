"""Triton's interpreter, which runs kernels on tensors of a CPU; it must be chosen before import."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent))  # for what stands beside the tests


@pytest.fixture(autouse=True, scope="session")
def rounding_of_devices():
    """Cast bfloat16 as devices do.

    The interpreter of Triton 3.7.1 cuts off what it should round, and reads subnormals wrongly.

    That devices round to nearest is read from machine code in test_machine_code.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    cast = interpreter.InterpreterBuilder.cast_impl

    def rounding(self, source, kind):
        if source.dtype.scalar == tl.float32 and kind.scalar == tl.bfloat16:
            rounded = torch.from_numpy(source.data.copy()).to(torch.bfloat16)
            bits = rounded.view(torch.int16).numpy().view("uint16")
            return interpreter.TensorHandle(bits, kind.scalar)
        if source.dtype.scalar == tl.bfloat16 and kind.scalar == tl.float32:
            widened = (source.data.astype("uint32") << 16).view("float32")
            return interpreter.TensorHandle(widened, kind.scalar)
        return cast(self, source, kind)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("cast_impl", "create_fp_trunc", "create_fp_ext"):
            patch.setattr(interpreter.InterpreterBuilder, name, rounding)
        yield


@pytest.fixture
def on_cpu(monkeypatch):
    """Let CPUs take the fused path, by the interpreter."""
    from quantal.torch import _self_check

    monkeypatch.setattr(_self_check, "DEVICES", {"cpu", "cuda"})
