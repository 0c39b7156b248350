"""A function's source code as a tree: its calls, and what each of its names is bound to.

Nothing is run or looked up here. Trees are of whole files, so lines count from the top of the file.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import NamedTuple
from weakref import WeakKeyDictionary

__all__ = ["Binding", "Expression", "Imported", "Item", "Parameter", "Scope", "Source", "read"]


class Expression(NamedTuple):
    """A name that is bound to the value of an expression."""

    node: ast.expr


class Item(NamedTuple):
    """A name that is bound to each item of an iterable in turn."""

    node: ast.expr


class Imported(NamedTuple):
    """A name that is bound by an import inside of the function; ``name`` is empty for a module."""

    module: str
    level: int
    name: str


class Parameter(NamedTuple):
    """A name that the caller binds; ``default`` is in the code, and ``first`` may be self."""

    first: bool
    default: ast.expr | None


Binding = Expression | Item | Imported | Parameter | None
"""What a name is bound to; None where it is bound by something else."""


class Scope:
    """The names of a function and of the one around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.names: dict[str, list[Binding]] = defaultdict(list)

    def bindings(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """Return where a name is bound, and to what; None if it is not bound in the function."""
        if name in self.names:
            return self, self.names[name]
        return self.outer.bindings(name) if self.outer else None


class Source(NamedTuple):
    """What the source of a function contains.

    Attributes
    ----------
    calls, reads
        All calls, and all expressions that could be looked up, each with its scope.
    used : set of ast.expr
        The expressions whose values are called, or given a name.
    """

    calls: list[tuple[ast.Call, Scope]]
    reads: list[tuple[ast.expr, Scope]]
    used: set[ast.expr]


_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


_read: WeakKeyDictionary[CodeType, Source | None] = WeakKeyDictionary()


def read(function: FunctionType) -> Source | None:
    """Return what the source of a function contains; None if there is no source.

    Examples
    --------
    >>> def area(radius):
    ...     return math.pi * square(radius)
    >>> [ast.unparse(call) for call, _ in read(area).calls]
    ['square(radius)']
    """
    code = function.__code__
    if code not in _read:
        _read[code] = _source(
            code, "".join(linecache.getlines(code.co_filename, function.__globals__))
        )
    return _read[code]


def _source(code: CodeType, text: str) -> Source | None:
    try:
        functions = _functions(text, code.co_name == "<lambda>")
    except SyntaxError:  # not Python, or of another version: a file that was compiled before
        return None
    same = functions.get((code.co_name, code.co_firstlineno), [])
    node = same[0] if len(same) == 1 else _among(same, code)
    if node is None:
        return None
    reader = _Reader()
    reader.enter(node, Scope())
    return reader.source


@functools.lru_cache(maxsize=64)
def _functions(text: str, lambdas: bool) -> dict[tuple[str, int], list[_Function]]:
    """Return the functions of a file by name and first line, which is that of a decorator too."""
    tree = ast.parse(text)
    found: dict[tuple[str, int], list[_Function]] = defaultdict(list)
    # Statements are far fewer than expressions, in which only lambdas can hide.
    for node in ast.walk(tree) if lambdas else _statements(tree):
        if isinstance(node, ast.Lambda):
            found["<lambda>", node.lineno].append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name, first].append(node)
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, None)
            waiting += inner if isinstance(inner, list) else []


def _among(functions: list[_Function], code: CodeType) -> _Function | None:
    """Return the function that the code belongs to, of several lambdas that begin on one line."""
    columns = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    around = [
        node
        for node in functions
        if all(
            (node.lineno, node.col_offset) <= place <= (node.end_lineno, node.end_col_offset)
            for place in columns
        )
    ]
    # Of those that contain one another, the innermost is meant.
    return max(around, key=lambda node: node.col_offset, default=None)


class _Reader(ast.NodeVisitor):
    """Gathers calls and reads, each with its scope; code inside of inner functions counts too."""

    def __init__(self) -> None:
        self.source = Source([], [], set())
        self.scope = Scope()
        self._bound: set[ast.expr] = set()

    def enter(self, function: _Function, scope: Scope) -> None:
        """Read a function, its parameters being names of the scope."""
        outer, self.scope = self.scope, scope
        for name, parameter in _parameters(function.args):
            scope.names[name].append(parameter)
        for part in function.body if isinstance(function.body, list) else [function.body]:
            self.visit(part)
        self.scope = outer

    def _inner(self, function: _Function) -> None:
        for default in (*function.args.defaults, *filter(None, function.args.kw_defaults)):
            self.visit(default)
        self.enter(function, Scope(self.scope))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self.scope.names[node.name].append(None)
        self._inner(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.scope.names[node.name].append(None)
        self._inner(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inner(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.names[node.name].append(None)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.source.calls.append((node, self.scope))
        self.source.used.add(node.func)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.source.reads.append((node, self.scope))
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):  # of a.b.c, only the whole is used
            inner = inner.value
        if not isinstance(inner, ast.Name):
            self.visit(inner)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.source.reads.append((node, self.scope))
        elif node not in self._bound:  # in a way that no method below handles
            self.scope.names[node.id].append(None)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.source.reads.append((node, self.scope))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self._bind(node.target, node.value)
            self.visit(node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._each(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._each(node.target, node.iter)
        self.generic_visit(node)

    def _comprehend(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        for generator in node.generators:  # first, since what stands before uses their names
            self.visit(generator)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for part in parts:
            self.visit(part)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehend  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            # Without "as", the name is that of the package around it.
            module = alias.name if alias.asname else alias.name.partition(".")[0]
            self.scope.names[alias.asname or module].append(Imported(module, 0, ""))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            bound = Imported(node.module or "", node.level, alias.name)
            self.scope.names[alias.asname or alias.name].append(bound)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(name), _:
                self.scope.names[name].append(Expression(value))
                self.source.used.add(value)
                self._bound.add(target)
            case ((ast.Tuple(targets) | ast.List(targets)), (ast.Tuple(values) | ast.List(values))):
                starred = any(isinstance(each, ast.Starred) for each in (*targets, *values))
                if len(targets) == len(values) and not starred:
                    for each, own in zip(targets, values, strict=True):
                        self._bind(each, own)

    def _each(self, target: ast.expr, iterable: ast.expr) -> None:
        match target, iterable:
            case ast.Tuple([_, last]), ast.Call(ast.Name("enumerate"), [inner]):
                target, iterable = last, inner
            case ast.Tuple([_, last]), ast.Call(ast.Attribute(table, "items"), []):
                target, iterable = last, ast.Call(ast.Attribute(table, "values"), [], [])
        if isinstance(target, ast.Name):
            self.scope.names[target.id].append(Item(iterable))
            self._bound.add(target)


def _parameters(arguments: ast.arguments) -> Iterator[tuple[str, Parameter]]:
    plain = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    for i, (each, default) in enumerate(zip(plain, [*missing, *arguments.defaults], strict=True)):
        yield each.arg, Parameter(i == 0, default)
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield each.arg, Parameter(False, default)
    for other in (arguments.vararg, arguments.kwarg):
        if other:
            yield other.arg, Parameter(False, None)
