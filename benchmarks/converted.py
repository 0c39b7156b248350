"""A step of training of converted models beside the same with dropout.

    python -m benchmarks.converted [rounds]

Forward, backward and AdamW, on one thread of a CPU. Steps take turns, and what is printed is the
ratio of the medians of the processor's time. The models call dropout in their own code, where a
mode has to see every operation; "nested" has each layer inside the one before.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import Tensor, nn

ROUNDS = 60
UNITS, BATCH, LAYERS, RATE = 64, 128, 6, 0.1


class Mlp(nn.Module):
    """Layers of 64 units, with dropout in code."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(UNITS, UNITS) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        for layer in self.layers:
            x = F.dropout(torch.relu(layer(x)), RATE, self.training)
        return x


class LayeredMlp(nn.Module):
    """The same, with layers of dropout."""

    def __init__(self) -> None:
        super().__init__()
        parts = [(nn.Linear(UNITS, UNITS), nn.ReLU(), nn.Dropout(RATE)) for _ in range(LAYERS)]
        self.layers = nn.Sequential(*(layer for part in parts for layer in part))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        return self.layers(x)


class NestedMlp(nn.Module):
    """The same as `Mlp`, each layer inside the one before."""

    def __init__(self, depth: int = LAYERS) -> None:
        super().__init__()
        self.layer = nn.Linear(UNITS, UNITS)
        self.rest = NestedMlp(depth - 1) if depth > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        x = F.dropout(torch.relu(self.layer(x)), RATE, self.training)
        return self.rest(x)


def bart() -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a small BART and its input."""
    import transformers

    config = transformers.BartConfig(
        vocab_size=100, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256,
        max_position_embeddings=64, attention_dropout=0.1, activation_dropout=0.1, use_cache=False,
    )  # fmt: skip
    return transformers.BartModel(config), {"input_ids": torch.randint(4, 100, (8, 32))}


def _mlp(cls: type[nn.Module]) -> Callable[[], tuple[nn.Module, dict[str, Tensor]]]:
    return lambda: (cls(), {"x": torch.randn(BATCH, UNITS)})


MODELS = {
    "MLP, 6 × 64": _mlp(Mlp),
    "MLP, 6 × 64, nested": _mlp(NestedMlp),
    "MLP, 6 × 64, layers": _mlp(LayeredMlp),
    "BART, 2 + 2 × 64": bart,
}


def step_of(model: nn.Module, x: dict[str, Tensor]) -> Callable[[], None]:
    """Return a step of training."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        output: Any = model(**x)
        y = output if isinstance(output, Tensor) else output[0]
        y.square().mean().backward()
        optimizer.step()

    return step


def ratio(name: str, rounds: int = ROUNDS) -> tuple[float, float]:
    """Return the milliseconds of a step with dropout, and the ratio of QSD's to them."""
    from quantal.torch import convert

    steps = []
    for converted in (False, True):
        torch.manual_seed(0)
        model, x = MODELS[name]()
        steps.append(step_of(convert(model, 1.0) if converted else model, x))
    taken: list[list[float]] = [[], []]
    for turn in range(rounds + 5):
        for step, times in zip(steps, taken, strict=True):
            start = time.process_time()
            step()
            if turn >= 5:  # the first ones make tables and buffers
                times.append(time.process_time() - start)
    native, diluted = map(statistics.median, taken)
    return 1e3 * native, diluted / native


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print("| model | dropout, ms | QSD, ratio |\n|---|---|---|")
    for name in MODELS:
        native, cost = ratio(name, rounds)
        print(f"| {name} | {native:.2f} | {cost:.2f} |", flush=True)


if __name__ == "__main__":
    main()
