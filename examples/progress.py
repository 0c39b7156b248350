"""What a run tells while it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from examples.run import Run

__all__ = ["Watch"]


class Watch:
    """Someone who looks on; this one does nothing."""

    def start(self, run: Run) -> None:
        """See a run begin, or go on."""

    def step(self, epoch: int, step: int, cost: Any) -> None:
        """See a training step."""

    def epoch(self, line: dict[str, Any]) -> None:
        """See the metrics of an epoch."""

    def done(self, result: dict[str, Any]) -> None:
        """See the end."""
