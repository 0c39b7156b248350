"""What a fresh process waits for: imports, then the first steps. Prints seconds as JSON.

python -m benchmarks.fresh numpy,scipy.special quantal
python -m benchmarks.fresh torch quantal.torch benchmarks.with_torch:PyTorch
"""

from __future__ import annotations

import importlib
import json
import sys
import time


def main(base: str, own: str, framework: str = "") -> dict[str, float]:
    """Import ``base``, then ``own``; then make and call a layer of each kind."""
    taken = {}
    start = time.perf_counter()
    for name in base.split(","):
        importlib.import_module(name)
    taken["base"] = time.perf_counter() - start
    start = time.perf_counter()
    importlib.import_module(own)
    taken["import"] = time.perf_counter() - start
    if framework:
        module, _, name = framework.partition(":")
        made = getattr(importlib.import_module(module), name)()
        from benchmarks import layers

        mode = made.modes[0]
        # The dropout comes first, and pays for what the framework itself does only once.
        for kind, make in (("dropout", made.dropout), ("QSD", made.qsd)):
            start = time.perf_counter()
            made.step(make(), layers.shape(layers.SMALL), "float32", mode)()
            taken[kind] = time.perf_counter() - start
    return taken


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
