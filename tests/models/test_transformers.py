"""Models of Hugging Face transformers: layers, and dropout that their attention functions draw."""

import pytest
import torch
import transformers
from torch_porting import NativeDraws, check, train

from quantal.torch import convert, revert, sites

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def tokens(length=6):
    return torch.arange(2 * length).view(2, length) % 11 + 1


def bert(**options):
    config = transformers.BertConfig(**{"vocab_size": 12, **SMALL, **options})
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    x = {"input_ids": tokens(), "attention_mask": mask, "labels": torch.tensor([0, 1])}
    return transformers.BertForSequenceClassification(config), x


def gpt2(**options):
    config = transformers.GPT2Config(
        vocab_size=12, n_embd=16, n_layer=2, n_head=2, n_positions=8,
        bos_token_id=0, eos_token_id=0, loss_type="ForCausalLMLoss", use_cache=False, **options,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens(), "labels": tokens()}


def t5(**options):
    config = transformers.T5Config(
        vocab_size=12, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        decoder_start_token_id=0, use_cache=False, **options,
    )  # fmt: skip
    x = {"input_ids": tokens(), "labels": tokens(4)}
    return transformers.T5ForConditionalGeneration(config), x


def vit(**options):
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.1,
        **SMALL, **options,
    )  # fmt: skip
    x = {
        "pixel_values": torch.linspace(-1, 1, 1536).view(2, 3, 16, 16),
        "labels": torch.tensor([0, 1]),
    }
    return transformers.ViTForImageClassification(config), x


# How many places each has: layers of dropout, and calls of attention.
SITES = {
    bert: (2 + 2 * 3, 2),
    gpt2: (1 + 2 * 3, 2),
    t5: (2 + 2 * 3 + 2 * 4, 2 + 2 * 2),
    vit: (1 + 2, 2),
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# torch 2.13: where a graph breaks, as within GPT-2, the compiler looks at .grad itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("make", SITES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_ported(make, implementation, tmp_path):
    model, x = make(attn_implementation=implementation)
    found = sites(model)
    calls = [site for site in found if site.name.endswith(".forward")]
    assert (len(found) - len(calls), len(calls)) == SITES[make], found
    assert {site.rate for site in found} == {0.1}
    check(model, x, lambda output: output.loss, tmp_path, fullgraph=make is not gpt2)


# torch 2.13: its compiler imports code that uses TorchScript, which it deprecates.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_compiled_by_inductor():
    model, x = bert(num_hidden_layers=1)
    convert(model, 0.5)
    compiled = torch.compile(model, fullgraph=True)
    start, end = train(model, compiled, x, lambda output: output.loss)
    assert end < start


def test_attention_that_is_not_torchs_is_named():
    model, _ = bert()
    model.config._attn_implementation = "flash_attention_2"  # what a GPU would be asked for
    with pytest.raises(ValueError, match=r"attention\.self\.forward \(attention_interface\)"):
        convert(model, 1.0)
    assert all(site.alpha is None for site in sites(model))
    convert(model, 1.0, exclude="*.forward")


def test_attention_weights_alone():
    model, x = gpt2()
    convert(model, lambda rate: 5 * rate, include="*.attn.*", exclude="*.resid_dropout")
    assert [s.name for s in sites(model) if s.alpha == 0.5] == [
        f"transformer.h.{i}.attn.{name}" for i in range(2) for name in ("forward", "attn_dropout")
    ]
    with NativeDraws() as draws:
        model.train()(**x)
    assert draws.count == 1 + 2 * 2  # the embedding's; of each layer, resid_dropout and the MLP's


def test_gradient_checkpointing():
    model, x = bert()
    convert(model, 0.5).train()
    gradients = []
    for enable in (lambda: None, model.gradient_checkpointing_enable):
        enable()
        model.zero_grad()
        torch.manual_seed(0)
        model(**x).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(map(torch.equal, *gradients))


def test_saved_and_loaded_as_usual(tmp_path):
    model, x = bert()
    expected = model.eval()(**x).logits
    convert(model, 0.5).save_pretrained(tmp_path)
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(again(**x).logits, expected)
    assert all(site.alpha is None for site in sites(again))
    assert torch.equal(revert(model)(**x).logits, expected)


def test_generation():
    model, _ = gpt2()
    kwargs = {
        "input_ids": tokens()[:, :3],
        "max_new_tokens": 3,
        "do_sample": False,
        "pad_token_id": 0,
    }
    expected = model.eval().generate(**kwargs)
    assert torch.equal(convert(model, 0.5).generate(**kwargs), expected)
