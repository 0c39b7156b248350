"""``example=``: a training pass that is watched shows what no other way of looking finds."""

import functools

import keras
import numpy as np
import pytest
from keras import layers, ops
from zoo import MODELS, example, sequence

from quantal.keras import QSD, convert, sites
from quantal.sites import UnreachedWarning

BACKEND = keras.backend.backend()


def numpy(x):
    return ops.convert_to_numpy(x)


def hide(function):
    """Keep a function from being found by reading: what calls it has no source."""
    return eval("lambda *args, **kwargs: hidden(*args, **kwargs)", {"hidden": function})


SEEDS = keras.random.SeedGenerator(1)
UNTRACKED = layers.Dropout(0.25)


class Hidden(layers.Layer):
    """A layer whose dropout only a training pass shows."""

    def __init__(self, how, **kwargs):
        super().__init__(**kwargs)
        self.how = how

    def call(self, x, training=None):
        return self.how(x) if training else x


def by_eval(x):
    return eval("keras.random.dropout(x, 0.25, seed=SEEDS)")


def by_hand(x):
    mask = keras.random.uniform(ops.shape(x), seed=SEEDS) >= 0.25
    return x * ops.cast(mask, x.dtype) / 0.75


def by_rounding(x):
    return x * ops.round(keras.random.uniform((ops.shape(x)[0], 1, 1), seed=SEEDS)) * 2


def by_a_layer(x):
    return getattr(UNTRACKED, "".join(["ca", "ll"]))(x, training=True)


def by_the_backend(x):
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return getattr(tf.nn, "drop" + "out")(x, 0.25)
    if BACKEND == "torch":
        import torch

        return getattr(torch, "drop" + "out")(x, 0.25, True)
    import jax

    keep = getattr(jax.random, "bernou" + "lli")(jax.random.key(0), 0.75, x.shape)
    return ops.where(keep, x / 0.75, 0)


WAYS = {
    "eval": (by_eval, "dropout"),
    "by hand": (by_hand, "random mask"),
    "rounding": (by_rounding, "random mask"),
    "a layer": (by_a_layer, "Dropout"),
    "the backend": (by_the_backend, None),
    "a partial": (functools.partial(by_eval), "dropout"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_only_a_pass_shows(way):
    how, kind = WAYS[way]
    model = sequence(layers.Dense(4), Hidden(hide(how)), layers.Dropout(0.5, name="last"))
    x = example(model)
    assert len(sites(model)) == 1  # by looking alone
    found = sites(model, example=x)
    (odd,) = [site for site in found if site.unreached]
    assert odd.name.startswith("test_keras_example.py:")
    assert "it draws a mask of its own in by_" in odd.unreached
    if kind:
        assert odd.kind == kind
    assert np.isnan(odd.rate) or odd.rate == 0.25
    with pytest.raises(ValueError, match=r"cannot swap(?s:.)*test_keras_example\.py:\d+"):
        convert(model, 1.0, example=x)
    assert [site.alpha for site in sites(model)] == [None]
    with pytest.warns(UnreachedWarning, match="a mask of its own"):
        convert(model, 1.0, example=x, strict=False)
    assert [site.alpha for site in sites(model)] == [1.0]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_swapped_whole_passes(name):
    model = MODELS[name]()
    x = example(model)
    assert sites(model, example=x) == sites(model)
    convert(model, 0.2, example=x)
    assert {site.alpha for site in sites(model, example=x)} == {0.2}


def test_what_is_known_is_not_named_twice():
    class Inline(layers.Layer):
        def call(self, x, training=None):
            return keras.random.dropout(x, 0.25, seed=SEEDS) if training else x

    class Own(layers.Dropout):
        def call(self, inputs, training=False):
            return super().call(inputs, training=True)

    model = sequence(layers.Dense(4), Inline(), Own(0.5), layers.GaussianDropout(0.5))
    found = sites(model, example=example(model))
    assert [site.kind for site in found] == ["keras.random.dropout", "Own", "GaussianDropout"]


def test_a_known_place_does_not_hide_its_neighbour():
    class Two(layers.Layer):
        def call(self, x, training=None):
            def first():
                return keras.random.dropout(
                    x,
                    0.25,
                    seed=SEEDS,
                )

            if not training:
                return x
            return first() * ops.cast(keras.random.uniform((4,), seed=SEEDS) < 0.5, x.dtype)

    model = sequence(layers.Dense(4), Two(name="two"))
    found = sites(model, example=example(model))
    assert [(s.kind, s.name.partition(":")[0]) for s in found] == [
        ("keras.random.dropout", "two"),
        ("random mask", "test_keras_example.py"),
    ]


def with_a_module(alpha=None):
    """Return a layer that holds a module of the backend, and how many sites that has."""
    if BACKEND == "torch":
        import torch

        import quantal.torch

        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.25))
        if alpha:
            quantal.torch.convert(module, alpha)
        return layers.TorchModuleWrapper(module, output_shape=(None, 6, 4)), 1
    return layers.Dense(4), 0


