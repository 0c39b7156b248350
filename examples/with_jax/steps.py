"""What is compiled: training steps and one evaluation step for all experiments.

Pure functions of arrays, so that they can be mapped over seeds, shared between devices and lowered
for a machine that is not there.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import optax
from flax import nnx
from jax import lax
from jax import numpy as jnp

from examples.data import Batch
from examples.experiments import Optimiser

__all__ = ["Plan", "State", "Steps", "compiled", "optimiser", "steps"]


class Plan(NamedTuple):
    """What the code of a step depends on."""

    graph: nnx.GraphDef
    optimiser: Optimiser
    cost: str
    costs_per_sample: int = 1


class State(NamedTuple):
    """What a step changes: ``count`` is the number of all steps, ``total`` their costs' sum."""

    params: nnx.State
    stats: nnx.State
    moments: optax.OptState
    carry: Any = ()
    count: Any = 0
    total: Any = 0.0


class Steps(NamedTuple):
    """The compiled functions of a plan."""

    train: Any
    evaluate: Any
    outputs: Any


@cache
def compiled(plan: Plan) -> Steps:
    """Compile the functions of a plan when they are first called; once for all its runs."""
    return Steps(
        jax.jit(partial(steps, plan), donate_argnums=0),
        jax.jit(partial(evaluate, plan), donate_argnums=1),
        jax.jit(partial(outputs, plan), static_argnames="masks"),
    )


def steps(
    plan: Plan,
    state: State,
    batches: Any,
    samples: Batch | None,
    count: jax.Array,
    keys: jax.Array,
    rate: jax.Array,
) -> tuple[State, jax.Array]:
    """Train on batches, one after another; return the new state and the cost of each step.

    Parameters
    ----------
    plan : Plan
        The model and how it learns.
    state : State
        Where it stands.
    batches : Batch or jax.Array
        Inputs and targets, or else the numbers of the samples; the steps along the first axis.
    samples : Batch or None
        All samples, where ``batches`` are numbers of them.
    count : jax.Array
        How many steps to do. An argument, not a shape: one program serves a part of the batches.
    keys : jax.Array
        A key for each site; each step folds in its number.
    rate : jax.Array
        The learning rate.
    """

    def one(number: jax.Array | int, done: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
        before, costs = done
        batch = jax.tree.map(lambda parts: parts[number], batches)
        if samples is not None:
            batch = Batch(samples.x[batch], samples.y[batch])
        after, cost = step(plan, before, batch, keys, rate)
        # A loop keeps its types: half-precise states of a network are kept in those of the start.
        after = jax.tree.map(lambda new, old: new.astype(old.dtype), after, before)
        return after, costs.at[number].set(cost)

    length = len(jax.tree.leaves(batches)[0])
    begun = state, jnp.zeros(length, state.total.dtype)
    return one(0, begun) if length == 1 else lax.fori_loop(0, count, one, begun)


def step(
    plan: Plan, state: State, batch: Batch, keys: jax.Array, rate: jax.Array
) -> tuple[State, jax.Array]:
    """Train on a batch; return the new state and the cost."""
    own = jax.vmap(jax.random.fold_in, (0, None))(keys, state.count)

    def loss(params: nnx.State) -> tuple[jax.Array, tuple[jax.Array, nnx.State, Any]]:
        model = nnx.merge(plan.graph, params, state.stats, copy=True)
        model.train()
        predicted, carry = model(batch.x, state.carry, own)
        cost = _costs(plan, predicted, batch.y).mean()
        return cost * plan.costs_per_sample, (cost, nnx.state(model, nnx.BatchStat), carry)

    gradient, (cost, stats, carry) = jax.grad(loss, has_aux=True)(state.params)
    updates, moments = optimiser(plan.optimiser).update(gradient, state.moments, state.params)
    params = optax.apply_updates(state.params, optax.tree.scale(-rate, updates))
    return State(params, stats, moments, carry, state.count + 1, state.total + cost), cost


def evaluate(
    plan: Plan, state: State, sums: tuple[Any, jax.Array], batch: Batch, counts: jax.Array
) -> tuple[Any, jax.Array]:
    """Add a batch to sums: carry, and the sums of costs, of wrong answers and of their number.

    ``counts`` is 1 for a sample, 0 for what only fills the batch.
    """
    model = nnx.merge(plan.graph, state.params, state.stats)
    model.eval()
    carry, before = sums
    predicted, carry = model(batch.x, carry, [None] * len(model.sites))
    costs = _costs(plan, predicted, batch.y).reshape(len(counts), -1)  # of each word of a text
    wrong = jnp.full_like(costs, jnp.nan)
    if predicted.ndim == 2:
        wrong = (predicted.argmax(-1) != batch.y).astype(costs.dtype)[:, None]
    added = [counts @ each.sum(1) for each in (costs, wrong, jnp.ones_like(costs))]
    return carry, before + jnp.stack(added)


def outputs(
    plan: Plan, state: State, x: jax.Array, carry: Any, keys: jax.Array, *, masks: bool
) -> tuple[list[jax.Array], Any]:
    """Return what leaves each site and probe, and the next carry; BatchNorm as in evaluation."""
    model = nnx.merge(plan.graph, state.params, state.stats)
    model.eval()
    if masks:
        model.set_attributes(nnx.Dropout, deterministic=False)
    seen: list[jax.Array] = []

    def watched(layer: Any) -> Any:
        def call(x: jax.Array, **options: Any) -> jax.Array:
            seen.append(layer(x, **options))
            return seen[-1]

        return call

    model.sites = nnx.static([watched(site) for site in model.sites])
    model.probe = nnx.static(watched(model.probe))
    _, carry = model(x, carry, jax.vmap(jax.random.fold_in, (0, None))(keys, state.count))
    return seen, carry


def optimiser(kind: Optimiser) -> optax.GradientTransformation:
    """Return the transformation of a gradient into what the learning rate multiplies."""
    parts = []
    if kind.clip is not None:
        parts.append(optax.clip_by_global_norm(kind.clip))
    if kind.weight_decay:
        parts.append(optax.add_decayed_weights(kind.weight_decay))
    if kind.momentum:
        parts.append(optax.trace(kind.momentum, kind.nesterov))
    if kind.kind == "adam":
        parts.append(optax.scale_by_adam())
    return optax.chain(*parts)


def _costs(plan: Plan, predicted: jax.Array, y: Any) -> jax.Array:
    predicted = predicted.astype(jnp.promote_types(predicted.dtype, jnp.float32))
    if plan.cost == "squared error":
        return jnp.square(predicted - y)
    return optax.softmax_cross_entropy_with_integer_labels(predicted, y)
