"""Every call in the code of a part of a model: the target, the arguments, the line.

This module knows no framework. A framework's own ``_source_scan`` says which targets drop units,
and which argument is the rate.

It reads the methods of a class, and the functions that they mention if those belong to the same
package or to the user's own files. A call whose target is unknown has the target `UNKNOWN`; if it
may have several targets, there is one `SourceCall` for each.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import math
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from quantal._source_tree import Scope, Source, read
from quantal._source_values import UNKNOWN, AnyInstance, Values, contents_of

__all__ = ["UNKNOWN", "Argument", "Scanner", "SourceCall"]


class Argument(NamedTuple):
    """What a call passes: its value, or `UNKNOWN`, and whether it is a literal in the code."""

    value: Any
    literal: bool = False

    @property
    def number(self) -> float:
        """The value as a float; NaN if it is not a number."""
        plain = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        return float(self.value) if plain else math.nan


@dataclass(frozen=True, eq=False)
class SourceCall:
    """A call in the code of a function.

    Attributes
    ----------
    target
        What is called, or `UNKNOWN`. For a ``functools.partial`` it is the function inside, and
        what is already bound counts as passed.
    node : ast.Call
        The call in the source.
    function : function
        The function whose code contains the call.
    line : int
        The line in that function's file.
    followed : bool
        Whether the target's own code is read as well, so that the calls in it are found, too.
    passed_on : bool
        Whether the target is not called here, but passed to something that may call it, as in
        ``checkpoint(F.dropout, x)``. Its arguments are then unknown.
    """

    target: Any
    node: ast.Call
    function: FunctionType
    line: int
    followed: bool
    passed_on: bool
    _written: ast.expr
    _values: Values
    _scope: Scope
    _bound: tuple[tuple[Any, ...], Mapping[str, Any]] = ((), {})

    @property
    def written(self) -> str:
        """The target as written in the code, such as ``F.dropout``."""
        return ast.unparse(self._written)

    @property
    def where(self) -> str:
        """Function and line, for a message."""
        return f"{self.function.__qualname__}, line {self.line}"

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression in the call, or `UNKNOWN`."""
        return self._values.one(node, self._scope)

    def argument(self, position: int | None, *names: str) -> Argument | None:
        """Return an argument by its names or its position; None if it is not passed.

        If it may be hidden in ``*args`` or ``**kwargs``, it is passed, with an unknown value.
        """
        args, named = self._bound
        if self.passed_on:
            known = args[position : position + 1] if position is not None else ()
            return Argument([*(named[n] for n in names if n in named), *known, UNKNOWN][0])
        hidden = False
        for keyword in self.node.keywords:
            if keyword.arg in names:
                return self._argument(keyword.value)
            if keyword.arg is None:
                given = self.value(keyword.value)
                if isinstance(given, Mapping):
                    for name in names:
                        if name in given:
                            return Argument(given[name])
                else:
                    hidden = True
        if position is not None:
            if position < len(args):
                return Argument(args[position])
            for node in self.node.args[: position - len(args) + 1]:
                if isinstance(node, ast.Starred):
                    return Argument(UNKNOWN)
            if position - len(args) < len(self.node.args):
                return self._argument(self.node.args[position - len(args)])
        for name in names:
            if name in named:
                return Argument(named[name])
        return Argument(UNKNOWN) if hidden else None

    def _argument(self, node: ast.expr) -> Argument:
        return Argument(self.value(node), isinstance(node, ast.Constant))


class _Work(NamedTuple):
    """A function to be read, and what its first parameter stands for."""

    function: Any  # a FunctionType, which type checkers would take for a method of this class
    receiver: Any


@dataclass
class _Kept:
    """What has been read and does not depend on the object: kept for others of its class."""

    function: FunctionType
    known: dict[ast.expr, list[Any]] = field(default_factory=dict)
    followed: list[_Work] = field(default_factory=list)
    depending: list[tuple[ast.expr, Scope]] | None = None


