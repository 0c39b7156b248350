"""Private names of other libraries stand in one file for each: ``_private_api.py``.

The package is read, not imported, so that no framework needs to be installed.
"""

import ast
import re
from pathlib import Path

import pytest

import quantal

SOURCE = Path(quantal.__file__).parent
FILES = sorted(file for file in SOURCE.rglob("*.py") if file.name != "_private_api.py")
FENCES = sorted(SOURCE.rglob("_private_api.py"))

# Python documents these, underscore or not.
DOCUMENTED = {"_asdict", "_fields", "_make", "_replace", "_getframe"}
# Modules that their libraries call internal, though no part of the path begins with an underscore.
INTERNAL = re.compile(
    r"(keras|numpy)\.src\b|tensorflow\.(python|compiler|core)\b|jax\.(extend|interpreters)\b"
    r"|flax\.(core|nnx\.\w)|numpy\.core\b"
)
ASKING = {"getattr", "hasattr", "setattr", "delattr", "getattr_static"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name != "_"


def declared(tree):
    """The names that code declares itself: definitions, variables, attributes of its own self."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Name(name, ast.Store()):
                yield name
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                yield name


def used(tree):
    """The private names that code takes from something else, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Call(ast.Name("super")), name):
                yield node.lineno, f"super().{name}", name
            case ast.Attribute(_, name):
                yield node.lineno, ast.unparse(node), name
            case ast.Call(ast.Name(asking), [_, ast.Constant(str(name)), *_]) if asking in ASKING:
                yield node.lineno, ast.unparse(node), name
            case ast.Subscript(_, ast.Constant(str(name))):  # of vars(…), say
                yield node.lineno, ast.unparse(node), name
            case ast.Import(names):
                for alias in names:
                    yield node.lineno, alias.name, alias.name
            case ast.ImportFrom(str(module), names, 0):
                for alias in names:
                    yield node.lineno, f"{module}.{alias.name}", f"{module}.{alias.name}"
            case ast.Constant(str(text)) if re.fullmatch(r"\w+(\.\w+)+", text):  # a path of modules
                yield node.lineno, text, text


def strangers(tree, own):
    """What code uses that is private, and not of this package."""
    for line, shown, name in used(tree):
        if name.partition(".")[0] in ("quantal", "_quantal_pytest"):
            continue
        private = {part for part in name.split(".") if is_private(part)} - DOCUMENTED
        inherited = shown.startswith("super().") and private
        if (private - own) or inherited or INTERNAL.match(name):
            yield line, shown


@pytest.fixture(scope="module")
def own():
    return {name for file in FILES for name in declared(ast.parse(file.read_text()))}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_private_name_of_another_library_is_used_outside_its_fence(file, own):
    assert list(strangers(ast.parse(file.read_text()), own)) == []


@pytest.mark.parametrize("file", FENCES, ids=lambda file: file.parent.name)
def test_a_fence_says_in_which_versions_names_were_seen(file):
    assert re.search(r"\b[Ss]een\s+in\s+\w+\s+\d|\bseen\s+in\s+\d", file.read_text())


@pytest.mark.parametrize(
    "code",
    [
        "x._impl",
        "super()._apply(fn)",
        "self.model._modules['a']",
        "getattr(layer, '_layers', None)",
        "vars(config)['_attn_implementation']",
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "import torch._dynamo",
        "from keras.src import backend",
        "import_module('haiku._src.basic')",
        "from tensorflow.python.framework import op_callbacks",
        "'torch._dynamo' in sys.modules",
    ],
)
def test_it_is_found_however_it_is_written(code):
    assert len(list(strangers(ast.parse(code), own={"_own", "_apply"}))) >= 1


@pytest.mark.parametrize(
    "code",
    [
        "self._own",
        "other._own",
        "pair._replace(a=1)",
        "sys._getframe(1)",
        "from quantal._errors import x",
        "x.__class__",
        "getattr(x, '_own')",
    ],
)
def test_what_is_our_own_or_documented_is_not(code):
    assert list(strangers(ast.parse(code), own={"_own"})) == []
