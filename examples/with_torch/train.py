"""The training loop of all experiments: python -m examples run mnist-mlp --backend torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from math import nan
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from examples import initial
from examples.experiments import Optimiser
from examples.run import Run
from examples.with_torch import weights
from examples.with_torch.models import build
from examples.with_torch.parallel import Team, check, team
from examples.with_torch.sites import sites
from quantal.torch import QSD

__all__ = ["Training", "check", "train"]


def train(run: Run) -> None:
    """Train from where a run stands, to its end."""
    with team(run) as us:
        training = Training(run, us)
        if run.checkpoint is not None:
            training.load(run.checkpoint)
        for epoch in range(run.first_epoch, run.epochs):
            cost = training.epoch(epoch)
            if us.rank == 0:
                evaluated = {part: training.evaluate(part) for part in run.parts}
                run.record(epoch, cost, evaluated, training.save)
        training.seed(run.epochs)
        run.finish(training.site_outputs, weights.dump(training.model))


class Training:
    """A model in training."""

    def __init__(self, run: Run, us: Team) -> None:
        self.run, self.us = run, us
        self.dtype = torch.float64 if run.settings.precision == "float64" else torch.float32
        model = build(run.experiment, sites(run)).to(self.dtype)
        weights.load(model, initial.weights(run.experiment, run.settings.seed))
        normalised: Any = us.normalised(model)  # torch has no type for memory_format alone
        self.model = normalised.to(us.device, memory_format=torch.channels_last)
        self.optimiser = _optimiser(run.experiment.optimiser, self.model)
        self.averaged = us.averaged(self.model)
        half = run.settings.precision == "bfloat16"
        self.autocast = torch.autocast(us.device.type, torch.bfloat16) if half else nullcontext()

    # --- training --------------------------------------------------------------------------------

    def epoch(self, epoch: int) -> float:
        """Train for an epoch and return the mean cost."""
        self.seed(epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = self.run.learning_rate(epoch)
        self.model.train()
        total = torch.zeros((), dtype=torch.float64, device=self.us.device)
        state = None
        for number, batch in enumerate(self.run.batches(epoch)):
            x, y = (self.tensor(self.us.rows(array)) for array in batch)
            cost, state = self.step(x, y, state)
            total += cost
            self.run.step(epoch, number, cost)
        return total.item() / self.run.steps

    def step(self, x: Tensor, y: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Move the weights once; return the cost and the state of a language model."""
        cost, _, state = self.forward(self.averaged, x, y, state)
        self.optimiser.zero_grad()
        (cost * self.run.experiment.costs_per_sample).backward()
        if self.run.experiment.optimiser.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.run.experiment.optimiser.clip)
        self.optimiser.step()
        return self.us.mean(cost.detach()), state

    def forward(
        self, model: nn.Module, x: Tensor, y: Tensor, state: Any
    ) -> tuple[Tensor, Tensor, Any]:
        """Return the cost, the output and the state to go on with."""
        with self.autocast:
            output, state = self.call(model, x, state)
            if self.run.experiment.cost == "squared error":
                return mse_loss(output, y), output, state
            return cross_entropy(output.flatten(0, -2), y.flatten()), output, state

    def call(self, model: nn.Module, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the output and the state to go on with, which only a language model has."""
        if self.run.experiment.model == "language":
            return model(x, state)
        return model(x), None

    def seed(self, epoch: int) -> None:
        """Start the masks of an epoch."""
        torch.manual_seed(self.run.stream_seed(epoch))
        for site in self.model.sites:
            if isinstance(site, QSD):
                site.calls = epoch * self.run.steps  # a portable key folds them in

    # --- evaluation ------------------------------------------------------------------------------

    @torch.inference_mode()
    def evaluate(self, part: str) -> tuple[float, float]:
        """Return the mean cost and the share of wrong answers."""
        self.model.eval()
        total = torch.zeros((), dtype=torch.float64, device=self.us.device)
        wrong = total.clone()
        count, state = 0, None
        for batch in self.run.evaluation(part):
            x, y = map(self.tensor, batch)
            cost, output, state = self.forward(self.model, x, y, state)
            total += cost * y.numel()
            count += y.numel()
            if self.run.experiment.error == "error":
                wrong += (output.argmax(-1) != y).sum()
        share = wrong.item() / count if self.run.experiment.error == "error" else nan
        return total.item() / count, share

    @torch.inference_mode()
    def site_outputs(self, inputs: Iterable[NDArray], masks: bool) -> Iterator[list[NDArray]]:
        """Yield what leaves each site and probe, for each batch of inputs."""
        outputs: list[NDArray] = []

        def keep(place: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            outputs.append(output.numpy(force=True))

        self.model.eval()
        self.model.sites.train(masks)
        places = [*self.model.sites, *filter(None, [getattr(self.model, "probe", None)])]
        hooks = [place.register_forward_hook(keep) for place in places]
        state = None
        for x in inputs:
            _, state = self.call(self.model, self.tensor(x), state)
            yield outputs.copy()
            outputs.clear()
        for hook in hooks:
            hook.remove()

    # --- data and state --------------------------------------------------------------------------

    def tensor(self, array: NDArray) -> Tensor:
        """Send an array to the device; images get their channels in torch's place."""
        kind = self.dtype if array.dtype.kind == "f" else torch.int64
        pinned = torch.tensor(array, dtype=kind, pin_memory=self.us.device.type == "cuda")
        tensor = pinned.to(self.us.device, non_blocking=True)
        return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        torch.save(
            {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}, path
        )

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])


def _optimiser(plan: Optimiser, model: nn.Module) -> torch.optim.Optimizer:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    fused = weights[0].device.type in ("cpu", "cuda")  # one pass over all weights
    common: dict[str, Any] = {"weight_decay": plan.weight_decay, "fused": fused}
    if plan.kind == "adam":
        return torch.optim.Adam(weights, plan.rate, **common)
    return torch.optim.SGD(
        weights, plan.rate, momentum=plan.momentum, nesterov=plan.nesterov, **common
    )
