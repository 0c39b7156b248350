"""The fused path in torch, by Triton's interpreter: gradients, layouts, checkpoints, modes."""

import copy
import importlib
import io
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import quantal
import quantal.numpy
from quantal import Dilution
from quantal.table import table
from quantal.torch import QSD, _fused, _launch, dilute
from quantal.torch._self_check import cells_of_seed

pytestmark = [
    pytest.mark.usefixtures("on_cpu"),
    # torch 2.13 loads its own rules of forward-mode differentiation by a way that it deprecates.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]
LAW = Dilution(0.3, 0.2)
KEY = quantal.key(11)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SOURCES = pytest.mark.parametrize("source", ["global", "own", "key"])


def seeded(source):
    """Return a function that draws the same in every call, from one of the streams."""

    def call(x, **options):
        torch.manual_seed(3)
        generator = {"global": None, "own": torch.Generator().manual_seed(3), "key": KEY}[source]
        return dilute(x, LAW.rate, LAW.alpha, generator=generator, **options)

    return call


def coefficients(call, x):
    return call(torch.ones_like(x, dtype=torch.float32)).detach()


def test_torchs_stream_gives_the_seed():
    torch.manual_seed(3)
    seed, level = torch.randint(-(2**63), 2**63 - 1, (2,)).tolist()
    row = table(LAW).values[int(level % 2**30 < table(LAW).threshold)]
    c = row[cells_of_seed(seed % 2**64, 5000)]
    np.testing.assert_array_equal(coefficients(seeded("global"), torch.empty(5000)), c)
    np.testing.assert_array_equal(coefficients(seeded("own"), torch.empty(5000)), c)


def test_a_key_gives_what_numpy_draws():
    c = quantal.numpy.coefficients(LAW, (5, 7), None, KEY)
    np.testing.assert_array_equal(coefficients(seeded("key"), torch.empty(5, 7)), c)
    layer = QSD(LAW.rate, LAW.alpha, generator=KEY)
    for call in range(3):
        c = quantal.numpy.coefficients(LAW, (5, 7), None, KEY.fold_in(call))
        np.testing.assert_array_equal(layer(torch.ones(5, 7)), c)


@SOURCES
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_products_and_gradients_are_exact(source, dtype, inplace):
    call = seeded(source)
    x = torch.randn(33, 50).to(dtype).requires_grad_()
    upstream = torch.randn(33, 50).to(dtype)
    c = coefficients(call, x)
    wide = torch.promote_types(dtype, torch.float32)
    kept = x * 1
    y = call(kept, inplace=inplace)
    assert (y is kept) == inplace
    y.backward(upstream)
    assert y.dtype == x.grad.dtype == dtype
    assert torch.equal(y, (x.detach().to(wide) * c.to(wide)).to(dtype))
    assert torch.equal(x.grad, (upstream.to(wide) * c.to(wide)).to(dtype))


LAYOUTS = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 3).contiguous().transpose(0, 3),
    "with gaps": lambda x: x.repeat_interleave(2, dim=3)[..., ::2],
    "part": lambda x: torch.cat([x, x])[2:],
    "off by one": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "expanded": lambda x: x[:, :1].expand(x.shape),
}


