"""Hide packages that are installed: those named in HIDE_PACKAGES cannot be found.

One environment then serves tests that must pass with one framework alone. Python imports this
module when it starts if its folder is on PYTHONPATH, so subprocesses are covered as well.
"""

import os
import sys
from importlib.machinery import PathFinder


class _Hiding(PathFinder):
    hidden = frozenset(os.environ.get("HIDE_PACKAGES", "").split())

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in cls.hidden:
            return None  # "not found", to import and to importlib.util.find_spec alike
        return super().find_spec(fullname, path, target)


if _Hiding.hidden:
    sys.meta_path[sys.meta_path.index(PathFinder)] = _Hiding
