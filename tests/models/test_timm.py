"""Models of timm: attention that is fused, and dropout in the code of the head."""

import pytest
import timm
import torch
from torch_porting import NativeDraws, check

from quantal.torch import convert, sites

RATES = {"drop_rate": 0.1, "pos_drop_rate": 0.1, "proj_drop_rate": 0.1, "attn_drop_rate": 0.1}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def images(size):
    return {"x": torch.linspace(-1, 1, 2 * 3 * size * size).view(2, 3, size, size)}


def loss(output):
    return torch.nn.functional.cross_entropy(output, torch.tensor([0, 1]))


def vit():
    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", num_classes=3, **sizes, **RATES)


def efficientnet(**options):
    sizes = {"depth_multiplier": 2, "channel_multiplier": 0.5}  # so that blocks can be skipped
    return timm.create_model("test_efficientnet", num_classes=3, drop_rate=0.3, **sizes, **options)


@pytest.mark.parametrize("fused", [True, False])
def test_vit(fused, tmp_path):
    model = vit()
    for block in model.blocks:
        block.attn.fused_attn = fused
    assert len(sites(model)) == 2 + 2 * (1 + 4)
    check(model, images(16), loss, tmp_path)


def test_efficientnet(tmp_path):
    model = efficientnet()
    assert [(s.name, s.kind, s.rate) for s in sites(model)] == [("forward", "F.dropout", 0.3)]
    check(model, images(32), loss, tmp_path, learns=False)  # with BatchNorm of two images


def test_stochastic_depth_is_left_alone():
    """It drops whole branches, not units."""
    model = efficientnet(drop_path_rate=0.2)
    kinds = {type(m).__name__ for m in model.modules()}
    assert "DropPath" in kinds
    convert(model, 0.5).train()
    assert {type(m).__name__ for m in model.modules()} == kinds
    with NativeDraws() as draws:
        model(**images(32))
    assert draws.count == sum(getattr(m, "has_skip", False) for m in model.modules())
