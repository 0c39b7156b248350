"""Families of torch models, each built small from its configuration, converted, proved, and back.

For every family: evaluation is the same to the bit; after the conversion a training pass has no
native draw that is not named, and the proof by example says what a count of draws says; a step of
training; weights go both ways; `revert` gives the model that was.
"""

import copy
import inspect

import pytest
import timm
import torch
import transformers
from torch_porting import anatomy, evaluate, same, tensors

from quantal.torch import convert, revert, sites
from quantal.torch._native_masks import native_masks

TOKENS = torch.arange(24).view(2, 12) % 11 + 4
IMAGES = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32)
SPEECH = torch.sin(torch.arange(2 * 1200) / 3).view(2, 1200)
SPECTRUM = torch.sin(torch.arange(2 * 80 * 64) / 7).view(2, 80, 64)
# By whatever name a configuration has for it.
SMALL = {
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions", "max_source_positions",
                     "max_target_positions", "max_encoder_position_embeddings", "n_ctx",
                     "max_decoder_position_embeddings"), 64),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "emb_dim", "dim"), 16),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers",
                     "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads",
                     "encoder_attention_heads", "decoder_attention_heads",
                     "num_key_value_heads"), 2),
    **dict.fromkeys(("intermediate_size", "d_ff", "n_inner", "encoder_ffn_dim", "hidden_dim",
                     "decoder_ffn_dim"), 32),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout",
                     "attention_dropout", "activation_dropout", "dropout_rate", "hidden_dropout",
                     "embd_pdrop", "attn_pdrop", "resid_pdrop", "embedding_dropout",
                     "feat_proj_dropout", "final_dropout", "classifier_dropout"), 0.1),
    "d_kv": 8, "head_dim": 8, "image_size": 32, "patch_size": 8, "use_cache": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "attention_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1, "layerdrop": 0.0,
    "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "relative_attention": True,
    "position_buckets": 4, "pos_att_type": ["p2c", "c2p"], "conv_dim": (8, 8), "conv_stride": (5, 2),
    "conv_kernel": (10, 3), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "apply_spec_augment": False,
    "conv_pos_kernel_size": 3, "num_mel_bins": 80, "embed_dim": 16, "depths": [1, 1],
    "window_size": 4, "mlp_ratio": 2.0, "hidden_sizes": [8, 8, 8, 8], "drop_path_rate": 0.0,
    "d_inner": 32, "num_buckets": 8, "attn_implementation": "sdpa", "num_codevector_groups": 2,
    "axial_pos_embds": False, "speech_decoder_prenet_dropout": 0.5, "type_vocab_size": 2,
}  # fmt: skip


def hugging_face(name, **options):
    """Return a small model of a class of transformers."""
    cls = getattr(transformers, name)
    known = {"attn_implementation"}
    for parent in cls.config_class.__mro__:
        known |= set(getattr(parent, "__annotations__", ()))
        known |= set(inspect.signature(parent.__init__).parameters)
    given = {key: value for key, value in SMALL.items() if key in known} | options
    return cls(cls.config_class(**given))


def text(name, **options):
    return lambda: (hugging_face(name, **options), {"input_ids": TOKENS})


def pairs(name, **options):
    x = {"input_ids": TOKENS, "decoder_input_ids": TOKENS[:, :5]}
    return lambda: (hugging_face(name, **options), x)


def speech(name, **options):
    return lambda: (hugging_face(name, **options), {"input_values": SPEECH})


def pictures(name, **options):
    return lambda: (hugging_face(name, **options), {"pixel_values": IMAGES})


def whisper():
    x = {"input_features": SPECTRUM, "decoder_input_ids": TOKENS[:, :5]}
    return hugging_face("WhisperModel", max_source_positions=32), x


def speecht5():
    x = {
        "input_ids": TOKENS,
        "decoder_input_values": SPECTRUM[:, :5].transpose(1, 2)[:, :5].repeat(1, 1, 16),
    }
    model = hugging_face("SpeechT5ForTextToSpeech", attn_implementation="eager", speech_decoder_prenet_layers=2,
                         speech_decoder_prenet_units=8, speech_decoder_postnet_layers=2,
                         speech_decoder_postnet_units=8, hidden_size=16)  # fmt: skip
    return model, x


def checkpointed(family):
    def make():
        model, x = family()
        model.gradient_checkpointing_enable()
        return model, x

    return make


def encoder_of_torch():
    return Streamed(), {"x": IMAGES[:, 0]}


class Streamed(torch.nn.Module):
    """Layers of torch's own, and code between them that runs as a generator."""

    def __init__(self):
        super().__init__()
        make = torch.nn.TransformerEncoderLayer
        self.layers = torch.nn.ModuleList(make(32, 2, 16, 0.1, batch_first=True) for _ in range(2))

    def stages(self, x):
        for layer in self.layers:
            x = torch.nn.functional.dropout(layer(x), 0.2, self.training)
            yield x

    def forward(self, x):
        return list(self.stages(x))


