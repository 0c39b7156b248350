"""torch's own nn.Transformer, and a language model built on its layers."""

import pytest
import torch
from torch import nn
from torch_porting import check

from quantal.torch import sites


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def squares(output):
    return (output - 1).square().mean()


@pytest.mark.parametrize("norm_first", [False, True])
# torch 2.13: nested tensors are for batch_first and the other order, and it says so.
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True, but:UserWarning")
def test_transformer(norm_first, tmp_path):
    model = nn.Transformer(16, 2, 2, 2, 32, dropout=0.1, norm_first=norm_first)
    assert len(sites(model)) == 2 * 4 + 2 * 6
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    x = {"src": torch.randn(5, 2, 16), "tgt": torch.randn(4, 2, 16)}
    x |= {"tgt_mask": mask, "tgt_is_causal": True}
    check(model, x, squares, tmp_path)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.lstm = nn.LSTM(16, 16, 2, dropout=0.2, batch_first=True)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 11)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.embed(tokens))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


# torch 2.13: where a graph breaks, as at the LSTM, the compiler looks at .grad itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_language_model(tmp_path):
    tokens = torch.arange(12).view(2, 6) % 11
    model = LanguageModel()
    assert [site.kind for site in sites(model)][:2] == ["LSTM", "MultiheadAttention"]

    def loss(output):
        return nn.functional.cross_entropy(output[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    check(model, {"tokens": tokens}, loss, tmp_path, fullgraph=False)
