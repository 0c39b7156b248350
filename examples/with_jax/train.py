"""The training loop of all experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax import numpy as jnp
from numpy.typing import NDArray

from examples import initial
from examples.data import Batch
from examples.run import Run
from examples.with_jax.checkpoint import restore, save
from examples.with_jax.devices import Place, at_work, check
from examples.with_jax.feed import Feed, Portion
from examples.with_jax.models import build
from examples.with_jax.steps import Plan, State, compiled, optimiser
from examples.with_jax.weights import dump, load
from quantal.jax._random_bits import typed_key

__all__ = ["Trainer", "check", "train"]


def train(run: Run) -> None:
    """Train to the end, from where the run stands."""
    with at_work(run) as place:
        trainer = Trainer(run, place)
        state = trainer.start()
        for epoch in range(run.first_epoch, run.epochs):
            state, keys, rate = trainer.begin(state, epoch)
            state = trainer.go(state, trainer.feed.epoch(epoch), keys, rate, epoch)
            trainer.record(state, epoch)
        trainer.finish(state)


class Trainer:
    """What a run needs around its steps."""

    def __init__(self, run: Run, place: Place) -> None:
        self.run, self.place = run, place
        self.model = build(run.experiment, run.settings)
        graph = nnx.graphdef(self.model)
        paper = run.experiment
        self.plan = Plan(graph, paper.optimiser, paper.cost, paper.costs_per_sample)
        self.steps = compiled(self.plan)
        self.feed = Feed(run, place)

    def start(self) -> State:
        """Return the state to go on with."""
        load(self.model, initial.weights(self.run.experiment, self.run.settings.seed))
        parts: tuple[Any, ...] = nnx.split(self.model, nnx.Param, nnx.BatchStat)
        _, params, stats = parts
        state = State(params, stats, optimiser(self.plan.optimiser).init(params))
        if self.run.checkpoint is not None:
            state = State(*restore(self.run.checkpoint, state[:3]))
        return self.place.everywhere(state)

    def begin(self, state: State, epoch: int) -> tuple[State, jax.Array, jax.Array]:
        """Return state, keys and learning rate at the start of an epoch."""
        state = state._replace(
            carry=self.place.divided(self.model.start(self.run.experiment.batch)),
            count=self.place.everywhere(jnp.uint32(epoch * self.run.steps)),
            total=self.place.everywhere(jnp.zeros(())),
        )
        rate = jnp.asarray(self.run.learning_rate(epoch))
        return state, self.keys(epoch), self.place.everywhere(rate)

    def go(
        self,
        state: State,
        portions: Iterable[Portion],
        keys: jax.Array,
        rate: jax.Array,
        epoch: int,
    ) -> State:
        """Train on portions of batches."""
        before = None
        for portion in portions:
            _, count, batches, samples = portion
            state, costs = self.steps.train(state, batches, samples, np.int32(count), keys, rate)
            # Told one portion late: to look at a cost waits for the device, which is busy then.
            self.tell(epoch, before)
            before = portion, costs
        self.tell(epoch, before)
        return state

    def tell(self, epoch: int, done: tuple[Portion, jax.Array] | None) -> None:
        """Tell of the steps of a portion."""
        if done is None:
            return
        portion, costs = done
        for number, cost in enumerate(np.asarray(costs)[: portion.steps], portion.first):
            self.run.step(epoch, number, cost)

    def keys(self, epoch: int) -> jax.Array:
        """Return a key for each site."""
        if self.run.settings.stream == "portable":
            keys = jnp.stack([typed_key(key) for key in self.run.keys])
        else:
            key = jax.random.key(self.run.stream_seed(epoch))
            keys = jax.random.split(key, len(self.run.experiment.sites))
        return self.place.everywhere(keys)

    def record(self, state: State, epoch: int) -> None:
        """Evaluate, and end an epoch."""
        evaluated = {part: self.evaluate(state, part) for part in self.run.parts}
        cost = float(state.total) / self.run.steps
        self.run.record(epoch, cost, evaluated, partial(save, tree=state[:3]))

    def evaluate(self, state: State, part: str) -> tuple[float, float]:
        """Return the mean cost and the share of wrong answers."""
        sums: Any = None
        for batch in self.run.evaluation(part):
            if sums is None:  # the first batch is the largest
                size = self.place.fill(len(batch.x))
                carry = self.place.divided(self.model.start(size))
                sums = (carry, self.place.everywhere(jnp.zeros(3)))
            filled = self.place.divided(_filled(batch, size))
            sums = self.place.settled(self.steps.evaluate(state, sums, *filled))
        cost, wrong, count = map(float, sums[1])
        return cost / count, wrong / count

    def finish(self, state: State) -> None:
        """End the run."""
        self.run.finish(self.outputs(state), dump(state.params))

    def outputs(self, state: State) -> Callable[[Iterable[NDArray], bool], Iterator[list[NDArray]]]:
        """Return the function from inputs to the outputs of the sites; each batch has new masks."""
        keys, calls = self.keys(self.run.epochs), count(self.run.epochs * self.run.steps)

        def site_outputs(inputs: Iterable[NDArray], masks: bool) -> Iterator[list[NDArray]]:
            carry = None
            for x in inputs:
                carry = self.model.start(len(x)) if carry is None else carry
                call = state._replace(count=jnp.uint32(next(calls)))
                given = self.place.everywhere((x, carry))
                seen, carry = self.steps.outputs(call, *given, keys, masks=masks)
                yield [np.asarray(output, np.float32) for output in seen]

        return site_outputs


def _filled(batch: Batch, size: int) -> tuple[Batch, NDArray]:
    """Fill a batch up to a size; return also what counts in it."""
    missing = size - len(batch.x)
    filled = [np.pad(part, [(0, missing)] + [(0, 0)] * (part.ndim - 1)) for part in batch]
    return Batch(*filled), (np.arange(size) < len(batch.x)).astype(np.float32)
