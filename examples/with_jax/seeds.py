"""The seeds of one condition trained together: one step, mapped over their states."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from examples.data import Batch
from examples.run import Run
from examples.with_jax.devices import Place, at_work, check
from examples.with_jax.feed import joined
from examples.with_jax.steps import Plan, State, steps
from examples.with_jax.train import Trainer
from quantal._errors import wrong_value

__all__ = ["check", "train_seeds"]


def train_seeds(runs: Sequence[Run]) -> None:
    """Train runs that differ only in their seeds, each in its own folder, from where it stands.

    Each has its own weights, batches and masks, and the results of a run alone. Where seeds differ
    in the number of batches, the last of an epoch are trained alone; a run that was ahead of the
    others when all were stopped waits for them.
    """
    _check(runs)
    with at_work(runs[0]) as place:
        _warn_if_slower(runs[0], place)
        trainers = [Trainer(run, place) for run in runs]
        states = [trainer.start() for trainer in trainers]
        train = _compiled(trainers[0].plan)
        for epoch in range(min(run.first_epoch for run in runs), runs[0].epochs):
            now = [n for n, run in enumerate(runs) if run.first_epoch <= epoch]
            begun = [trainers[n].begin(states[n], epoch) for n in now]
            state, keys, _ = jax.tree.map(lambda *parts: jnp.stack(parts), *begun)
            rate = begun[0][2]
            feeds = [runs[n].batches(epoch) for n in now]
            common = min(runs[n].steps for n in now)
            shared = (islice(feed, common) for feed in feeds)
            joint = (_stack(batches) for batches in zip(*shared, strict=True))
            for first, count, batches, _ in joined(joint, trainers[0].feed.length):
                batches = place.everywhere(batches)
                state, costs = train(state, batches, None, np.int32(count), keys, rate)
                for n, own_costs in zip(now, np.asarray(costs), strict=True):
                    for number, cost in enumerate(own_costs[:count], first):
                        runs[n].step(epoch, number, cost)
            for slot, n in enumerate(now):
                own: State = jax.tree.map(lambda leaf, slot=slot: leaf[slot], state)
                rest = trainers[n].feed.portions(feeds[slot], common)
                states[n] = trainers[n].go(own, rest, keys[slot], rate, epoch)
                trainers[n].record(states[n], epoch)
        for trainer, state in zip(trainers, states, strict=True):
            trainer.finish(state)


@cache
def _compiled(plan: Plan) -> Any:
    # Batches have the steps along their first axis, then the seeds.
    axes = (0, 1, None, None, 0, None)
    return jax.jit(jax.vmap(partial(steps, plan), axes), donate_argnums=0)


def _stack(batches: Sequence[Batch]) -> Batch:
    return jax.tree.map(lambda *parts: np.stack(parts), *batches)


def _warn_if_slower(run: Run, place: Place) -> None:
    if place.on_cpu and run.experiment.model in ("lenet5", "wrn"):
        # XLA makes grouped convolutions of them, which it has no fast code for on CPUs.
        warnings.warn(
            "--vmap-seeds: on a CPU, the convolutions of several seeds at once are slower than one "
            "seed after another, 2.8 times where it was measured: better without it",
            stacklevel=3,
        )


def _check(runs: Sequence[Run]) -> None:
    conditions = {run.settings.but(seed=0) for run in runs}
    if len(conditions) != 1:
        raise wrong_value("runs", "at least one, all equal but for their seeds", conditions)
    if runs[0].settings.devices > 1:
        raise wrong_value("devices", "1 for seeds trained together", runs[0].settings.devices)