def test_a_module_of_the_backend_is_named_by_looking():
    layer, count = with_a_module()
    model = sequence(layer, layers.Dropout(0.5))
    for given in (None, example(model)):
        found = [site for site in sites(model, example=given) if site.unreached]
        assert len(found) == count
        assert all("in a module of" in site.unreached for site in found)
    convert(model, 1.0, exclude=layer.name + "*")
    layer, count = with_a_module(2.0)
    model = sequence(layer, layers.Dropout(0.5))
    convert(model, 1.0, example=example(model))
    assert [site.alpha for site in sites(model)] == [2.0] * count + [1.0]


def test_other_random_layers_are_not_dropout():
    image = keras.Sequential([keras.Input((8, 8, 3)), layers.RandomFlip(), layers.GaussianNoise(1.0),
                              layers.RandomContrast(0.5), layers.Dropout(0.5)])  # fmt: skip
    found = sites(image, example=np.ones((2, 8, 8, 3), np.float32))
    assert [site.kind for site in found] == ["Dropout"]


def state(model):
    """Return everything that a pass could change."""
    variables = [numpy(v) for v in model.variables] + [numpy(SEEDS.state)]
    if BACKEND == "torch":
        import torch

        variables.append(torch.get_rng_state().numpy())
    attributes = [(type(layer), set(vars(layer))) for layer in model._flatten_layers()]
    return variables, attributes


@pytest.mark.parametrize("how", ["input", "function"])
def test_all_is_as_before(how):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [MODELS["functional"](), layers.Dense(4), MODELS["sequential"](), Hidden(hide(by_hand))]
    )
    convert(model, 2.0, include="*/dropout*", strict=False)
    x = example(model.layers[0])
    model(x[..., :4], training=True)
    model.compile("adam", "mse")
    before = state(model)
    given = x if how == "input" else lambda: model(x, training=True)
    first, second = (sites(model, example=given) for _ in range(2))
    assert first == second
    assert len([site for site in first if site.unreached]) == 1
    for ours, theirs in zip(before[0], state(model)[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert state(model)[1] == before[1]


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has to trace the function")
def test_a_function_that_trains():
    model = sequence(layers.Dense(4), Hidden(hide(by_hand)), layers.Dropout(0.5), layers.Dense(1))
    model.compile("adam", "mse")
    x = example(model)
    y = np.ones((len(x), 6, 1), np.float32)
    model.fit(x, y, verbose=0)
    before = [numpy(v) for v in (*model.variables, *model.optimizer.variables)]
    found = sites(model, example=lambda: model.fit(x, y, verbose=0))
    assert [bool(site.unreached) for site in found] == [False, True]
    after = [numpy(v) for v in (*model.variables, *model.optimizer.variables)]
    for ours, theirs in zip(before, after, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_pass_that_draws_nothing_is_no_proof():
    model = sequence(layers.Dense(4), layers.Dropout(0.5))
    x = example(model)
    with pytest.raises(ValueError, match="example: expected a training pass"):
        convert(model, 1.0, example=lambda: model(x, training=False))
    assert [site.alpha for site in sites(model)] == [None]


def test_noise_of_another_law_needs_no_mask():
    model = sequence(layers.Dense(4), layers.GaussianDropout(0.5, name="noise"))
    (site,) = sites(model, example=example(model))
    assert (site.name, site.kind) == ("noise", "GaussianDropout")
    with pytest.raises(ValueError, match=r"noise \(GaussianDropout\): .* another law"):
        convert(model, 1.0, example=example(model))


def test_a_model_that_is_not_built():
    model = keras.Sequential([layers.Dense(4), layers.Dropout(0.5)])
    x = np.ones((2, 3), np.float32)
    assert convert(model, 1.0, example=x).built
    assert isinstance(model.layers[1], QSD)
