"""What a run tells while it goes: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from examples.run import Run

__all__ = ["Lines", "Live", "Watch", "watch"]

_LOOK = 0.5  # seconds between two looks at a cost, each of which waits for the device


class Watch:
    """Someone who looks on; this one does nothing."""

    def start(self, run: Run) -> None:
        """See a run begin, or go on."""

    def step(self, epoch: int, step: int, cost: Any) -> None:
        """See a training step; reading ``cost`` waits for the device."""

    def epoch(self, line: dict[str, Any]) -> None:
        """See the metrics of an epoch."""

    def done(self, result: dict[str, Any]) -> None:
        """See the end."""


class Lines(Watch):
    """A line an epoch."""

    def start(self, run: Run) -> None:
        """Say what runs, and from where."""
        self._run, self._began, self._first = run, time.monotonic(), run.first_epoch
        where = f", going on after epoch {self._first}" if self._first else ""
        print(f"{run.settings.name}: {run.epochs} epochs of {run.steps} steps{where}", flush=True)

    def epoch(self, line: dict[str, Any]) -> None:
        """Say the metrics and the time left."""
        done = line["epoch"] + 1
        left = (time.monotonic() - self._began) / (done - self._first) * (self._run.epochs - done)
        print(f"epoch {done}/{self._run.epochs}  {_numbers(line)}  {_clock(left)} left", flush=True)

    def done(self, result: dict[str, Any]) -> None:
        """Say the score."""
        print(f"{self._run.settings.name}: {_numbers(result['score'])}", flush=True)


class Live(Watch):
    """A bar with the cost of the latest step, the last metrics and the time left."""

    def start(self, run: Run) -> None:
        """Draw the bar."""
        from rich import progress

        self._run, self._looked = run, 0.0
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[cost]}  {task.fields[metrics]}"),
            progress.TimeRemainingColumn(),
            transient=True,
        )
        self._task = self._bar.add_task(
            run.settings.name,
            total=run.epochs * run.steps,
            completed=run.first_epoch * run.steps,
            cost="",
            metrics="",
        )
        self._bar.start()

    def step(self, epoch: int, step: int, cost: Any) -> None:
        """Move the bar; look at the cost now and then."""
        fields = {}
        if (now := time.monotonic()) - self._looked > _LOOK:
            self._looked = now
            fields["cost"] = f"cost {float(cost):.4f}"
        self._bar.update(self._task, completed=epoch * self._run.steps + step + 1, **fields)

    def epoch(self, line: dict[str, Any]) -> None:
        """Show the metrics."""
        self._bar.update(self._task, metrics=_numbers(line))

    def done(self, result: dict[str, Any]) -> None:
        """Leave one line."""
        self._bar.stop()
        print(f"{self._run.settings.name}: {_numbers(result['score'])}")


def watch() -> Watch:
    """Return the one that suits where the output goes."""
    return Live() if sys.stdout.isatty() else Lines()


def _numbers(line: dict[str, Any]) -> str:
    skipped = ("epoch", "learning_rate")
    return "  ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in line.items() if k not in skipped)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
