"""QSD in the place of ``hk.dropout`` in an existing Haiku model, and back."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import haiku as hk
import jax

from quantal._arguments import flag
from quantal._errors import wrong_type
from quantal._selection import Alpha, Pattern, Place, Selection
from quantal.jax._example import Example, runner
from quantal.jax._watch import unknown_places
from quantal.jax.haiku._reroute import Rerouting, rerouted
from quantal.sites import Sites

__all__ = ["change_functions", "check_model", "convert", "revert", "sites"]

Model = TypeVar("Model")

_TRANSFORMED = (
    hk.Transformed,
    hk.TransformedWithState,
    hk.MultiTransformed,
    hk.MultiTransformedWithState,
)


def convert(
    model: Model,
    alpha: Alpha | None = None,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
    example: Example = None,
) -> Model:
    """Return a transformed function in which every ``hk.dropout`` that runs is QSD.

    Parameters, state, random keys and calls are the same as before.

    Parameters
    ----------
    model : hk.Transformed, hk.TransformedWithState, or their multi-transformed kin
        What ``hk.transform`` returns. It stays as it is.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Shell-style patterns of places such as ``"mlp/*"``, or functions of (place, None). Calls
        of dropout in a module are numbered: ``"mlp/dropout_0"``.
    strict : bool
        True: dropout that cannot be converted is an error. False: it is a warning.
    example : function or inputs, optional
        As in `sites`: proves that no dropout was missed. Without it, a model with nothing to swap
        is not reported.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> model = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, x))
    >>> converted = convert(model, alpha=1.0)
    >>> converted.apply({}, jax.random.PRNGKey(0), jnp.ones(4))
    Array([0.       , 0.       , 0.       , 3.7266526], dtype=float32)
    """
    check_model(model)
    selection = Selection(alpha, include, exclude, flag("strict", strict))
    if example is not None:
        selection.choose(_find_all_sites(model, example))
    return _with_qsd(model, selection)


def revert(model: Model) -> Model:
    """Return the transformed function as it was before `convert`.

    Examples
    --------
    >>> model = hk.transform(lambda x: x)
    >>> revert(convert(model, alpha=1.0)) == model
    True
    """
    check_model(model)
    return change_functions(lambda run: getattr(run, "before_qsd", run), model)


def sites(model: Any, *, example: Example = None) -> Sites:
    """List every place where a transformed function drops units, and what cannot be swapped.

    Parameters
    ----------
    model : hk.Transformed or its kin
        What ``hk.transform`` returns.
    example : function or inputs
        What a training pass is: it is traced, and every mask that it draws is seen, wherever it
        comes from. Inputs are a tuple of positional arguments, a dict of keyword arguments or a
        single array, and ``init`` is run with them; a function, such as
        ``lambda model: model.apply(params, rng, x, is_training=True)``, is given the model.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> model = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, x))
    >>> sites(convert(model, alpha=1.0), example=jnp.ones(4))
    name         kind  rate  alpha  mean gain
    ~/dropout_0  QSD   0.5   1      1.333
    1 site, 1 of them QSD
    """
    check_model(model)
    if example is None:
        expected = "inputs, or a function of the model: without running, nothing is known of it"
        raise wrong_type("example", expected, example)
    return Sites(place.site for place in _find_all_sites(model, example))


def _find_all_sites(model: Any, example: Example) -> list[Place]:
    """Return the places that a trace of an example passes through."""
    run, arrays = runner(example, _init)
    found: dict[str, Place] = {}

    def note(rerouting: Rerouting) -> None:
        for place in rerouting.places:
            found.setdefault(place.site.name, place)

    watched = change_functions(lambda run: _running(run, None, note), model)
    jax.eval_shape(functools.partial(run, watched), arrays)
    known = list(found.values())
    # Converts all that is left, since inner conversions take precedence.
    swapped = _with_qsd(model, Selection(1.0))
    return known + unknown_places(functools.partial(run, swapped), (arrays,), known)


def _init(model: Any, *args: Any, **kwargs: Any) -> Any:
    return model.init(jax.random.PRNGKey(0), *args, **kwargs)


def _with_qsd(model: Model, selection: Selection) -> Model:
    return change_functions(lambda run: _running(run, selection), model)


def _running(run: Any, selection: Selection | None, note: Any = None) -> Any:
    """Return a function that runs another one with ``hk.dropout`` rerouted."""

    @functools.wraps(run)
    def rerouting_run(*args: Any, **kwargs: Any) -> Any:
        rerouting = Rerouting(selection)
        with rerouted(rerouting, selection or object()):
            result = run(*args, **kwargs)
        if note is not None:
            note(rerouting)
        return result

    rerouting_run.before_qsd = run  # type: ignore[attr-defined]
    return rerouting_run


def change_functions(change: Any, model: Any) -> Any:
    """Return a transformed function whose ``init`` and ``apply`` are changed."""
    return model._replace(init=change(model.init), apply=jax.tree.map(change, model.apply))


def check_model(model: Any) -> None:
    """Raise if this is not a transformed function."""
    if not isinstance(model, _TRANSFORMED):
        raise wrong_type("model", "what hk.transform or its kin return", model)
