"""The reference, made of the docstrings of the names that ``api.md`` lists, and of no others."""

import importlib
import inspect
import re
from pathlib import Path
from typing import get_origin

from sphinx.application import Sphinx

ROW = re.compile(r"^\| `(quantal[\w.]*)` \| (.*) \|$", re.MULTILINE)


def public(page: Path) -> dict[str, list[str]]:
    """Return the public names of each module, as the page has them."""
    return {
        module: re.findall(r"`(\w+)`", names) for module, names in ROW.findall(page.read_text())
    }


def write(app: Sphinx) -> None:
    """Write a page a module, and one that lists them."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    modules = public(Path(app.srcdir) / "api.md")
    homes: dict[int, str] = {}  # where an object is described: the first module that has it
    for module, names in modules.items():
        put(folder / f"{module}.rst", page(module, names, homes))
    listed = "\n".join(f"   {module}" for module in modules)
    head = "Reference\n=========\n\nAll public names, as their docstrings describe them.\n\n"
    put(folder / "index.rst", f"{head}.. toctree::\n   :maxdepth: 1\n\n{listed}\n")
    for old in {*folder.iterdir()} - {folder / f"{name}.rst" for name in [*modules, "index"]}:
        old.unlink()


def page(module: str, names: list[str], homes: dict[int, str]) -> str:
    """Return the page of a module."""
    loaded = importlib.import_module(module)
    lines = [module, "=" * len(module), "", f".. automodule:: {module}", "   :no-members:", ""]
    for name in names:
        thing = getattr(loaded, name)
        if not callable(thing) or get_origin(thing):  # a number, a text, or an alias of a type
            lines += [f".. autodata:: {name}", "   :no-value:", ""]
        elif id(thing) in homes:
            lines += [f"``{name}``", f"   The same as :py:obj:`{homes[id(thing)]}`.", ""]
        else:
            homes[id(thing)] = f"{module}.{name}"
            kind = "class" if inspect.isclass(thing) else "function"
            lines += [f".. auto{kind}:: {name}", *(["   :members:"] if kind == "class" else []), ""]
    return "\n".join(lines)


def put(file: Path, text: str) -> None:
    """Write a file if it is to change, so that Sphinx reads only what is new."""
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def shorten(*described: object) -> tuple[str | None, str | None]:
    """Leave out of a signature the defaults that cannot be written, which nobody passes."""
    *_, signature, returned = described
    return signature and re.sub("<[^<>]*>", "...", str(signature)), returned


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for pages."""
    app.connect("builder-inited", write)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
