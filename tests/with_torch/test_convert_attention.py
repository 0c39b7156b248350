"""convert on nn.MultiheadAttention and nn.Transformer: QSD on the attention weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quantal.torch._attention as attention
from quantal.torch import convert, dilute, masks_on, revert
from quantal.torch._reroute import Rerouting

KINDS = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"kdim": 3, "vdim": 5},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
]


def qkv(options, batch=3):
    parts = [torch.randn(4, batch, 8)]
    parts += [torch.randn(6, batch, options.get(name, 8)) for name in ("kdim", "vdim")]
    return [x.transpose(0, 1) for x in parts] if options.get("batch_first") else parts


def masks():
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1, 3:] = True
    later = torch.ones(4, 6, dtype=torch.bool).triu(1)
    return [
        {},
        {"key_padding_mask": padding},
        {"attn_mask": later},
        {"attn_mask": later, "is_causal": True},
        {"attn_mask": torch.randn(6, 4, 6)},
        {"attn_mask": later, "key_padding_mask": padding},
        {"attn_mask": torch.randn(4, 6), "key_padding_mask": torch.randn(3, 6)},
    ]


ASKED = [
    {"need_weights": False},
    {"need_weights": True},
    {"need_weights": True, "average_attn_weights": False},
]


@pytest.fixture
def nothing_drawn(monkeypatch):
    monkeypatch.setattr(attention, "dilute", lambda x, *args, **kwargs: x)


@pytest.mark.usefixtures("nothing_drawn")
@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_it_is_torchs_attention(options, asked):
    """With nothing drawn, training gives what torch gives without dropout."""
    module = nn.MultiheadAttention(8, 2, dropout=0.5, **options)
    for given in masks():
        x = qkv(options)
        module.eval()
        expected = [module(*x, **given, **asked)]
        convert(module, 1.0).train()
        torch.testing.assert_close([module(*x, **given, **asked)], expected)
        revert(module)
    unbatched = [x[:, 0] for x in qkv({**options, "batch_first": False})]
    expected = [module.eval()(*unbatched, **asked)]
    convert(module, 1.0).train()
    torch.testing.assert_close([module(*unbatched, **asked)], expected)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("grad", [False, True])  # without it, torch takes its fused path
def test_evaluation_is_bit_identical(options, grad):
    module = nn.MultiheadAttention(8, 2, dropout=0.5, **options).eval()
    x = torch.randn(3, 4, 8)
    for arguments in (qkv(options), [x, x, x]):
        if arguments[0] is x and "kdim" in options:
            continue
        with torch.set_grad_enabled(grad):
            expected, weights = module(*arguments)
            convert(module, 1.0)
            got, got_weights = module(*arguments)
        revert(module)
        assert torch.equal(got, expected)
        assert torch.equal(got_weights, weights)


def test_the_weights_are_diluted():
    module = convert(nn.MultiheadAttention(8, 2, dropout=0.5), 2.0)
    x = qkv({})
    module.eval()
    _, weights = module(*x, average_attn_weights=False)
    torch.manual_seed(0)
    _, drawn = module.train()(*x, average_attn_weights=False)
    torch.manual_seed(0)
    torch.testing.assert_close(drawn, dilute(weights, 0.5, 2.0))
    module.dropout = 0.0  # torch's own attribute is still the one to set
    torch.testing.assert_close(module(*x)[0], module.eval()(*x)[0])
    assert revert(module).dropout == 0.0


def test_only_attention_that_drops_is_converted():
    with pytest.raises(ValueError, match="no dropout to swap"):
        convert(nn.MultiheadAttention(8, 2), 1.0)


PRODUCTS = {
    "plain": dict,
    "causal": lambda: {"is_causal": True},
    "scaled": lambda: {"scale": 0.3},
    "boolean": lambda: {"attn_mask": torch.ones(5, 7, dtype=torch.bool).tril()},
    "none in sight": lambda: {
        "attn_mask": torch.arange(7) > torch.tensor([[-1], [2], [6], [3], [0]])
    },
    "added": lambda: {"attn_mask": torch.randn(3, 1, 5, 7)},
    "grouped": lambda: {"enable_gqa": True},
}


@pytest.mark.usefixtures("nothing_drawn")
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_it_is_torchs_scaled_dot_product(product, dtype):
    options = PRODUCTS[product]()
    if product == "added":
        options["attn_mask"] = options["attn_mask"].to(dtype)
    heads = 2 if "enable_gqa" in options else 4
    shapes = (3, 4, 5, 8), (3, heads, 7, 8), (3, heads, 7, 6)
    x = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    expected = F.scaled_dot_product_attention(*x, **options)
    with Rerouting({"scaled_dot_product_attention": 1.0}):
        got = F.scaled_dot_product_attention(*x, dropout_p=0.5, **options)
    assert got.dtype == dtype
    # In half precision torch rounds after other steps: to 8 bits, of numbers up to 4.
    bound = {"atol": 2**-5, "rtol": 2**-6} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(got, expected, **bound)
    for mine, theirs in zip(
        *(torch.autograd.grad(y.sum(), x) for y in (got, expected)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, **bound)


def test_nothing_to_draw_is_left_to_the_fused_kernels():
    q = torch.randn(2, 2, 4, 8)
    with Rerouting({"scaled_dot_product_attention": 1.0}):
        got = F.scaled_dot_product_attention(q, q, q)
    assert torch.equal(got, F.scaled_dot_product_attention(q, q, q))


def encoder(norm_first=False):
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.5, batch_first=True, norm_first=norm_first
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def test_the_fused_encoder_is_still_taken_in_evaluation(monkeypatch):
    model, x, taken = encoder(), torch.randn(3, 4, 8), []
    fused = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(
        torch, "_transformer_encoder_layer_fwd", lambda *args: taken.append(1) or fused(*args)
    )
    with torch.no_grad():
        expected = model(x)
        assert len(taken) == 2
        convert(model, 1.0)
        assert torch.equal(model(x), expected)
        assert len(taken) == 4
        with masks_on(model):  # where it would pass QSD by
            assert not torch.equal(model(x), model(x))
        assert len(taken) == 4
        assert torch.equal(model(x), expected)


# Nested tensors are a prototype in torch 2.13, and say so.
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype:UserWarning")
def test_nested_tensors_of_the_fused_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.zeros(3, 4, dtype=torch.bool)
    padding[0, 2:] = True
    x = torch.randn(3, 4, 8)
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
        got = convert(model, 1.0)(x, src_key_padding_mask=padding)
        with masks_on(model):
            drawn = model(x, src_key_padding_mask=padding)
    assert torch.equal(got, expected)
    assert drawn.shape == x.shape
    assert not torch.equal(drawn, expected)


def test_compiled():
    model, x = convert(encoder(norm_first=True), 1.0).train(), torch.randn(3, 4, 8)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert not torch.equal(compiled(x), compiled(x))
    compiled(x).sum().backward()
    model.eval()
    torch.testing.assert_close(compiled(x), model(x))
