"""No class of this package overrides a private name of a framework's class, but in the fences.

Found by looking at the classes themselves, since the source does not tell what is inherited.
"""

import importlib
import inspect
import pkgutil
import sys

import quantal

OURS = {"quantal", *sys.stdlib_module_names}


def classes():
    """Every class that the package defines, with the module that it is in."""
    for found in pkgutil.walk_packages(quantal.__path__, "quantal."):
        # Keras runs on one backend at a time, and Triton needs a GPU or its interpreter.
        if found.name.startswith("quantal.keras._on_") or found.name.endswith("_triton_kernels"):
            continue
        for _, cls in inspect.getmembers(importlib.import_module(found.name), inspect.isclass):
            if cls.__module__ == found.name:
                yield cls


def overridden(cls):
    """The private methods of frameworks' classes that a class hides by its own."""
    own = {name for name, value in vars(cls).items() if inspect.isfunction(value)}
    private = {name for name in own if name.startswith("_") and not name.startswith("__")}
    for base in cls.__mro__[1:]:
        if base.__module__.partition(".")[0] not in OURS:
            yield from (
                f"{cls.__module__}.{cls.__name__}.{name}" for name in private & {*vars(base)}
            )


def test_nothing_private_of_a_framework_is_overridden_by_accident():
    kept = [cls for cls in classes() if not cls.__module__.endswith("._private_api")]
    assert len(kept) > 100
    assert sorted(name for cls in kept for name in overridden(cls)) == []
