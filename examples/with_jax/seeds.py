"""The seeds of one condition trained together: one step, mapped over their states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from examples.run import Run
from examples.with_jax.devices import at_work
from examples.with_jax.steps import Plan, State, step
from examples.with_jax.train import Trainer
from quantal._errors import wrong_value

__all__ = ["train_seeds"]


def train_seeds(runs: Sequence[Run]) -> None:
    """Train runs that differ only in their seeds, each in its own folder, from where it stands.

    Each has its own weights, batches and masks, and the results of a run alone. Where seeds differ
    in the number of batches, the last of an epoch are trained alone; a run that was ahead of the
    others when all were stopped waits for them.
    """
    _check(runs)
    with at_work(runs[0]) as place:
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
            for number in range(common):
                batch = jax.tree.map(lambda *parts: np.stack(parts), *map(next, feeds))
                state, costs = train(state, place.everywhere(batch), keys, rate)
                for n, cost in zip(now, costs, strict=True):
                    runs[n].step(epoch, number, cost)
            for slot, n in enumerate(now):
                own: State = jax.tree.map(lambda leaf, slot=slot: leaf[slot], state)
                rest = enumerate(feeds[slot], common)
                states[n] = trainers[n].go(own, rest, keys[slot], rate, epoch)
                trainers[n].record(states[n], epoch)
        for trainer, state in zip(trainers, states, strict=True):
            trainer.finish(state)


@cache
def _compiled(plan: Plan) -> Any:
    def together(*arguments: Any) -> tuple[State, list[jax.Array]]:
        state, costs = jax.vmap(partial(step, plan), (0, 0, 0, None))(*arguments)
        return state, list(costs)

    return jax.jit(together, donate_argnums=0)


def _check(runs: Sequence[Run]) -> None:
    conditions = {run.settings.but(seed=0) for run in runs}
    if len(conditions) != 1:
        raise wrong_value("runs", "at least one, all equal but for their seeds", conditions)
    if runs[0].settings.devices > 1:
        raise wrong_value("devices", "1 for seeds trained together", runs[0].settings.devices)
