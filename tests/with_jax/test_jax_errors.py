"""One form of error for whatever is wrong: the argument, what was expected, what was received."""

import functools
import re

import equinox as eqx
import haiku as hk
import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax import numpy as jnp

import quantal
import quantal.jax.equinox
import quantal.jax.haiku
import quantal.jax.linen
import quantal.jax.nnx

X, KEY = jnp.ones((2, 4)), jax.random.key(0)
ARRAYS = [
    jnp.ones(2), jnp.arange(2), jnp.array(0.5), jnp.array(2), jnp.array(True), jnp.array(1j), KEY,
    jax.random.split(KEY), jnp.zeros(3, jnp.uint32), jax.ShapeDtypeStruct((2,), int), nnx.Linear,
    nnx.Rngs(0), nnx.Rngs(params=0), [np.array(0)],
]  # fmt: skip

LAW = {"rate": 0.5, "alpha": 1.0, "vary": "pq", "unit_mean": False}
AXES = {"broadcast_dims": (), "p_broadcast_dims": ()}
CHOICE = {"alpha": 1.0, "include": None, "exclude": None, "strict": True}
PREDICT = {"x": X, "n": 2, "key": KEY, "native": False, "output": None, "samples": False}
TRANSFORMED = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, x))


def native():
    return nnx.Sequential(nnx.Dropout(0.5, rngs=nnx.Rngs(0)))


def in_nnx(x, call_deterministic, call_rngs, **options):
    layer = quantal.jax.nnx.QSD(**options)
    return layer(x, deterministic=call_deterministic, rngs=call_rngs)


def in_linen(x, call_deterministic, rng, **options):
    return quantal.jax.linen.QSD(**options).apply({}, x, call_deterministic, rng)


def in_equinox(x, key, call_inference, **options):
    return quantal.jax.equinox.QSD(**options)(x, key=key, inference=call_inference)


def entering(masks_on, model, **options):
    with masks_on(model, **options):
        pass


def of_linen(function, **options):
    return function(options.pop("module"), options.pop("variables"), **options)


# Every public function of this wing, with arguments that are right.
CALLS = {
    "dilute": (quantal.jax.dilute, {"x": X, "key": KEY, "training": True, **LAW, **AXES}),
    "coefficients": (
        quantal.jax.coefficients,
        {"dilution": quantal.Dilution(0.5, 1.0), "mask_shape": (2,), "p_shape": None, "key": KEY},
    ),
    "law": (quantal.jax.law, {**LAW, "shared_p": False}),
    "nnx.QSD": (
        in_nnx,
        {
            "x": X, "call_deterministic": None, "call_rngs": KEY, "deterministic": False,
            "rng_collection": "dropout", "rngs": None, **LAW, **AXES,
        },
    ),
    "nnx.convert": (
        lambda **k: quantal.jax.nnx.convert(**{"model": native()} | k),
        {"example": X, **CHOICE},
    ),
    "nnx.convert of": (quantal.jax.nnx.convert, {"model": nnx.Dropout(0.5), "alpha": 1.0}),
    "nnx.revert": (quantal.jax.nnx.revert, {"model": native()}),
    "nnx.sites": (quantal.jax.nnx.sites, {"model": native(), "example": X}),
    "nnx.masks_on": (
        functools.partial(entering, quantal.jax.nnx.masks_on),
        {"model": quantal.jax.nnx.convert(native(), 1.0), "native": False},
    ),
    "nnx.predict_mc": (
        quantal.jax.nnx.predict_mc,
        {"model": quantal.jax.nnx.convert(native(), 1.0), "call": None, **PREDICT},
    ),
    "linen.QSD": (
        in_linen,
        {
            "x": X, "call_deterministic": None, "rng": KEY, "deterministic": False, **LAW, **AXES,
        },
    ),
    "linen.convert": (
        quantal.jax.linen.convert, {"module": nn.Dropout(0.5), "example": (X, False), **CHOICE},
    ),
    "linen.revert": (quantal.jax.linen.revert, {"module": nn.Dropout(0.5)}),
    "linen.sites": (quantal.jax.linen.sites, {"module": nn.Dropout(0.5), "example": (X, False)}),
    "linen.intercept": (quantal.jax.linen.intercept, CHOICE),
    "linen.masks_on": (
        functools.partial(entering, quantal.jax.linen.masks_on),
        {"model": nn.Dropout(0.5), "native": False},
    ),
    "linen.predict_mc": (
        functools.partial(of_linen, quantal.jax.linen.predict_mc),
        {"module": quantal.jax.linen.QSD(0.5, 1.0, deterministic=True), "variables": {}, **PREDICT},
    ),
    "equinox.QSD": (
        in_equinox,
        {
            "x": X, "key": KEY, "call_inference": None, "inference": False,
            **AXES, "p": 0.5, "alpha": 1.0, "vary": "pq", "unit_mean": False,
        },
    ),
    "equinox.convert": (
        quantal.jax.equinox.convert, {"model": eqx.nn.Dropout(0.5), "example": X, **CHOICE},
    ),
    "equinox.revert": (quantal.jax.equinox.revert, {"model": eqx.nn.Dropout(0.5)}),
    "equinox.sites": (quantal.jax.equinox.sites, {"model": eqx.nn.Dropout(0.5), "example": X}),
    "equinox.masks_on": (
        functools.partial(entering, quantal.jax.equinox.masks_on),
        {"model": quantal.jax.equinox.QSD(0.5, 1.0), "native": False},
    ),
    "equinox.predict_mc": (
        quantal.jax.equinox.predict_mc,
        {"model": quantal.jax.equinox.QSD(0.5, 1.0), "call": None, **PREDICT},
    ),
    "haiku.dropout": (quantal.jax.haiku.dropout, {"rng": KEY, "x": X, **LAW, **AXES}),
    "haiku.convert": (quantal.jax.haiku.convert, {"model": TRANSFORMED, "example": X, **CHOICE}),
    "haiku.revert": (quantal.jax.haiku.revert, {"model": TRANSFORMED}),
    "haiku.sites": (quantal.jax.haiku.sites, {"model": TRANSFORMED, "example": X}),
}  # fmt: skip
CASES = [(name, argument) for name, (_, right) in CALLS.items() for argument in right]