def series():
    model = hugging_face("PatchTSTModel", context_length=16, patch_length=4, patch_stride=4, ffn_dim=32,
                         ff_dropout=0.1, positional_dropout=0.1, num_input_channels=2)  # fmt: skip
    return model, {"past_values": SPEECH[:, :32].view(2, 16, 2)}


def of_timm(name, **options):
    made = {"num_classes": 3, "drop_rate": 0.1, **options}
    return lambda: (timm.create_model(name, **made), {"x": IMAGES})


FAMILIES = {
    "bert": text("BertModel"),
    "bert, eager": text("BertModel", attn_implementation="eager"),
    "roberta": text("RobertaModel"),
    "electra": text("ElectraModel"),
    "albert": text("AlbertModel", attention_probs_dropout_prob=0.1),
    "distilbert": text("DistilBertModel"),
    "mpnet": text("MPNetModel", attn_implementation="eager"),
    "deberta": text("DebertaModel", attn_implementation="eager"),
    "deberta-v2": text("DebertaV2Model", attn_implementation="eager"),
    "gpt2": text("GPT2Model"),
    "gpt-neox": text("GPTNeoXModel"),
    "opt": text("OPTModel", ffn_dim=32, word_embed_proj_dim=16),
    "mixtral": text("MixtralModel", router_jitter_noise=0.1),
    "longformer": text("LongformerModel", attn_implementation="eager"),
    "xlnet": text("XLNetModel", attn_implementation="eager", d_head=8, n_head=2),
    "xlm": text("XLMModel", attn_implementation="eager", n_heads=2, emb_dim=16),
    "esm": text("EsmModel", mask_token_id=3, position_embedding_type="rotary"),
    "fnet": text("FNetModel", attn_implementation="eager"),
    "reformer": text("ReformerModel", attn_implementation="eager", attn_layers=["local", "lsh"],
                     attention_head_size=8, feed_forward_size=32, local_attn_chunk_length=4,
                     lsh_attn_chunk_length=4, num_hashes=1, num_buckets=2),
    "bert, checkpointed": checkpointed(text("BertModel")),
    "bart, checkpointed": checkpointed(pairs("BartModel")),
    "patchtst": series,
    "encoder of torch, in a generator": encoder_of_torch,
    "t5": pairs("T5Model"),
    "bart": pairs("BartModel"),
    "bart, layers left out": pairs("BartModel", encoder_layerdrop=0.5),
    "pegasus": pairs("PegasusModel"),
    "led": pairs("LEDModel", attn_implementation="eager"),
    "wav2vec2": speech("Wav2Vec2Model"),
    "hubert": speech("HubertModel"),
    "data2vec-audio": speech("Data2VecAudioModel"),
    "whisper": whisper,
    "speecht5": speecht5,
    "vit": pictures("ViTModel"),
    "deit": pictures("DeiTModel"),
    "beit": pictures("BeitModel"),
    "swin": pictures("SwinModel", num_heads=[2, 2], patch_size=2),
    "swin, stochastic depth": pictures("SwinModel", num_heads=[2, 2], patch_size=2, drop_path_rate=0.5),
    "convnext": of_timm("convnext_atto"),
    "efficientnet": of_timm("efficientnet_lite0"),
    "resnet, drop block": of_timm("resnet10t", drop_block_rate=0.1),
}  # fmt: skip
# What draws masks of its own there, by its class.
NAMED = {
    "resnet, drop block": "DropBlock2d",
    "speecht5": "SpeechT5SpeechDecoderPrenet",
    "swin, stochastic depth": "SwinDropPath",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")  # of what the libraries say about each other
def test_family(family):
    torch.manual_seed(0)
    model, x = FAMILIES[family]()
    model.train()
    native, before, expected = copy.deepcopy(model), anatomy(model), evaluate(model, x)
    assert native_masks(lambda: model(**x))
    unreached = [site for site in sites(model, example=x) if site.unreached]
    assert {NAMED.get(family)} - {None} == {
        kind for site in unreached for kind in [site.kind] if kind == NAMED.get(family)
    }
    assert bool(unreached) == (family in NAMED), unreached
    if unreached:
        with pytest.raises(ValueError, match=NAMED[family]):
            convert(model, 0.5, example=x)
        assert anatomy(model) == before
    convert(model, 0.5, example=x, strict=False)
    left = native_masks(lambda: model(**x))
    assert bool(left) == bool(unreached), left[:1]
    model.load_state_dict(native.state_dict())  # also the statistics that passes have moved
    assert same(evaluate(model, x), expected)

    floats = [y for y in tensors(model(**x)) if y.is_floating_point() and y.requires_grad]
    sum(y.square().mean() for y in floats).backward()
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    native.load_state_dict(model.state_dict())
    trained = evaluate(model, x)
    assert same(evaluate(native, x), trained)

    revert(model)
    assert anatomy(model) == before
    assert same(evaluate(model, x), trained)
    assert {site.alpha for site in sites(model)} == {None}
