"""The models in PyTorch: their sizes, their weights, their sites, and where they run."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import narrow, narrow_run
from torch import nn

import quantal
from examples import initial
from examples.experiments import EXPERIMENTS, LAYERS, experiment
from examples.with_torch import weights
from examples.with_torch.models import build
from examples.with_torch.parallel import Team
from examples.with_torch.train import Training


def block(channels: int, width: int) -> int:
    shortcut = channels * width if channels != width else 0
    return 2 * channels + 9 * channels * width + 2 * width + 9 * width * width + shortcut


COUNTS = {
    "mnist-mlp": 785 * 128 + 129 * 256 + 257 * 512 + 513 * 10,
    "mnist-lenet5": 61_706,
    "cifar10-wrn": 27 * 16
    + sum(block(a, b) + block(b, b) for a, b in ((16, 96), (96, 192), (192, 384)))
    + 2 * 384
    + 385 * 10,
    "ptb-medium": 10_000 * 650 + 2 * 4 * 650 * (650 + 650 + 1) + 651 * 10_000,
    "ptb-large": 10_000 * 1300 + 2 * 4 * 1300 * (1300 + 1300 + 1) + 1301 * 10_000,
    "reviews-lstm": 20_000 * 128 + 4 * 128 * (128 + 128 + 1) + 129,
    "reviews-gru": 20_000 * 128 + 3 * 128 * (128 + 128 + 2) + 129,
    "digits-mlp": 65 * 128 + 129 * 256 + 257 * 512 + 513 * 10,
}


def plain(name: str) -> list[nn.Module]:
    return [nn.Identity() for _ in experiment(name).sites]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_parameters_are_those_of_the_architecture(name: str) -> None:
    with torch.device("meta"):
        model = build(experiment(name), plain(name))
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == COUNTS[name]
    assert len(model.sites) == len(experiment(name).sites)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_weights_come_back_as_they_went_in(name: str) -> None:
    given = initial.weights(narrow(name), seed=3)
    model = build(narrow(name), plain(name)).double()
    weights.load(model, given)
    back = weights.dump(model)
    assert back.keys() == given.keys()
    for array in given:
        np.testing.assert_array_equal(back[array], given[array])
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == sum(array.size for array in given.values())


def test_weights_of_another_shape_are_refused() -> None:
    model = build(experiment("digits-mlp"), plain("digits-mlp"))
    given = initial.weights(experiment("digits-mlp"), seed=0)
    given["dense1/kernel"] = given["dense1/kernel"].T
    with pytest.raises(ValueError, match=r"weights: expected arrays of shapes .* \(64, 128\)"):
        weights.load(model, given)


SEEN = {  # by the sites of the narrow models, for 2 samples
    "mnist-mlp": [(2, 128), (2, 256), (2, 512)],
    "mnist-lenet5": [(2, 28, 28, 6), (2, 10, 10, 16), (2, 120), (2, 84)],
    "cifar10-wrn": [(2, 32, 32, 8)] * 2 + [(2, 16, 16, 12)] * 2 + [(2, 8, 8, 16)] * 2,
    "ptb-medium": [(2, 35, 16)] * 3,
    "reviews-lstm": [(2, 200, 8), (2, 16)],
    "reviews-gru": [(2, 200, 8), (2, 16)],
}
WORDS = [(2, 200, 8), (2, 200, 8), (2, 16)]


MASKS = [
    *((name, {}) for name in SEEN),
    *(("reviews-gru", {"layer": layer, "variant": "words"}) for layer in LAYERS[1:]),
    ("mnist-mlp", {"unit_mean": True}),
    *(("mnist-mlp", {"layer": layer, "shared_p": True}) for layer in ("qsd", "dist-p", "dist-q")),
]


@pytest.mark.parametrize(("name", "options"), MASKS)
def test_portable_masks_are_those_of_the_key(
    name: str, options: dict, tmp_path: Path, data_folder: Path
) -> None:
    run = narrow_run(name, tmp_path, data_folder, stream="portable", rate=0.4, **options)
    run.experiment = replace(run.experiment, batch=2)
    training = Training(run, Team(torch.device("cpu")))
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    for site in training.model.sites:
        site.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    training.seed(epoch=2)
    training.step(*map(training.tensor, next(iter(run.batches(0)))), None)
    assert [tuple(x.shape) for x, _ in seen] == (WORDS if "variant" in options else SEEN[name])
    for number, (x, y) in enumerate(seen):
        law, words = run.settings.dilution, "variant" in options and number == 0
        expected = quantal.dilute(
            x.detach().numpy(),
            law.rate,
            law.alpha,
            rng=run.keys[number].fold_in(2 * run.steps),
            vary=law.vary,
            unit_mean=law.unit_mean,
            broadcast_dims=-1 if words else (),
            p_broadcast_dims=0 if run.settings.shared_p else (),
        )
        np.testing.assert_array_equal(y.detach().numpy(), expected)


@pytest.mark.parametrize("layer", ["dropout", "qsd", "dist-p", "dist-q"])
def test_native_masks_of_words_span_their_features(
    layer: str, tmp_path: Path, data_folder: Path
) -> None:
    run = narrow_run("reviews-lstm", tmp_path, data_folder, layer=layer, variant="words")
    words = Training(run, Team(torch.device("cpu"))).model.sites[0]
    y = words(torch.ones(50, 40, 8))
    assert torch.equal(y, y[..., :1].expand_as(y))
    dropped = (y[..., 0] == 0).double().mean()
    assert abs(dropped - 0.5) < 5 * np.sqrt(0.25 / 2000)


@pytest.mark.parametrize(
    ("layer", "stream"), [("dropout", "native"), ("qsd", "native"), ("qsd", "portable")]
)
@pytest.mark.parametrize("name", SEEN)
def test_a_step_needs_no_particular_device_and_waits_for_none(
    name: str, layer: str, stream: str, tmp_path: Path, data_folder: Path
) -> None:
    # Tensors of the device "meta" meet no others, and have no values to be read.
    run = narrow_run(name, tmp_path, data_folder, layer=layer, stream=stream)
    training = Training(run, Team(torch.device("meta")))
    state = None
    for batch in islice(run.batches(0), 2):
        x, y = map(training.tensor, batch)
        if x.ndim == 2:  # words: few will do
            x, y = x[:, :5], y[:, :5] if y.ndim == 2 else y
        cost, state = training.step(x, y, state)
    assert cost.device.type == "meta"
    assert all(p.grad.device.type == "meta" for p in training.model.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", ["mnist-lenet5", "cifar10-wrn"])
def test_images_have_their_channels_last_in_memory(
    name: str, tmp_path: Path, data_folder: Path
) -> None:
    run = narrow_run(name, tmp_path, data_folder)
    training = Training(run, Team(torch.device("cpu")))
    maps: list[torch.Tensor] = []
    for module in training.model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, inputs, output: maps.extend((*inputs, output)))
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
    training.model(training.tensor(next(iter(run.batches(0))).x))
    assert maps
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in maps)
