"""What a run tells while it goes: a live line on a terminal, plain lines elsewhere.

No line is wider than 80 columns, but for a folder's name.
"""

from __future__ import annotations

import sys
import time
from math import isfinite
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

    def again(self, run: Run, result: dict[str, Any]) -> None:
        """See a run that had come to its end before."""

    def leave(self) -> None:
        """Go, whether the run is at its end or not."""


class Lines(Watch):
    """A line an epoch."""

    def start(self, run: Run) -> None:
        """Say what runs, and from where."""
        self._run, self._began, self._first = run, time.monotonic(), run.first_epoch
        where = f", going on after epoch {self._first}" if self._first else ""
        print(f"{run.settings.name}\n{run.epochs} epochs of {run.steps} steps{where}", flush=True)

    def epoch(self, line: dict[str, Any]) -> None:
        """Say the metrics and the time left."""
        done = line["epoch"] + 1
        left = (time.monotonic() - self._began) / (done - self._first) * (self._run.epochs - done)
        print(f"epoch {done}/{self._run.epochs}  {_numbers(line)}  {_clock(left)} left", flush=True)

    def done(self, result: dict[str, Any]) -> None:
        """Say the score."""
        print(f"score  {_numbers(result['score'])}", flush=True)

    def again(self, run: Run, result: dict[str, Any]) -> None:
        """Say that there is nothing to do."""
        print(f"{run.settings.name}\nfinished before  {_numbers(result['score'])}", flush=True)


class Live(Lines):
    """A bar with the cost of the latest step and the time left, and below it the last metrics."""

    def __init__(self, console: Any = None) -> None:
        self._console = console
        self._screen: Any = None

    def start(self, run: Run) -> None:
        """Draw the bar."""
        from rich import live, progress
        from rich.console import Group
        from rich.text import Text

        super().start(run)
        self._looked = 0.0
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=20),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[cost]}"),
            progress.TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("", total=run.epochs * run.steps, cost="")
        self._metrics = Text(no_wrap=True, overflow="ellipsis")
        shown = Group(self._bar, self._metrics)
        self._screen = live.Live(shown, console=self._console, transient=True)
        self._screen.start()

    def step(self, epoch: int, step: int, cost: Any) -> None:
        """Move the bar; look at the cost now and then."""
        fields = {}
        if (now := time.monotonic()) - self._looked > _LOOK:
            self._looked = now
            fields["cost"] = f"cost {_short(float(cost))}"
        place = f"epoch {epoch + 1}/{self._run.epochs}"
        done = epoch * self._run.steps + step + 1
        self._bar.update(self._task, description=place, completed=done, **fields)

    def epoch(self, line: dict[str, Any]) -> None:
        """Show the metrics."""
        self._metrics.plain = _numbers(line)

    def done(self, result: dict[str, Any]) -> None:
        """Leave the score."""
        self.leave()
        super().done(result)

    def leave(self) -> None:
        """Take the bar away, and give the cursor back."""
        if self._screen is not None:
            self._screen.stop()


def watch() -> Watch:
    """Return the one that suits where the output goes."""
    return Live() if sys.stdout.isatty() else Lines()


def _numbers(line: dict[str, Any]) -> str:
    """Return the metrics by their kind; a cost that has another name as well is left out.

    Examples
    --------
    >>> _numbers({"epoch": 3, "train_cost": 0.1234, "test_cost": 0.0712, "test_error": 0.0187})
    'cost train 0.123 test 0.0712  error 0.0187'
    >>> _numbers({"train_cost": 4.7, "train_perplexity": 110.0, "test_perplexity": 83.5})
    'perplexity train 110 test 83.5'
    """
    kinds: dict[str, dict[str, float]] = {}
    for name, value in line.items():
        if name not in ("epoch", "learning_rate"):
            part, kind = name.split("_")
            kinds.setdefault(kind, {})[part] = value
    if any("train" in parts for kind, parts in kinds.items() if kind != "cost"):
        del kinds["cost"]
    return "  ".join(_kind(kind, parts) for kind, parts in kinds.items())


def _kind(kind: str, parts: dict[str, float]) -> str:
    if parts.keys() == {"test"}:
        return f"{kind} {_short(parts['test'])}"
    return f"{kind} " + " ".join(f"{part} {_short(value)}" for part, value in parts.items())


def _short(value: float) -> str:
    """Return a number in at most 7 characters."""
    if not isfinite(value) or value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return f"{value:.1e}" if abs(value) < 1e100 else f"{value:.0e}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
