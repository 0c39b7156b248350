"""Bad arguments of every public function and layer of torch: one form of error, or they work."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import quantal
from quantal.torch import (
    QSD,
    QSD1d,
    QSD2d,
    QSD3d,
    convert,
    dilute,
    masks_on,
    predict_mc,
    revert,
    sites,
)

LAW = {"alpha": 1.0, "vary": "pq", "unit_mean": False}
AXES = {"broadcast_dims": (), "p_broadcast_dims": ()}
X = torch.ones(2, 3)


def called(layer, x, training=True):
    return layer.train(training)(x)


def on_layer(kind, shape, training):
    def make_and_call(**arguments):
        return kind(**arguments).train(training)(torch.ones(shape))

    return make_and_call


def setting(name):
    def set_and_call(value):
        layer = QSD(0.5, 1.0)
        setattr(layer, name, value)
        repr(layer)
        layer(X)
        layer.eval()(X)

    return set_and_call


def entered(model, native):
    with masks_on(model, native=native):
        pass


def native():
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))


def sparse(layout, x=X):
    with warnings.catch_warnings():  # of layouts whose support torch calls a beta
        warnings.simplefilter("ignore")
        return x.to_sparse(layout=layout)


CALL = {"inplace": False, "generator": None, **LAW}
# Every public function, with arguments that are right; each of them is then wrong in turn.
CALLS = {
    "dilute": (
        dilute,
        {"x": X, "rate": 0.5, "training": True, **CALL, **AXES},
    ),
    "dilute in evaluation": (
        dilute,
        {"x": X, "rate": 0.5, "training": False, **CALL, **AXES},
    ),
    "dilute at rate 0": (dilute, {"x": X, "rate": 0.0, **CALL, **AXES}),
    "dilute at rate 1": (dilute, {"x": X, "rate": 1.0, **CALL, **AXES}),
    **{
        f"QSD, training={training}": (
            on_layer(QSD, (2, 3), training), {"p": 0.5, **CALL, **AXES},
        )
        for training in (True, False)
    },
    "QSD by rate": (on_layer(QSD, (2, 3), True), {"rate": 0.5, "alpha": 1.0}),
    **{
        kind.__name__: (
            on_layer(kind, shape, True), {"p": 0.5, **CALL, "p_broadcast_dims": ()},
        )
        for kind, shape in ((QSD1d, (2, 3, 4)), (QSD2d, (2, 3, 4, 4)), (QSD3d, (2, 3, 2, 2, 2)))
    },
    **{
        f"layer.{name}": (setting(name), {"value": right})
        for name, right in {
            "p": 0.5, "rate": 0.5, "alpha": 1.0, "dilution": quantal.Dilution(0.5, 1.0),
            "generator": None, "calls": 0, "inplace": False, **AXES,
        }.items()
    },
    "layer(x)": (lambda x: QSD(0.5, 1.0)(x), {"x": X}),
    "layer.eval()(x)": (lambda x: QSD(0.5, 1.0).eval()(x), {"x": X}),
    "convert": (
        lambda **given: convert(**{"model": native()} | given),
        {"alpha": 1.0, "include": None, "exclude": None, "strict": True},
    ),
    "convert of": (
        lambda **given: revert(convert(**given)), {"model": nn.Dropout(0.5), "alpha": 1.0},
    ),
    "revert": (revert, {"model": native()}),
    "sites": (sites, {"model": native()}),
    "masks_on": (entered, {"model": QSD(0.5, 1.0), "native": False}),
    "predict_mc": (
        predict_mc,
        {
            "model": QSD(0.5, 1.0), "x": X, "n": 2, "native": False, "output": None,
            "samples": False,
        },
    ),
}  # fmt: skip
PLACES = [(call, name) for call, (_, right) in CALLS.items() for name in right]
PLACES.remove(("predict_mc", "x"))  # whatever the model makes of it
# Functions of the caller's, which may raise and return whatever they like.
FUNCTIONS = {"alpha", "include", "exclude", "output"}
TENSORS = [
    torch.tensor(0.5), torch.tensor(2), torch.tensor(True), torch.tensor(1j), torch.tensor([0, 1]),
    torch.tensor([0, 5]), torch.ones(2, 3), torch.ones(2, 3).to(torch.float8_e5m2), torch.float32,
    torch.Generator(), torch.device("cpu"), nn.Linear, nn.Linear(3, 3),
    *map(sparse, (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)),
    X.to_mkldnn() if torch.backends.mkldnn.is_available() else X,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::quantal.sites.UnreachedWarning")
@pytest.mark.parametrize(("call", "name"), PLACES)
def test_one_form_for_every_hostile_argument(call, name, hostile, complaint):
    function, right = CALLS[call]
    said = []
    for wrong in hostile + TENSORS:
        if name in FUNCTIONS and callable(wrong):
            continue
        told = complaint(function, **right | {name: wrong})
        # A choice of sites that leaves none is no bad argument.
        if told and not told.startswith("ValueError: no dropout to swap"):
            said.append((type(wrong), told))
    assert not said, said


@pytest.mark.parametrize("call", CALLS)
def test_what_is_right_works_and_something_is_refused(call):
    function, right = CALLS[call]
    function(**right)
    with pytest.raises((TypeError, ValueError), match=r"^\w+: expected .* Received: "):
        function(**right | {next(iter(right)): object()})


def test_a_tensor_without_a_value_is_no_number():
    for name in ("rate", "alpha"):
        with pytest.raises(TypeError, match=f"{name}: expected a number"):
            dilute(X, **{"rate": 0.5, "alpha": 1.0} | {name: torch.ones((), device="meta")})


def test_what_has_a_value_for_each_example_is_no_number():
    for name in ("rate", "alpha"):
        right = {"rate": 0.5, "alpha": 1.0}
        batched = torch.func.vmap(lambda n, name=name, right=right: dilute(X, **right | {name: n}))
        with pytest.raises(TypeError, match=f"{name}: expected a number"):
            batched(torch.ones(2))


@pytest.mark.parametrize("rate", [0.5, 1.0])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_of_two_kinds_are_diluted(layout, inplace, rate):
    x = torch.eye(40) + 1
    x[20:] = 0
    key, packed = quantal.key(0), sparse(layout, x)
    y = dilute(packed, rate, 1.0, generator=key, inplace=inplace)
    assert y.layout is layout
    assert (y is packed) == inplace
    assert torch.equal(y.to_dense(), dilute(x, rate, 1.0, generator=key))


@pytest.mark.parametrize("name", ["p", "rate", "alpha", "dilution", "calls", "generator", *AXES])
def test_a_layers_attribute_is_no_module(name):
    layer = QSD(0.5, 1.0)
    with pytest.raises(TypeError, match=r"^\w+: expected .* Received: \w+=Linear"):
        setattr(layer, name, nn.Linear(3, 3))
    assert not list(layer.children())


@pytest.mark.parametrize("wrong", ["x", 7, nn.Parameter(X), nn.Buffer(X)], ids=type)
def test_a_wrong_generator_is_refused_when_it_is_set(wrong):
    layer = QSD(0.5, 1.0)
    with pytest.raises(TypeError, match=r"^generator: expected a torch.Generator, .* Received: "):
        layer.generator = wrong
    assert layer.generator is None
    assert not {**layer._parameters, **layer._buffers}


def test_a_masked_number_is_none():
    for wrong in (np.ma.masked, np.ma.masked_array(0.5, True)):
        with pytest.raises((TypeError, ValueError), match="rate: expected a number"):
            dilute(X, wrong, 1.0)


def test_a_parameter_is_the_number_in_it():
    layer = QSD(0.5, 1.0)
    layer.p, layer.alpha = nn.Parameter(torch.tensor(0.25)), nn.Parameter(torch.tensor(2.0))
    assert layer.dilution == quantal.Dilution(0.25, 2.0)
    assert not list(layer.parameters())


@pytest.mark.parametrize("wrong", [torch.tensor(True), torch.tensor([True])])
def test_a_truth_value_is_no_integer(wrong):
    for name, call in (
        ("broadcast_dims", lambda: dilute(X, 0.5, 1.0, broadcast_dims=wrong)),
        ("p_broadcast_dims", lambda: QSD(0.5, 1.0, p_broadcast_dims=wrong)),
        ("calls", lambda: setattr(QSD(0.5, 1.0), "calls", wrong)),
        ("n", lambda: predict_mc(QSD(0.5, 1.0), X, wrong)),
    ):
        with pytest.raises(TypeError, match=f"^{name}: expected .* Received: {name}="):
            call()


@pytest.mark.parametrize("axes", [np.array([0, 1]), [0, 1], torch.tensor([0, 1]), range(2)])
@pytest.mark.parametrize("name", list(AXES))
def test_axes_in_any_sequence(name, axes):
    drawn = [
        make(axes)
        for axes in (axes, (0, 1))
        for make in (
            lambda axes: dilute(X, 0.5, 1.0, generator=quantal.key(3), **{name: axes}),
            lambda axes: QSD(0.5, 1.0, generator=quantal.key(3), **{name: axes})(X),
        )
    ]
    assert torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3])
