"""Count false alarms: many runs of the kit, each with a fresh seed, on implementations held right.

    python -m benchmarks.soak numpy numpy-key reference --runs 300 --state soak.jsonl

Adapters take turns. Each run is a line of the state file, so a soak can be stopped, and goes on
where it was; a run that fails is printed with the line that replays it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Any

__all__ = ["main", "soak"]


def soak(specs: list[str], runs: int, state: Path, budget: float = 1e-6) -> list[dict[str, Any]]:
    """Run until the state file holds so many runs, and return all of them."""
    from quantal.conformance import run
    from quantal.conformance.adapters import load

    done = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    adapters = {spec: load(spec) for spec in specs}
    while len(done) < runs:
        spec, seed = specs[len(done) % len(specs)], secrets.randbits(62)
        report = run(adapters[spec], budget=budget, seed=seed, spec=spec)
        replays = [report[name].replay for name in report.failures]
        done.append(
            {
                "adapter": spec,
                "seed": seed,
                "budget": budget,
                "failures": report.failures,
                "replay": replays,
                "seconds": round(report.seconds, 3),
            }
        )
        with state.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1]) + "\n")
        for replay in replays:
            print(f"\n{replay}", flush=True)
        print(f"\r{len(done)}/{runs} runs", end="", file=sys.stderr, flush=True)
    return done


def main(argv: list[str] | None = None) -> int:
    """Soak, and say how many runs raised an alarm; exit code 1 if any did."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("adapters", nargs="+", metavar="adapter")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--budget", type=float, default=1e-6)
    parser.add_argument("--state", type=Path, default=Path("soak.jsonl"))
    args = parser.parse_args(argv)
    done = soak(args.adapters, args.runs, args.state, args.budget)
    alarms = sum(bool(one["failures"]) for one in done)
    seconds = sum(one["seconds"] for one in done)
    print(f"\n{alarms} alarms in {len(done)} runs at budgets of {args.budget:g}, {seconds:.0f} s")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
