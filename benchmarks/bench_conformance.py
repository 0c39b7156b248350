"""How long the whole kit takes on each built-in adapter that is installed, in seconds.

    python benchmarks/bench_conformance.py [adapter …]

Each runs in a process of its own; starting it and importing the framework count. The bar is 60 s
on two cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from quantal.conformance.adapters import installed


def main(adapters: list[str]) -> None:
    print("| adapter | checks passed | seconds in checks | seconds in all | CPU seconds |")
    print("|---|---|---|---|---|")
    for adapter in adapters:
        command = [sys.executable, "-m", "quantal.conformance", adapter, "--format", "json"]
        start, before = time.perf_counter(), _cpu()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wall, cpu = time.perf_counter() - start, _cpu() - before
        if done.returncode not in (0, 1):
            print(f"| {adapter} | could not be run | | | |")
            continue
        (report,) = json.loads(done.stdout)
        results = report["results"]
        passed = sum(result["status"] == "passed" for result in results)
        checks = sum(result["seconds"] for result in results)
        print(
            f"| {adapter} | {passed} of {len(results)} | {checks:.1f} | {wall:.1f} | {cpu:.1f} |",
            flush=True,
        )


def _cpu() -> float:
    """Return the CPU seconds of all processes that this one has started and seen end."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:] or list(installed()))