@pytest.mark.parametrize("source", ["global", "key"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(source, layout):
    call = seeded(source)
    x = LAYOUTS[layout](torch.randn(2, 3, 4, 6)).requires_grad_()
    y = call(x)
    assert y.stride() == torch.empty_like(x).stride()
    if source == "key":  # which means the same to every layout
        assert torch.equal(y, call(x.contiguous()))
    for upstream_layout in (layout, "channels last", "expanded"):
        upstream = LAYOUTS[upstream_layout](torch.randn(2, 3, 4, 6))
        (gradient,) = torch.autograd.grad(y, x, upstream, retain_graph=True)
        torch.testing.assert_close(gradient, upstream * (y / x))
        (again,) = torch.autograd.grad(y, x, upstream, create_graph=True)
        assert torch.equal(again, gradient)


@pytest.mark.parametrize("source", ["global", "key"])
@pytest.mark.parametrize("layout", ["channels last", "with gaps", "off by one"])
def test_layouts_in_place(source, layout):
    x = LAYOUTS[layout](torch.randn(2, 3, 4, 6))
    call, kept = seeded(source), x.clone(memory_format=torch.preserve_format)
    expected, version = call(x), x._version
    y = call(x, inplace=True)
    assert y is x
    assert x._version > version
    # Without gaps, units are numbered as they lie; what has gaps was numbered by its axes.
    assert torch.equal(x, expected)
    assert not torch.equal(x, kept)


def test_what_is_overwritten_is_not_differentiated_silently():
    x = torch.randn(20, requires_grad=True)
    y = x * 1
    z = y.exp()  # keeps its result
    seeded("global")(z, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        seeded("global")(x, inplace=True)


@pytest.mark.parametrize("source", ["global", "key"])
def test_double_backward_and_forward_mode(source):
    call = seeded(source)
    x = torch.randn(20, 30, dtype=torch.float64, requires_grad=True)
    y = call(x)
    c = (y / x).detach()
    (gradient,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second, 6 * c**3 * x.detach())
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(call(forward_ad.make_dual(x.detach(), x.detach()))).tangent
    assert torch.equal(moved, y)
    small = x[0, :2].detach().requires_grad_()
    assert torch.autograd.gradcheck(call, small, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, small)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("watched", ["nothing", "forward", "backward"])
def test_checkpoints_draw_the_same_again(reentrant, watched):
    """Under a dispatch mode too, which torch's checkpoints do not bring along."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), QSD(0.3, 0.2))
    x = torch.randn(16, 32)

    def gradients(run, mode=None):
        torch.manual_seed(1)
        model.zero_grad()
        with mode if mode and watched == "forward" else torch.enable_grad():
            loss = run(x.requires_grad_()).square().sum()
        with mode if mode and watched == "backward" else torch.enable_grad():
            loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    plain = gradients(model)
    mode = FlopCounterMode(display=False)
    again = gradients(lambda x: checkpoint(model, x, use_reentrant=reentrant), mode)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("generator", [torch.Generator(), KEY], ids=["own", "counted"])
def test_what_a_checkpoint_cannot_restore_is_refused(generator):
    layer = QSD(0.3, 0.2, generator=generator)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), layer, torch.nn.Sigmoid())
    y = checkpoint(model, torch.randn(16, 32), use_reentrant=False)
    with pytest.raises(ValueError, match="generator: expected None, or dilute with a key"):
        y.sum().backward()


@pytest.mark.parametrize("generator", [None, KEY], ids=["native", "key"])
def test_functional_transforms(generator):
    model = torch.nn.Sequential(torch.nn.Linear(6, 40), QSD(0.3, 0.2, generator=generator))
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    x = torch.randn(8, 3, 6)

    def loss(parameters, sample):
        y = functional_call(model, parameters, (sample,))
        return y.sum(), y

    per_sample = vmap(grad(loss, has_aux=True), in_dims=(None, 0), randomness="different")
    gradients, y = per_sample(parameters, x)
    with torch.no_grad():
        c = y / model[0](x)
    torch.testing.assert_close(gradients["0.bias"], c.sum(1), rtol=1e-4, atol=1e-4)
    call = seeded("key")
    y, moved = jvp(call, (x,), (x,))
    assert torch.equal(y, moved)
    assert torch.equal(y, call(x))


@SOURCES
def test_fake_tensors(source):
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = torch.nn.Sequential(torch.nn.Linear(6, 40), QSD(0.3, 0.2)).to("meta")
    with FakeTensorMode():
        x = torch.empty(5, 6, requires_grad=True)
        assert _fused.serves(x)
        seeded(source)(x).sum().backward()
        assert x.grad.shape == (5, 6)
    assert model(torch.empty(5, 6, device="meta")).shape == (5, 40)


def test_the_operators_keep_their_promises():
    from quantal.torch._tables import tables

    made = tables(LAW, False, torch.device("cpu"))
    x = torch.randn(5, 7)
    rest = (made.values, made.thresholds)
    seed = torch.tensor([1, 2])
    torch.library.opcheck(_launch.multiply_by_seed, (x, torch.empty_like(x), *rest, seed))
    torch.library.opcheck(_launch.multiply_by_key, (x, torch.empty_like(x), *rest, 1, 2**32 - 1, 3))


def test_batched_gradients():
    x = torch.randn(40, requires_grad=True)
    for dims in ((), (0,)):
        y = dilute(x, 0.3, 0.2, generator=KEY, broadcast_dims=dims)
        upstream = torch.randn(3, 40)
        (batched,) = torch.autograd.grad(y, x, upstream, is_grads_batched=True, retain_graph=True)
        one_by_one = [torch.autograd.grad(y, x, g, retain_graph=True)[0] for g in upstream]
        torch.testing.assert_close(batched, torch.stack(one_by_one), rtol=0, atol=0)


@pytest.mark.parametrize("source", ["global", "key"])
@pytest.mark.parametrize("dims", [(1,), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_shared_coefficients(source, dims, inplace):
    call, x = seeded(source), torch.randn(4, 5, 6, requires_grad=True)
    y = call(x * 1, broadcast_dims=dims, inplace=inplace)
    c = coefficients(lambda x: call(x, broadcast_dims=dims), x)
    assert torch.equal(y, x * c)
    for axis in dims:
        assert (c == c.narrow(axis, 0, 1)).all()
    if source == "key":
        shape = [1 if axis in dims else size for axis, size in enumerate(x.shape)]
        expected = quantal.numpy.coefficients(LAW, tuple(shape), None, KEY)
        np.testing.assert_array_equal(c, np.broadcast_to(expected, x.shape))
    upstream = torch.randn(4, 5, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(y, x, upstream, create_graph=True)
    assert torch.equal(gradient, upstream * c)
    assert torch.equal(torch.autograd.grad(gradient.sum(), upstream)[0], c)


@SOURCES
def test_autocast_casts_nothing(source):
    """As for dropout: the output has the dtype of the input, and the draw is the same."""
    call, x = seeded(source), torch.randn(5, 7)
    with torch.autocast("cpu", torch.bfloat16):
        y = call(x)
        linear = torch.nn.functional.linear(x, torch.randn(3, 7))
        assert call(linear).dtype == linear.dtype == torch.bfloat16
    assert torch.equal(y, call(x))


@SOURCES
def test_deterministic_algorithms(source):
    call, x = seeded(source), torch.randn(33, 50, requires_grad=True)
    expected = call(x)
    torch.use_deterministic_algorithms(True)  # which also fills new memory with NaN
    try:
        y = call(x)
        y.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(y, expected)
    assert torch.equal(x.grad, coefficients(call, x))


@SOURCES
def test_inference_mode(source):
    call, x = seeded(source), torch.randn(5, 7)
    with torch.inference_mode():
        assert torch.equal(call(x), call(x.clone()))
        y = call(x)
        assert torch.equal(call(x.clone(), inplace=True), y)
    assert torch.equal(call(x), y)


def test_what_is_saved_may_be_kept_elsewhere():
    call, x = seeded("global"), torch.randn(33, 50, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = call(x)
    y.sum().backward()
    assert torch.equal(x.grad, coefficients(call, x))


def test_compiled_code_takes_its_own_way():
    """There Inductor fuses by itself; the same layer goes by the kernels outside of it."""
    graphs = []

    def collect(graph, inputs):
        graphs.append(graph.print_readable(print_output=False))
        return graph

    layer, x = QSD(0.3, 0.2), torch.randn(5, 7)
    torch.compile(layer, backend=collect, fullgraph=True)(x)
    assert graphs
    assert not any("multiply_by_" in graph for graph in graphs)
    with Operators() as seen:
        layer(x)
    assert "multiply_by_seed" in seen.names


class Operators(TorchDispatchMode):
    """Collects the names of operators."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_a_kernel_is_launched_on_the_device_of_its_tensor(monkeypatch):
    """Which need not be the current one. No device is there: what is asked of torch is written."""
    entered = []
    monkeypatch.setattr(
        torch.cuda, "device", lambda device: entered.append(device) or nullcontext()
    )
    with _launch._on(torch.device("cuda", 1)):
        assert entered == [torch.device("cuda", 1)]
    assert _launch._on(torch.device("cpu")).enter_result is None
    kernels = importlib.import_module("quantal.torch._triton_kernels")
    inside = []

    @contextmanager
    def on(device):
        inside.append(device)
        yield
        inside.clear()

    class Launched:
        def __init__(self, kernel):
            self.kernel = kernel

        def __getitem__(self, grid):
            assert inside == [torch.device("cpu")]
            return self.kernel[grid]

    monkeypatch.setattr(_launch, "_on", on)
    for name in ("multiply_by_seed", "multiply_by_key"):
        monkeypatch.setattr(kernels, name, Launched(getattr(kernels, name)))
    for source in ("global", "key"):
        seeded(source)(torch.ones(5))
    assert not inside


@pytest.mark.parametrize(
    ("count", "wide"), [(2**31 - 2**12, False), (2**31 - 2**12 + 1, True), (2**32 + 5, True)]
)
def test_many_units_are_numbered_with_64_bits(count, wide):
    x = torch.empty(1, dtype=torch.float16).expand(count)  # in no memory
    assert _launch._options(x, x)["WIDE"] == wide
    assert _launch._options(x, x)["ALIGNED"]


def test_addresses_that_are_odd_are_known():
    x = torch.empty(64, dtype=torch.float16)
    for start, aligned in ((0, True), (1, False), (4, False), (8, True)):
        assert _launch._options(x[start:], x)["ALIGNED"] == aligned
        assert _launch._options(x, x[start:])["ALIGNED"] == aligned


def test_copies_and_pickles_draw_on():
    layer = QSD(0.3, 0.2)
    stream = io.BytesIO()
    torch.save(layer, stream)
    stream.seek(0)
    for other in (copy.deepcopy(layer), torch.load(stream, weights_only=False)):
        outputs = []
        for one in (layer, other):
            torch.manual_seed(0)
            outputs.append(one(torch.ones(100)))
        assert torch.equal(*outputs)


def test_what_the_fused_path_serves():
    assert _fused.serves(torch.ones(3))
    assert _fused.serves(torch.nn.Parameter(torch.ones(3)))
    assert not _fused.serves(torch.ones(3).to(torch.float8_e4m3fn))

    class Special(torch.Tensor):
        pass

    assert not _fused.serves(torch.ones(3).as_subclass(Special))
    assert not _fused.serves(torch.ones(3, device="meta"))


UNLIKE_THEIR_MEMORY = {
    "sparse": lambda x: x.to_sparse(),
    "negated": torch._neg_view,
    "zeros": lambda x: torch._efficientzerotensor(x.shape),
}


@pytest.mark.parametrize("kind", UNLIKE_THEIR_MEMORY)
def test_a_tensor_that_is_not_what_its_memory_holds(kind):
    x = UNLIKE_THEIR_MEMORY[kind](torch.randn(5, 7))
    dense = x.to_dense() if x.layout != torch.strided else x.clone().resolve_neg()
    call = seeded("key")
    y, expected = call(x), call(dense)
    assert y.layout == x.layout
    assert torch.equal(y.to_dense(), expected)
    if kind != "zeros":  # which cannot be changed
        assert torch.equal(call(x, inplace=True).to_dense(), expected)


def test_gradients_that_are_not_what_their_memory_holds():
    x, call = torch.randn(5, 7, requires_grad=True), seeded("key")
    c = coefficients(call, x)
    for kind in ("negated", "zeros"):
        upstream = UNLIKE_THEIR_MEMORY[kind](torch.randn(5, 7))
        for again in (False, True):
            (gradient,) = torch.autograd.grad(call(x), x, upstream, create_graph=again)
            assert torch.equal(gradient, upstream * c)