# An argument may be another name of what the message is about, or a part of it.
ALSO = {"p": ["rate"], "model": ["module", "model"], "rng": ["key"], "call_rngs": ["rngs", "key"]}
# What is no mistake of this package's arguments: the model is run with inputs that are wrong.
RUNS_THE_MODEL = {"example", "x", "variables"}
# Functions of the caller's, which may raise whatever they like.
FUNCTIONS = {"alpha", "include", "exclude", "call", "output", "example"}
# These say what there is, in several lines, or are the words of the library.
OTHER = re.compile(
    "no dropout to swap|dropout that convert cannot swap|No `deterministic` argument"
    '|no `rngs` argument|`deterministic` is False|Parameter "deterministic"|needs PRNG'
)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_right_works(name):
    function, right = CALLS[name]
    function(**right)


# Whatever is wrong, the libraries may warn of it, too.
@pytest.mark.filterwarnings("ignore:Python iterable type:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_what_is_wrong_is_said_in_one_form(name, argument, hostile):
    function, right = CALLS[name]
    about = "|".join([argument.removeprefix("call_"), *ALSO.get(argument, [])])
    runs_the_model = argument in RUNS_THE_MODEL and not (argument == "x" and "predict" not in name)
    about = r"\w+" if runs_the_model else about
    form = re.compile(rf"({about}): expected .*\. Received: ", re.DOTALL)
    for wrong in hostile + ARRAYS:
        if callable(wrong) and argument in FUNCTIONS:
            continue
        error = error_of(function, right | {argument: wrong})
        if error is None or form.match(str(error)) or OTHER.search(str(error)):
            continue
        assert runs_the_model, f"{argument} of {type(wrong)}: {error!r}"
        raised_here = "quantal/jax" in last_file(error) and "__call__()" not in str(error)
        assert not raised_here, f"{argument} of {type(wrong)}: {error!r}"


def error_of(function, arguments):
    try:
        function(**arguments)
    except Exception as error:
        return error
    return None


def last_file(error):
    """The file in which an error was raised."""
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename


def test_a_wrong_attribute_is_found_when_the_layer_is_called():
    layer = quantal.jax.nnx.QSD(0.5, 1.0)
    for name in ("rate", "alpha", "vary", "unit_mean", "deterministic"):
        before = getattr(layer, name)
        setattr(layer, name, "x")
        with pytest.raises((TypeError, ValueError), match=rf"{name}: expected .*Received"):
            layer(X, rngs=KEY)
        setattr(layer, name, before)


def test_a_function_of_nothing_is_no_example():
    for module, model in ((quantal.jax.nnx, native()), (quantal.jax.haiku, TRANSFORMED)):
        with pytest.raises(TypeError, match="example: expected inputs, or a function of the model"):
            module.sites(model, example=lambda: X)


@pytest.mark.parametrize("half", [np.float32(0.5), np.array(0.5), jnp.array(0.5)])
def test_numbers_of_every_kind_are_numbers(half):
    want = quantal.jax.dilute(X, 0.5, 1.0, key=KEY)
    assert jnp.array_equal(quantal.jax.dilute(X, half, 1.0, key=KEY), want)
    assert jnp.array_equal(quantal.jax.nnx.QSD(half, 1.0)(X, rngs=KEY), want)
    assert jnp.array_equal(quantal.jax.equinox.QSD(half, 1.0)(X, key=KEY), want)
    assert jnp.array_equal(quantal.jax.haiku.dropout(KEY, half, X, alpha=1.0), want)
    linen = quantal.jax.linen.QSD(half, 1.0, deterministic=False)
    assert jnp.array_equal(linen.apply({}, X, None, KEY), want)
