"""When the kernels are not used: turned off, not installed, wrong, or not yet tried."""

import importlib.util
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from torch.func import functionalize, grad, jvp, vmap

from quantal.torch import QSD, _launch, _self_check, dilute

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def untried(monkeypatch, on_cpu):
    monkeypatch.setattr(_self_check, "_found", {})


def drawn():
    torch.manual_seed(0)
    return dilute(torch.ones(300), 0.3, 0.2)


@pytest.fixture
def separate():
    """What separate operations draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_self_check, "DEVICES", {"cuda"})
        return drawn()


def test_they_are_tried_once(monkeypatch, separate):
    assert not torch.equal(drawn(), separate)
    assert _self_check._found == {CPU: True}
    monkeypatch.setattr(_self_check, "_difference", lambda device: "must not be asked again")
    assert not torch.equal(drawn(), separate)


def test_turned_off(monkeypatch, separate):
    monkeypatch.setenv("QUANTAL_TRITON", "0")
    assert torch.equal(drawn(), separate)
    monkeypatch.setenv("QUANTAL_TRITON", "1")
    assert not torch.equal(drawn(), separate)


@pytest.mark.parametrize("stand_in", [None, types.ModuleType("triton")], ids=["none", "empty"])
def test_not_installed(monkeypatch, separate, stand_in):
    monkeypatch.setitem(sys.modules, "triton", stand_in)
    if stand_in is None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    _self_check._triton_is_there.cache_clear()
    try:
        assert torch.equal(drawn(), separate)
    finally:
        _self_check._triton_is_there.cache_clear()


def wrong(x, y, *rest):
    y.copy_(x)


def failing(x, y, *rest):
    raise RuntimeError("no compiler here")


def wrong_at_the_end(x, y, *rest):
    """Leave out what is in no full tile."""
    kind = "seed" if rest[2:] and isinstance(rest[2], torch.Tensor) else "key"
    RIGHT[kind](x, y, *rest)
    y[x.numel() // 1024 * 1024 :] = 0


RIGHT = {"seed": _launch.multiply_by_seed, "key": _launch.multiply_by_key}


@pytest.mark.parametrize("name", ["multiply_by_seed", "multiply_by_key"])
@pytest.mark.parametrize("kernel", [wrong, wrong_at_the_end, failing])
def test_a_kernel_that_is_wrong_is_left_alone_with_one_warning(monkeypatch, separate, name, kernel):
    monkeypatch.setattr(_launch, name, kernel)
    said = "no compiler here" if kernel is failing else "what NumPy does not"
    with pytest.warns(RuntimeWarning, match=f"QSD on cpu takes separate operations.*{said}"):
        assert torch.equal(drawn(), separate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(drawn(), separate)


def test_a_default_device_is_no_concern_of_the_trial(monkeypatch):
    options = {"BY_HAND": True, "num_warps": 1}
    monkeypatch.setattr(_launch, "_options_of_device", lambda device: options)
    with torch.device("meta"), np.errstate(all="ignore"):
        assert _self_check._difference(CPU) == ""


def test_rounding_by_hand_is_tried_too(monkeypatch, separate):
    options = {"BY_HAND": True, "num_warps": 1}
    monkeypatch.setattr(_launch, "_options_of_device", lambda device: options)
    with np.errstate(all="ignore"):  # NumPy, which multiplies here, warns of 0·∞ and the like
        assert not torch.equal(drawn(), separate)
    assert _self_check._found.pop(CPU)
    right = _launch.multiply_by_seed

    def loses_nan(x, y, *rest):
        right(x, y, *rest)
        if x.dtype == torch.bfloat16:
            y.nan_to_num_(0.0, torch.inf, -torch.inf)

    monkeypatch.setattr(_launch, "multiply_by_seed", loses_nan)
    warned = pytest.warns(RuntimeWarning, match="its kernels round to bfloat16 as CPUs do not")
    with np.errstate(all="ignore"), warned:
        assert torch.equal(drawn(), separate)


def test_nothing_is_tried_while_a_graph_is_captured(monkeypatch, separate):
    monkeypatch.setattr(_self_check, "capturing", lambda device: True)
    assert torch.equal(drawn(), separate)
    assert not _self_check._found
    monkeypatch.setattr(_self_check, "capturing", lambda device: False)
    assert not torch.equal(drawn(), separate)


# torch 2.13 loads its own rules of forward-mode differentiation by a way that it deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "transform",
    [
        lambda call: grad(lambda x: call(x).sum()),
        lambda call: lambda x: jvp(call, (x,), (x,)),
        lambda call: vmap(grad(lambda x: call(x).sum()), randomness="different"),
        functionalize,
    ],
    ids=["grad", "jvp", "vmap", "functionalize"],
)
def test_nothing_is_tried_within_a_transform(transform, separate):
    """Where new tensors have no memory: the kernels would look broken, for good."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        transform(lambda x: dilute(x, 0.27182, 0.2))(torch.ones(3, 4))  # with a table of its own
    assert not _self_check._found
    assert not torch.equal(drawn(), separate)


def test_a_captured_stream_is_known_by_torch(monkeypatch):
    """No device is there: what torch says of one is made up."""
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(_self_check, "_difference", lambda device: pytest.fail("was tried"))
    assert not _self_check.usable(gpu)
    assert not _self_check._found
    monkeypatch.setattr(_self_check, "_found", {gpu: True})  # tried before
    assert _self_check.usable(gpu)


def test_a_new_table_is_enough_to_try_them():
    assert not _self_check._found
    QSD(0.31415, 0.2)
    assert _self_check._found == {CPU: True}


def test_under_a_dispatch_mode_they_are_tried_without_it():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        inside = drawn()
    assert _self_check._found == {CPU: True}
    assert torch.equal(drawn(), inside)
