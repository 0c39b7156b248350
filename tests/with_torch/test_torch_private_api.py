"""What happens when a version of torch no longer has a private name that is used here."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

WORKS = """
import torch, quantal
from torch import nn
from quantal.torch import QSD, convert, dilute, predict_mc, sites

x = torch.ones(8, 30, requires_grad=True)
for layer in (QSD(0.5, 1.0), QSD(0.5, 1.0, p_broadcast_dims=0)):
    y = layer(x)
    y += 1
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y, gradient + 1)
different = torch.vmap(QSD(0.5, 1.0), randomness="different")(torch.ones(3, 50))
assert not torch.equal(different[0], different[1])
key = quantal.key(0)
assert torch.equal(dilute(x, 0.5, 1.0, generator=key), dilute(x, 0.5, 1.0, generator=key))
assert predict_mc(QSD(0.5, 1.0), torch.ones(30), 3).std.sum() > 0

class Own(nn.Dropout):
    def forward(self, x):
        return x * torch.rand_like(x)

model = nn.Sequential(nn.Dropout(0.5), nn.LSTM(30, 30, 2, dropout=0.5))
assert len(sites(convert(model, 1.0))) == 2
assert sites(Own(0.5))[0].unreached
"""
NAMES = [
    "torch._C._are_functorch_transforms_active",
    "torch._C._functorch.is_legacy_batchedtensor",
    "torch._C._len_torch_dispatch_stack",
    "torch._C._current_graph_task_id",
    "torch._C._is_tracing",
    "torch._C._dispatch_tls_is_dispatch_key_included",
    "torch._C._is_torch_function_mode_enabled",
    "torch._C.DisableTorchFunction",
    "torch._C.DispatchKey.PreDispatch",
    "torch.nn.modules.dropout._DropoutNd",
    "torch.Tensor._is_zerotensor",
    "torch._C._autograd._top_saved_tensors_default_hooks",
    # What contains them may go as a whole.
    "torch._C._autograd",
    "torch._C._functorch",
    "torch._C.DispatchKey",
    "torch.utils._python_dispatch",
]


# Torch itself needs these names, so they are hidden from what this package sees of torch only. Each
# in a process of its own, which is a fork: torch takes seconds to import.
HIDE = """
import builtins, os, torch

real = builtins.getattr

def works_without(path):
    owner, attribute = path.rpartition(".")[::2]
    owner, asked = eval(owner), []

    def getattr(thing, name, *default):
        if thing is owner and name == attribute and default:
            asked.append(name)
            return default[0]
        return real(thing, name, *default)

    builtins.getattr = getattr
    import quantal.torch._private_api
    builtins.getattr = real
    assert asked, "nobody asks for it"
    exec(WORKS, {})

for name in NAMES:
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        if status:
            print("not without", name)
        continue
    try:
        works_without(name)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)
    os._exit(0)
"""


def test_every_name_is_there_today():
    """If this fails, a new torch has moved something: see what the module says of that name."""
    import operator

    import torch

    from quantal.torch import _private_api

    paths = re.findall(r'_private\(\s*"([\w.]+)"', Path(_private_api.__file__).read_text())
    assert len(paths) > 10
    for path in paths:
        assert operator.attrgetter(path)(torch) is not None


def test_without_a_private_name_all_goes_on():
    code = f"NAMES, WORKS = {NAMES!r}, {WORKS!r}\n{HIDE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_without_dispatch_modes_an_example_is_refused(monkeypatch):
    import torch

    from quantal.torch import QSD, _native_masks, _private_api, sites

    class Watch(_private_api._NoDispatchMode, _native_masks.MaskWatch):
        """As it is where there is no other mode to be derived from."""

    monkeypatch.setattr("quantal.torch._watch._Watch", Watch)
    with pytest.raises(NotImplementedError, match=r"^example: torch .*Leave example= out"):
        sites(QSD(0.5, 1.0), example=torch.ones(30))


def test_a_layer_that_is_not_told_where_it_moves_finds_out_in_its_next_call(monkeypatch):
    import torch

    from quantal.torch import QSD, _private_api

    monkeypatch.delattr(_private_api.MoveHook, "_apply")
    layer = QSD(0.5, 1.0).to("meta")
    assert layer(torch.ones(30, device="meta")).is_meta
    assert 0 in layer.to("cpu")(torch.ones(300))


def test_without_trees_a_tensor_is_still_averaged(monkeypatch):
    import torch

    from quantal.torch import QSD, _private_api, predict_mc

    monkeypatch.setattr(_private_api, "_pytree", None)
    assert predict_mc(QSD(0.5, 1.0), torch.ones(30), 3).std.shape == (30,)


def test_without_hugging_faces_name_the_attention_is_not_known():
    from torch import nn

    from quantal.torch._private_api import attention_implementation

    assert attention_implementation(nn.Linear(2, 2)) == ""
    # Where nobody has chosen, as for a part that is built by itself.
    assert attention_implementation(SimpleNamespace(_attn_implementation=None)) == "eager"
