"""When the kernels are not used: turned off, not installed, wrong, or not yet tried."""

import importlib.util
import warnings

import pytest
import torch

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


def test_not_installed(monkeypatch, separate):
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


@pytest.mark.parametrize("name", ["multiply_by_seed", "multiply_by_key"])
@pytest.mark.parametrize("kernel", [wrong, failing])
def test_a_kernel_that_is_wrong_is_left_alone_with_one_warning(monkeypatch, separate, name, kernel):
    monkeypatch.setattr(_launch, name, kernel)
    said = "no compiler here" if kernel is failing else "what NumPy does not"
    with pytest.warns(RuntimeWarning, match=f"QSD on cpu takes separate operations.*{said}"):
        assert torch.equal(drawn(), separate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(drawn(), separate)


def test_nothing_is_tried_while_a_graph_is_captured(monkeypatch, separate):
    monkeypatch.setattr(_self_check, "_capturing", lambda device: True)
    assert torch.equal(drawn(), separate)
    assert not _self_check._found
    monkeypatch.setattr(_self_check, "_capturing", lambda device: False)
    assert not torch.equal(drawn(), separate)


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
