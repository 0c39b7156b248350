"""What happens when a version of torch no longer has a private name that is used here."""

import subprocess
import sys
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
    "torch.nn.modules.dropout._DropoutNd",
]


@pytest.mark.parametrize("name", NAMES)
def test_without_a_private_name_all_goes_on(name):
    # Torch itself needs them, so they go from what this package sees of torch only.
    owner, _, attribute = name.rpartition(".")
    code = f"""
import builtins, torch
real = builtins.getattr
def getattr(thing, name, *default):
    if thing is {owner} and name == {attribute!r} and default:
        asked.append(name)
        return default[0]
    return real(thing, name, *default)
asked = []
builtins.getattr = getattr
import quantal.torch._private_api
builtins.getattr = real
assert asked == [{attribute!r}]
{WORKS}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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
