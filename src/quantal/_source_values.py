"""The values that an expression in a function's source can have, as far as reading it tells.

No function of the model is called: names are looked up where the code would find them, attributes
are read, and a few harmless operations are done. Where the code could take one of several ways, all
their values are candidates; `UNKNOWN` among them says that there may be others.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any, Final

from quantal._source_tree import Expression, Imported, Item, Parameter, Scope

__all__ = ["UNKNOWN", "AnyInstance", "Values", "contents_of"]


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""The value of an expression that reading the source does not tell."""


class AnyInstance:
    """Some instance of a class, of which only the class, and so its methods, are known."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
}
_MOST = 64  # candidates; a table of more functions than these is no longer looked through


class Values:
    """The values of expressions in one function.

    Parameters
    ----------
    function : function
        Whose globals and closure the names belong to.
    receiver
        What its first parameter stands for: ``self``. `UNKNOWN` if the function is no method.
    assume : mapping
        Values of parameters, and of attributes of the receiver, that need no reading, such as
        ``{"training": True}``.
    near : function of a module's name
        Whether a module that has not been imported yet may be.
    known : dict
        Where to keep what does not depend on the receiver; to be shared by all receivers.
    """

    def __init__(
        self,
        function: FunctionType,
        receiver: Any,
        assume: Mapping[str, Any],
        near: Callable[[str], bool],
        known: dict[ast.expr, list[Any]],
    ) -> None:
        self.function, self.receiver, self._assume, self._near = function, receiver, assume, near
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._enclosing = {name: contents_of(cell) for name, cell in cells}
        self._active: set[tuple[int, str]] = set()  # names that are being looked up
        self._known, self._depends = known, False

    def one(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression, `UNKNOWN` unless there is exactly one candidate."""
        found = self.candidates(node, scope)
        return found[0] if len(found) == 1 else UNKNOWN

    def candidates(self, node: ast.expr, scope: Scope) -> list[Any]:
        """Return the values that an expression may have."""
        if node in self._known:
            return self._known[node]
        before, self._depends = self._depends, False
        found: list[Any] = []
        for value in self._evaluate(node, scope):
            if not any(value is other or _equal(value, other) for other in found):
                found.append(value)
        if len(found) > _MOST:
            found = [UNKNOWN]
        if not self._depends:
            self._known[node] = found
        self._depends |= before
        return found

    def depends(self, node: ast.expr, scope: Scope) -> bool:
        """Whether the value of an expression depends on the receiver."""
        return bool(self.candidates(node, scope)) and node not in self._known

    def _evaluate(self, node: ast.expr, scope: Scope) -> list[Any]:
        match node:
            case ast.Constant(value):
                return [value]
            case ast.Name(name):
                return self._name(name, scope)
            case ast.Attribute(ast.Call(ast.Name("super")), name):
                return self._inherited(name)
            case ast.Attribute(owner, name):
                return [self._attribute(base, name) for base in self.candidates(owner, scope)]
            case ast.NamedExpr(_, value):
                return self.candidates(value, scope)
            case ast.IfExp(test, body, orelse):
                known = self.one(test, scope)
                ways = [body, orelse] if known is UNKNOWN else [body if known else orelse]
                return [value for way in ways for value in self.candidates(way, scope)]
            case ast.BoolOp(op, parts):
                return self._either(isinstance(op, ast.Or), parts, scope)
            case ast.UnaryOp(ast.Not(), operand):
                known = self.one(operand, scope)
                return [UNKNOWN if known is UNKNOWN else not known]
            case ast.UnaryOp(ast.USub(), operand):
                return [_tried(operator.neg, self.one(operand, scope))]
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                sides = self.one(left, scope), self.one(right, scope)
                plain = all(isinstance(side, int | float | str) for side in sides)
                return [_tried(_ARITHMETIC[type(op)], *sides) if plain else UNKNOWN]
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARISONS:
                sides = self.one(left, scope), self.one(right, scope)
                plain = all(isinstance(side, int | float | str | None) for side in sides)
                return [_tried(_COMPARISONS[type(op)], *sides) if plain else UNKNOWN]
            case ast.Tuple(parts) | ast.List(parts):
                return [[self.one(part, scope) for part in parts]]
            case ast.Dict(keys, parts) if all(keys):
                return [self._dict([key for key in keys if key], parts, scope)]
            case ast.Subscript(table, key):
                named = self.one(key, scope)
                return [v for t in self.candidates(table, scope) for v in _items(t, named)]
            case ast.Call(called, args):
                return self._called(node, called, args, scope)
        return [UNKNOWN]

    # --- names ---------------------------------------------------------------------------------

    def _name(self, name: str, scope: Scope) -> list[Any]:
        bound = scope.bindings(name)
        if bound is None:
            for names in (self._enclosing, self.function.__globals__, vars(builtins)):
                if name in names:
                    return [names[name]]
            return [UNKNOWN]
        where, bindings = bound
        if (id(where), name) in self._active:  # x = f(x)
            self._depends = True  # on where the look-up began
            return []
        self._active.add((id(where), name))
        try:
            return [v for each in bindings for v in self._binding(name, each, where)]
        finally:
            self._active.remove((id(where), name))

    def _binding(self, name: str, binding: Any, scope: Scope) -> list[Any]:
        match binding:
            case Expression(node):
                return self.candidates(node, scope)
            case Item(node):
                return [v for t in self.candidates(node, scope) for v in _items(t, UNKNOWN)]
            case Imported():
                return [self._import(binding)]
            case Parameter(first, default):
                if first and scope.outer is None and self.receiver is not UNKNOWN:
                    self._depends = True
                    return [self.receiver]
                if name in self._assume:
                    return [self._assume[name]]
                # A default may be what is called; a number is the caller's to choose.
                if scope.outer is None:  # the function itself, which has its defaults with it
                    usual = [_default(self.function, name)]
                else:
                    usual = [] if default is None else self._evaluate(default, scope.outer)
                return [*(value for value in usual if callable(value)), UNKNOWN]
        return [UNKNOWN]

    def _import(self, imported: Imported) -> Any:
        package = self.function.__globals__.get("__package__") or ""
        try:
            name = "." * imported.level + imported.module
            module = importlib.util.resolve_name(name, package) if imported.level else name
            if not imported.name:
                return self._module(module)
            found = getattr(self._module(module), imported.name, UNKNOWN)
            return self._module(f"{module}.{imported.name}") if found is UNKNOWN else found
        except Exception:  # whatever a module raises when it is imported: the code would fail, too
            return UNKNOWN

    def _module(self, name: str) -> Any:
        # To import a module may have side effects, so it is done for the user's own modules only.
        if name not in sys.modules and self._near(name):
            importlib.import_module(name)
        return sys.modules.get(name, UNKNOWN)

    # --- attributes ----------------------------------------------------------------------------

    def _attribute(self, base: Any, name: str) -> Any:
        if base is UNKNOWN:
            return UNKNOWN
        if base is self.receiver and name in self._assume:
            return self._assume[name]
        if isinstance(base, AnyInstance):
            return _of_an_instance(base, name)
        try:
            found = getattr(base, name, UNKNOWN)
        except Exception:  # a property may raise whatever it likes
            return UNKNOWN
        if isinstance(base, type) and isinstance(found, FunctionType) and self._is_a(base):
            static = isinstance(inspect.getattr_static(base, name), staticmethod)
            self._depends = True
            return found if static else MethodType(found, self.receiver)  # Parent.method(self, …)
        return found

    def _is_a(self, cls: type) -> bool:
        if isinstance(self.receiver, AnyInstance):
            return issubclass(self.receiver.cls, cls)
        return isinstance(self.receiver, cls)

    def _inherited(self, name: str) -> list[Any]:
        """Return the methods of this name that ``super()`` could mean, and any other attribute."""
        self._depends = True
        known = isinstance(self.receiver, AnyInstance)
        cls = self.receiver.cls if known else type(self.receiver)
        found = [vars(parent)[name] for parent in cls.__mro__[1:] if name in vars(parent)]
        methods = [MethodType(f, self.receiver) for f in found if isinstance(f, FunctionType)]
        return methods or [self._attribute(self.receiver, name)]

    # --- operations ----------------------------------------------------------------------------

    def _either(self, is_or: bool, parts: list[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for part in parts[:-1]:
            values = self.candidates(part, scope)
            found += [v for v in values if v is UNKNOWN or _truth(v) is is_or]
            if all(v is not UNKNOWN and _truth(v) is is_or for v in values):
                return found
        return [*found, *self.candidates(parts[-1], scope)]

    def _dict(self, keys: list[ast.expr], parts: list[ast.expr], scope: Scope) -> dict[Any, Any]:
        pairs = zip(keys, parts, strict=True)
        made = ((self.one(key, scope), self.one(part, scope)) for key, part in pairs)
        return {key if isinstance(key, str | int) else object(): value for key, value in made}

    def _called(
        self, call: ast.Call, called: ast.expr, args: list[ast.expr], scope: Scope
    ) -> list[Any]:
        """Return what a call gives, of the few that look up, convert or bind."""
        match called, args:
            case ast.Attribute(table, "values"), []:
                tables = self.candidates(table, scope)
                return [list(t.values()) if isinstance(t, Mapping) else UNKNOWN for t in tables]
            case ast.Attribute(table, "get"), [key, *_]:
                named = self.one(key, scope)
                tables = [t for t in self.candidates(table, scope) if isinstance(t, Mapping)]
                return [v for t in tables for v in _items(t, named)] or [UNKNOWN]
        function = self.one(called, scope)
        # For all other functions, arguments are not looked up: where names are bound to calls whose
        # arguments are again such names, that would take exponential time.
        if not any(function is known for known in (getattr, type, float, int, functools.partial)):
            return [UNKNOWN]
        values = [self.one(arg, scope) for arg in args]
        if function is getattr and len(values) >= 2 and isinstance(values[1], str):
            return [self._attribute(base, values[1]) for base in self.candidates(args[0], scope)]
        if function is type and len(values) == 1 and values[0] is not UNKNOWN:
            (value,) = values
            return [value.cls if isinstance(value, AnyInstance) else type(value)]
        if function in (float, int) and len(values) == 1 and values[0] is not UNKNOWN:
            return [_tried(function, values[0])]
        if function is functools.partial and values:
            named_values = {k.arg: self.one(k.value, scope) for k in call.keywords if k.arg}
            targets = [f for f in self.candidates(args[0], scope) if callable(f)]
            return [functools.partial(f, *values[1:], **named_values) for f in targets]
        return [UNKNOWN]


def _default(function: FunctionType, name: str) -> Any:
    """Return the default of a parameter."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    positional = dict(zip(names, defaults, strict=True))
    return (positional | (function.__kwdefaults__ or {})).get(name, UNKNOWN)


def _of_an_instance(some: AnyInstance, name: str) -> Any:
    """Return a method, or a function in the class; only instances could tell anything else."""
    static = inspect.getattr_static(some.cls, name, UNKNOWN)
    if name == "__class__":
        return some.cls
    if isinstance(static, staticmethod):
        return static.__func__
    if isinstance(static, FunctionType):
        return MethodType(static, some)
    if isinstance(static, classmethod):
        return MethodType(static.__func__, some.cls)
    return static if callable(static) and not isinstance(static, type) else UNKNOWN


def _items(table: Any, key: Any) -> list[Any]:
    """Return what a table holds under a key; where that is unknown, all the functions in it."""
    try:
        if key is not UNKNOWN:
            return [table[key] if isinstance(table, Mapping | list | tuple) else UNKNOWN]
        if isinstance(table, Mapping):
            table = list(table.values())
        if isinstance(table, list | tuple | set | frozenset) and len(table) <= _MOST:
            return [*(value for value in table if callable(value)), UNKNOWN]
    except Exception:  # a mapping of a class that the user has written
        return [UNKNOWN]
    return [UNKNOWN]


def contents_of(cell: CellType) -> Any:
    """Return what a closure holds in a cell."""
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return UNKNOWN


def _tried(function: Callable[..., Any], *values: Any) -> Any:
    if any(value is UNKNOWN for value in values):
        return UNKNOWN
    try:
        return function(*values)
    except Exception:
        return UNKNOWN


def _truth(value: Any) -> bool:
    return bool(value) if isinstance(value, int | float | str | None) else True


def _equal(one: Any, other: Any) -> bool:
    """Whether two plain values, or two bound methods, are the same; arrays have no plain ``==``."""
    if isinstance(one, int | float | str | MethodType) and type(one) is type(other):
        return bool(one == other)
    return False
