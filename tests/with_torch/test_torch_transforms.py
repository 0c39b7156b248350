"""vmap, per-sample gradients, forward mode, checkpoints, autocast; and no waiting for a device."""

import pytest
import torch
from torch.func import functional_call, functionalize, grad, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import quantal
from quantal.torch import QSD, QSD2d, dilute

pytestmark = pytest.mark.usefixtures("both_ways_back")

P_DIMS = pytest.mark.parametrize("p_dims", [(), (0,)])


@P_DIMS
def test_vmap_same_and_different(p_dims):
    layer = QSD(0.3, 0.2, p_broadcast_dims=p_dims)
    x = torch.ones(5, 4, 30)
    same = vmap(layer, randomness="same")(x)
    assert (same == same[0]).all()
    different = vmap(layer, randomness="different")(x)
    assert different.shape == x.shape
    assert len({tuple(y.flatten().tolist()) for y in different}) == 5
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(layer)(x)


@P_DIMS
@pytest.mark.parametrize("generator", [None, quantal.key(4)], ids=["native", "key"])
def test_per_sample_gradients(p_dims, generator):
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 40), QSD(0.3, 0.2, p_broadcast_dims=p_dims, generator=generator)
    )
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    x = torch.randn(8, 3, 6)

    def loss(parameters, sample):
        y = functional_call(model, parameters, (sample,))
        return y.sum(), y

    gradients, y = vmap(grad(loss, has_aux=True), in_dims=(None, 0), randomness="different")(
        parameters, x
    )
    assert gradients["0.weight"].shape == (8, 40, 6)
    with torch.no_grad():
        c = y / model[0](x)
    torch.testing.assert_close(gradients["0.bias"], c.sum(1), rtol=1e-4, atol=1e-4)
    # A key means the same to every sample; torch's stream makes them differ.
    assert torch.allclose(c, c[:1], rtol=1e-4) == (generator is not None)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_forward_mode():
    x, tangent = torch.randn(50), torch.randn(50)
    call = lambda x: dilute(x, 0.3, 0.2, generator=quantal.key(0))  # noqa: E731
    y, moved = jvp(call, (x,), (tangent,))
    assert torch.equal(y, call(x))
    assert torch.equal(moved, call(tangent))


@P_DIMS
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("source", [None, "generator", quantal.key(4)], ids=str)
def test_functionalize(p_dims, inplace, source):
    """It takes away all that is done in place, also inside of a draw."""

    def call(x):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(1) if source == "generator" else source
        return dilute(
            x * 1, 0.3, 0.2, generator=generator, p_broadcast_dims=p_dims, inplace=inplace
        )

    x = torch.randn(8, 13)
    c = call(torch.ones_like(x))
    assert torch.equal(functionalize(call)(x), x * c)
    assert torch.equal(grad(lambda x: functionalize(call)(x).sum())(x), c)


def block(layer):
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), layer)


@pytest.mark.parametrize("reentrant", [False, True])
@P_DIMS
def test_checkpoint_gives_the_same_gradients_bit_for_bit(reentrant, p_dims):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(block(QSD(0.3, 0.2, p_broadcast_dims=p_dims)) for _ in range(1)))
    x = torch.randn(16, 32, requires_grad=True)

    def gradients(run):
        torch.manual_seed(1)
        loss = run(x).square().sum()
        return torch.autograd.grad(loss, [x, *model.parameters()])

    def checkpointed(x):
        return checkpoint(model, x, use_reentrant=reentrant)

    if reentrant:  # which knows backward() only

        def gradients(run):
            torch.manual_seed(1)
            model.zero_grad()
            x.grad = None
            run(x).square().sum().backward()
            return [x.grad, *(p.grad for p in model.parameters())]

    plain = gradients(model)
    again = gradients(checkpointed)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("generator", [torch.Generator(), quantal.key(0)], ids=["own", "counted"])
def test_what_a_checkpoint_cannot_restore_is_refused(reentrant, generator):
    model = block(QSD(0.3, 0.2, generator=generator))
    x = torch.randn(16, 32, requires_grad=True)
    y = checkpoint(model, x, use_reentrant=reentrant)
    with pytest.raises(ValueError, match="generator: expected None, or dilute with a key, where a"):
        y.sum().backward()
    # Without a checkpoint all is well, and the error has left nothing behind.
    model(x).sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_key_of_its_own_is_safe_in_a_checkpoint(reentrant):
    def call(x):
        return dilute(torch.sin(x), 0.3, 0.2, generator=quantal.key(0))

    x = torch.randn(100, requires_grad=True)
    (plain,) = torch.autograd.grad(call(x).sum(), x)
    checkpoint(call, x, use_reentrant=reentrant).sum().backward()
    assert torch.equal(x.grad, plain)


def test_autocast():
    model = block(QSD(0.3, 0.2))
    x = torch.randn(16, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
        assert y.dtype == torch.bfloat16
        assert QSD(0.3, 0.2)(x).dtype == torch.float32
    y.sum().backward()
    assert model[0].weight.grad.dtype == torch.float32
    assert torch.isfinite(model[0].weight.grad).all()


class Operations(TorchDispatchMode):
    """Collects the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("generator", [None, "own", quantal.key(0)], ids=["global", "own", "key"])
@P_DIMS
@pytest.mark.parametrize("inplace", [False, True])
def test_a_step_waits_for_no_device(generator, p_dims, inplace):
    generator = torch.Generator() if generator == "own" else generator
    layer = QSD(0.3, 0.2, inplace, p_broadcast_dims=p_dims, generator=generator)
    x = torch.ones(4, 30, requires_grad=True)
    with Operations() as operations:
        layer(x * 1).sum().backward()
    assert "index_select" in operations.names
    # item, nonzero and the like need the values on the host; a copy between devices shows as
    # _to_copy with a device, which casts share, so those are left to the list below.
    waiting = {"_local_scalar_dense", "nonzero", "item", "equal", "is_nonzero", "masked_select"}
    assert not operations.names & waiting


def test_maps_with_unbatched_input_under_vmap():
    y = vmap(QSD2d(0.5, 1.0), randomness="different")(torch.ones(6, 5, 4, 4))
    assert (y == y[..., :1, :1]).all()