@dataclass(frozen=True)
class Scanner:
    """Reads the code of a framework's models.

    Make one for each walk through a model: it remembers what it has looked up.

    Parameters
    ----------
    libraries : frozenset of str
        Top-level packages whose code is not read, such as the framework itself.
    apart : tuple of type
        Classes whose instances are scanned by themselves, such as the submodules of a model: their
        methods are not followed.
    entries : collection of str
        Methods that the framework calls: they are read wherever they are inherited from. Other
        methods are read if they are in the same file as the class, or in the user's own files.
    construction : collection of str
        Methods that make the model. They are not read, nor are methods that only they call.
    assume : mapping
        Values of parameters and attributes of ``self`` in training, such as ``{"training": True}``.

    Examples
    --------
    >>> class Part:
    ...     exponent = 2
    ...
    ...     def forward(self, x):
    ...         power = math.pow
    ...         return power(x, self.exponent)
    >>> (call,) = Scanner(libraries=frozenset()).calls(Part())
    >>> call.written, call.target is math.pow, call.argument(1)
    ('power', True, Argument(value=2, literal=False))
    """

    libraries: frozenset[str]
    apart: tuple[type, ...] = ()
    entries: Collection[str] = ("forward", "call", "__call__")
    construction: Collection[str] = ("__init__", "__new__", "__post_init__")
    assume: Mapping[str, Any] = field(default_factory=dict)
    _classes: dict[type, list[tuple[str, _Work]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _kept: dict[int, _Kept] = field(default_factory=dict, init=False, repr=False, compare=False)

    def calls(self, owner: Any, also: Iterable[Any] = ()) -> Iterator[SourceCall]:
        """Walk through the calls in the code of a part of a model.

        Parameters
        ----------
        owner
            The part itself, its class, or a function. With the class alone, what ``self`` holds
            is unknown, but for methods.
        also : iterable of callable
            Functions to read that the class does not mention, such as hooks.
        """
        for work, source in self._all(owner, also):
            if source is None:
                continue
            values = self._values(work)
            for node, scope in source.calls:
                yield from self._targets(node, values, scope, source, owner)

    def unread(self, owner: Any, also: Iterable[Any] = ()) -> list[FunctionType]:
        """Return the functions whose code should be read, but which have no source."""
        return [work.function for work, source in self._all(owner, also) if source is None]

    # --- which functions -----------------------------------------------------------------------

    def _all(self, owner: Any, also: Iterable[Any]) -> Iterator[tuple[_Work, Source | None]]:
        """Walk through all functions to be read, with their sources."""
        if _is_function(owner) and not isinstance(owner, self.apart):
            begin = list(self._unfolded(owner, UNKNOWN))
        else:
            begin = list(self._methods(owner))
        waiting = [work for each in also for work in self._unfolded(each, UNKNOWN)] + begin[::-1]
        mine = {id(work.function): work for work in begin}
        met = set()
        while waiting:
            work = waiting.pop()
            if work.receiver is UNKNOWN:  # a method that is called by its decorator
                work = mine.get(id(work.function), work)
            if (id(work.function), id(work.receiver)) in met:
                continue
            met.add((id(work.function), id(work.receiver)))
            source = read(work.function)
            yield work, source
            if source is not None:
                waiting += reversed(self._mentioned(work, source, owner))

    def _methods(self, owner: Any) -> Iterator[_Work]:
        """Walk through the methods at which code of an object may begin to run."""
        if isinstance(owner, type):
            yield from (work for _, work in self._methods_of(owner))
            return
        own = getattr(owner, "__dict__", {})
        for name, work in self._methods_of(type(owner)):
            if callable(own.get(name)):  # an attribute of the instance itself hides the method
                yield from self._unfolded(own[name], owner)
            elif isinstance(work.receiver, AnyInstance):
                yield work._replace(receiver=owner)
            else:
                yield work

    def _methods_of(self, cls: type) -> list[tuple[str, _Work]]:
        """Return the methods at which code of some instance of a class may begin to run."""
        if cls not in self._classes:
            some, making = AnyInstance(cls), self._construction_of(cls)
            self._classes[cls] = [
                (name, work)
                for parent in cls.__mro__
                for name, value in vars(parent).items()
                if name not in making and (callable(value) or isinstance(value, _DESCRIPTORS))
                for work in self._unfolded(value, some)
                if name in self.entries
                or work.function.__globals__.get("__name__") == cls.__module__
                or _is_own(work.function)
            ]
        return self._classes[cls]

    def _construction_of(self, cls: type) -> set[str]:
        """Return the names of the methods that make an object, and of those that they call."""
        waiting, met = list(self.construction), set[str]()
        while waiting:
            name = waiting.pop()
            if name in met or name in self.entries:
                continue
            met.add(name)
            for work in self._unfolded(inspect.getattr_static(cls, name, None), UNKNOWN):
                source = read(work.function)
                for node, _ in source.reads if source else ():
                    match node:
                        case ast.Attribute(ast.Name("self"), attribute):
                            waiting.append(attribute)
        return met

    def _mentioned(self, work: _Work, source: Source, owner: Any) -> list[_Work]:
        """Return the functions that a function mentions and that are read, too."""
        values, kept = self._values(work), self._kept_of(work.function)
        if kept.depending is None:
            kept.depending = [read for read in source.reads if values.depends(*read)]
            others = (each for each in source.reads if each[0] in kept.known)
            kept.followed = self._follow(others, values, owner)
        return kept.followed + self._follow(kept.depending, values, owner)

    def _follow(
        self, reads: Iterable[tuple[ast.expr, Scope]], values: Values, owner: Any
    ) -> list[_Work]:
        return [
            work
            for read in reads
            for value in values.candidates(*read)
            for work in self._followed(value, values.function, owner)
        ]

    def _followed(self, value: Any, reader: FunctionType, owner: Any) -> Iterator[_Work]:
        """Return the functions to be read because a function mentions this value.

        In the user's own files, those are all functions; in installed packages, the plain functions
        of the same package, and the methods of the object at hand.
        """
        if value is UNKNOWN or isinstance(value, type):
            return
        receiver = value.__self__ if isinstance(value, MethodType) else UNKNOWN
        if not _is_function(value):
            call = getattr(type(value), "__call__", None)  # noqa: B004 - the function itself
            if not isinstance(call, FunctionType):
                return
            value, receiver = MethodType(call, value), value
        if receiver is not owner and isinstance(receiver, self.apart):
            return
        mine = receiver is UNKNOWN or receiver is owner or isinstance(receiver, AnyInstance | type)
        for work in self._unfolded(value, receiver):
            own = _is_own(work.function) and _is_own(reader)
            if own or (mine and _package(work.function) == _package(reader)):
                yield work

    def _unfolded(self, value: Any, receiver: Any) -> Iterator[_Work]:
        """Walk through the functions in a value: under decorators, in partials and properties."""
        waiting: list[Any] = [value]
        met = set()
        while waiting:
            value = waiting.pop()
            if id(value) in met or value is UNKNOWN or value is None:
                continue
            met.add(id(value))
            if isinstance(value, staticmethod):
                receiver = UNKNOWN
            elif isinstance(value, classmethod):
                receiver = receiver.cls if isinstance(receiver, AnyInstance) else type(receiver)
            elif isinstance(value, MethodType):
                receiver = value.__self__
            # A partial may wrap one function and call another, as in the hooks of accelerate.
            waiting += [_inside(value), _wrapped(value)]
            if isinstance(value, FunctionType):
                # A decorator that does not use functools.wraps keeps the function in a cell.
                cells = [contents_of(cell) for cell in value.__closure__ or ()]
                waiting += [inner for inner in cells if _is_function(inner)]
                # One that does, and is not the user's, is not read itself, only what it wraps.
                plumbing = _wrapped(value) is not None and not _is_own(value)
                if not (plumbing or _package(value) in self.libraries or _is_standard(value)):
                    yield _Work(value, receiver)

    # --- what is called ------------------------------------------------------------------------

    def _targets(
        self, node: ast.Call, values: Values, scope: Scope, source: Source, owner: Any
    ) -> Iterator[SourceCall]:
        function = values.function

        def call(target: Any, written: ast.expr, passed_on: bool) -> SourceCall:
            args: tuple[Any, ...] = ()
            named: dict[str, Any] = {}
            while isinstance(target, functools.partial):
                args, named = (*target.args, *args), {**target.keywords, **named}
                target = target.func
            followed = any(self._followed(target, function, owner))
            return SourceCall(
                target, node, function, node.lineno, followed, passed_on, written, values, scope,
                (args, named),
            )  # fmt: skip

        called = values.candidates(node.func, scope)
        for target in called:
            yield call(target, node.func, False)
        # What is passed may be called later, and so may a partial, unless it is given a name here.
        later = [*node.args, *(keyword.value for keyword in node.keywords)]
        if functools.partial in called:
            later = [] if node in source.used else [node]
        for passed in later:
            for target in values.candidates(passed, scope):
                # A partial that is made here is a call by itself.
                made = isinstance(target, functools.partial) and isinstance(passed, ast.Call)
                if callable(target) and not isinstance(target, type) and made == (passed is node):
                    yield call(target, passed, True)

    def _values(self, work: _Work) -> Values:
        def near(name: str) -> bool:
            """Whether a module that is not imported yet is the user's own."""
            spec = importlib.util.find_spec(name)
            return spec is not None and not _is_installed(spec.origin or "built-in")

        known = self._kept_of(work.function).known
        return Values(work.function, work.receiver, self.assume, near, known)

    def _kept_of(self, function: FunctionType) -> _Kept:
        return self._kept.setdefault(id(function), _Kept(function))


_DESCRIPTORS = (staticmethod, classmethod, property, functools.cached_property)


def _is_function(value: Any) -> bool:
    return isinstance(value, FunctionType | MethodType | functools.partial) or callable(
        _wrapped(value)
    )


def _inside(value: Any) -> Any:
    """Return what a decorator, a partial or a descriptor has wrapped."""
    match value:
        case MethodType() | classmethod() | staticmethod():
            return value.__func__
        case functools.partial() | functools.partialmethod() | functools.cached_property():
            return value.func
        case property():
            return value.fget
    return _wrapped(value)


def _wrapped(value: Any) -> Any:
    try:
        return getattr(value, "__wrapped__", None)
    except Exception:  # whatever an attribute of the user's own class raises
        return None


def _package(function: FunctionType) -> str:
    # Of the code itself: functools.wraps copies __module__ from another function.
    return str(function.__globals__.get("__name__", "")).partition(".")[0]


def _is_standard(function: FunctionType) -> bool:
    return _package(function) in sys.stdlib_module_names and not _is_own(function)


def _is_own(function: FunctionType) -> bool:
    """Whether a function stands in a file, or notebook, that is not of an installed package."""
    return not _is_installed(function.__code__.co_filename)


@functools.lru_cache(maxsize=4096)
def _is_installed(file: str) -> bool:
    if file in ("built-in", "frozen") or file.startswith("<frozen"):
        return True
    path = Path(file)
    standard = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return bool(installed) or any(path.is_relative_to(folder) for folder in standard)
