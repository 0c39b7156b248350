"""Settings of a run: defaults, what is refused, and the way to disk and back."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from examples.experiments import EXPERIMENTS, LAYERS
from examples.settings import BACKENDS, KERAS_BACKENDS, Settings


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_the_paper_s_values_are_the_defaults(name: str) -> None:
    paper, settings = EXPERIMENTS[name], Settings(name, "jax")
    assert (settings.rate, settings.alpha, settings.epochs) == (
        paper.rate,
        paper.alpha,
        paper.epochs,
    )
    assert settings.plan is paper


@pytest.mark.parametrize(
    ("layer", "law"),
    [
        ("none", None),
        ("dropout", (0.2, inf, "pq")),
        ("qsd", (0.2, 0.2, "pq")),
        ("dist-p", (0.2, 0.2, "p")),
        ("dist-q", (0.2, 0.2, "q")),
    ],
)
def test_each_layer_has_its_law(layer: str, law: tuple | None) -> None:
    dilution = Settings("mnist-mlp", "torch", layer=layer).dilution
    assert law == (dilution and (dilution.rate, dilution.alpha, dilution.vary))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"experiment": "mnist"}, ValueError, r"experiment: expected one of mnist-mlp, .*'mnist'"),
        ({"backend": "mxnet"}, ValueError, r"backend: expected one of torch, keras, jax\. .*mxnet"),
        ({"layer": "drop"}, ValueError, r"layer: expected one of none, dropout, .*'drop'"),
        ({"precision": "float16"}, ValueError, r"precision: expected one of float32, "),
        ({"device": "tpu"}, ValueError, r"device: expected one of auto, cpu, gpu\."),
        ({"stream": "mine"}, ValueError, r"stream: expected one of native, portable\."),
        ({"seed": -1}, ValueError, r"seed: expected an integer of at least 0 and .*: seed=-1"),
        (
            {"seed": 2**64},
            ValueError,
            r"seed: expected an integer of at least 0 and below 18446744",
        ),
        ({"seed": None}, TypeError, r"seed: expected an integer"),
        ({"seed": 1.0}, TypeError, r"seed: expected an integer of at least 0 and .*seed=1\.0"),
        ({"epochs": 0}, ValueError, r"epochs: expected an integer of at least 1"),
        ({"epochs": True}, TypeError, r"epochs: expected an integer"),
        ({"limit": 0}, ValueError, r"limit: expected an integer of at least 1"),
        ({"devices": 0}, ValueError, r"devices: expected an integer of at least 1"),
        ({"devices": None}, TypeError, r"devices: expected an integer of at least 1"),
        ({"rate": 1.5}, ValueError, r"rate: .*1\.5"),
        ({"alpha": 0.0}, ValueError, r"alpha: .*0\.0"),
        ({"layer": "none", "rate": 0.2}, ValueError, r"rate: .*layer none has no rate"),
        ({"layer": "none", "alpha": 1.0}, ValueError, r"alpha: .*layer none has no alpha"),
        ({"layer": "dropout", "alpha": 1.0}, ValueError, r"alpha: .*layer dropout has no alpha"),
        ({"unit_mean": 1}, TypeError, r"unit_mean: expected True or False\. .*unit_mean=1"),
        ({"layer": "dist-q", "unit_mean": True}, ValueError, r"unit_mean: .*of layer dist-q\."),
        ({"layer": "dropout", "shared_p": True}, ValueError, r"shared_p: .*of layer dropout\."),
        ({"variant": "cited"}, ValueError, r"variant: expected nothing for mnist-mlp\. .*'cited'"),
        (
            {"experiment": "reviews-gru", "variant": "mine"},
            ValueError,
            r"variant: expected one of words, decay, cited for reviews-gru\. .*'mine'",
        ),
        (
            {"backend": "keras", "keras_backend": "openvino"},
            ValueError,
            r"keras_backend: expected one of tensorflow, jax, torch\.",
        ),
        (
            {"keras_backend": "jax"},
            ValueError,
            r"keras_backend: expected nothing, since backend torch is not keras\.",
        ),
    ],
)
def test_what_is_wrong_is_named(changes: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Settings(**({"experiment": "mnist-mlp", "backend": "torch"} | changes))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_settings_come_back_from_disk(layer: str, backend: str, tmp_path: Path) -> None:
    settings = Settings("ptb-medium", backend, layer=layer, seed=3, limit=1000, devices=2)
    settings.write(tmp_path / "config.json")
    assert Settings.read(tmp_path / "config.json") == settings
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_an_infinite_alpha_comes_back_from_disk(tmp_path: Path) -> None:
    settings = Settings("mnist-mlp", "torch", alpha=inf)
    settings.write(tmp_path / "config.json")
    assert Settings.read(tmp_path / "config.json") == settings


def test_every_condition_has_a_folder_of_its_own() -> None:
    start = Settings("mnist-mlp", "torch")
    many = [start.but(layer=layer) for layer in LAYERS]
    many += [start.but(rate=0.1), start.but(alpha=1.0), start.but(seed=1), start.but(backend="jax")]
    many += [start.but(unit_mean=True), start.but(shared_p=True)]
    many += [start.but(backend="keras", keras_backend=under) for under in KERAS_BACKENDS]
    reviews = Settings("reviews-lstm", "torch", layer="dropout")
    many += [reviews, *(reviews.but(variant=variant) for variant in reviews.plan.variants)]
    assert len({settings.name for settings in many}) == len(many)
    assert many[-1].name == "reviews-lstm/torch/dropout-0.5-cited/seed-0"
    assert many[-1].but(layer="qsd").condition == "qsd-0.5-1-cited"


def test_keras_s_backend_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert Settings("mnist-mlp", "keras").keras_backend == "tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    settings = Settings("mnist-mlp", "keras")
    settings.write(tmp_path / "config.json")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert Settings.read(tmp_path / "config.json").software == "keras-jax"
    assert settings.but(backend="jax").keras_backend is None


def test_a_variant_changes_the_experiment() -> None:
    plain, cited = (Settings("reviews-gru", "jax", variant=v).plan for v in (None, "cited"))
    assert plain.sites == ("GRU input", "GRU output")
    assert cited.sites == ("words", *plain.sites)
    assert (plain.optimiser.weight_decay, cited.optimiser.weight_decay) == (1e-3, 2e-3)
    assert cited.sizes == plain.sizes


def test_a_changed_layer_brings_the_paper_s_parameters() -> None:
    start = Settings("mnist-mlp", "torch", rate=0.4, alpha=3.0, seed=7)
    assert start.but(layer="dropout").rate == 0.2
    assert start.but(layer="dropout", rate=0.3).rate == 0.3
    assert start.but(layer="none").but(layer="qsd") == Settings("mnist-mlp", "torch", seed=7)
    assert start.but(seed=8).alpha == 3.0
    open_questions = Settings("mnist-mlp", "torch", unit_mean=True, shared_p=True)
    assert open_questions.but(layer="dropout") == Settings("mnist-mlp", "torch", layer="dropout")
