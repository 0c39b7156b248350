"""What is public is said once, on the page docs/api.md: here page and package are compared.

The package is read, not imported, so that no framework needs to be installed.
"""

import ast
import re
from pathlib import Path

import pytest

import quantal

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| `(quantal[\w.]*)` \| (.*) \|$", (ROOT / "docs/api.md").read_text(), re.M)
PAGE = {module: re.findall(r"`(\w+)`", names) for module, names in ROWS}
SOURCE = Path(quantal.__file__).parent
# The parts of the kit are not named by their use yet: what is public of it, its package exports.
KIT = "quantal.conformance."


def modules():
    for file in sorted(SOURCE.rglob("*.py")):
        parts = ("quantal", *file.relative_to(SOURCE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not any(part.startswith("_") for part in name.split(".")) and not name.startswith(KIT):
            yield name, ast.parse(file.read_text())


MODULES = dict(modules())


def exported(tree):
    """The names of ``__all__``, which may be written in several steps."""
    lists = []
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name("__all__")], value) | ast.AugAssign(
                ast.Name("__all__"), _, value
            ):
                lists += ast.literal_eval(value)
    return lists


def defined(tree):
    """The names that a module defines itself, at its top level."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.Assign(targets):
                yield from (t.id for t in targets if isinstance(t, ast.Name))
            case ast.AnnAssign(ast.Name(name)):
                yield name


def test_the_page_lists_the_public_modules():
    assert sorted(PAGE) == sorted(MODULES)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_exports_what_the_page_says(module):
    assert sorted(exported(MODULES[module])) == sorted(PAGE[module])
    assert PAGE[module] == sorted(PAGE[module])


@pytest.mark.parametrize("module", sorted(MODULES))
def test_the_rest_is_private_by_its_name(module):
    tree = MODULES[module]
    others = {name for name in defined(tree) if not name.startswith("_")} - {*exported(tree)}
    assert others == set()


def test_there_are_not_many_of_them():
    assert len({name for names in PAGE.values() for name in names}) <= 50
