"""The masks that torch draws without QSD: random numbers are followed through all operations.

A mask is what drops units: random numbers of which some are zero, by which numbers are multiplied,
or that say where numbers are replaced. Random numbers that are added, looked up by, or sorted are
not. Torch itself says what is random, by tags of its operators. Numbers that come from Python or
NumPy are random if they are others in a second run of the same program.
"""

from __future__ import annotations

import enum
import itertools
import math
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from quantal._process_lock import ProcessLock
from quantal._watch import NativeMask, in_package, short, stack_frames
from quantal.torch._private_api import (
    DispatchMode,
    flatten,
    has_values,
    identity_of_memory,
    in_backward_pass,
    is_checkpoint,
    is_of_compiler,
    rates_of_dropout,
)

__all__ = ["DROPOUT", "MaskWatch", "native_masks"]

_WATCHING = ProcessLock(threading.RLock)

DROPOUT = re.compile("drop_?(out|block)", re.IGNORECASE)
"""The names of code that says of itself that it drops units."""

# Operators that write all of a tensor, whatever it was before.
_FILLED = frozenset({"zero", "fill", "copy"})
_FILLED_BY_CHANCE = frozenset(
    {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform"}
)
_ROUNDED = ("ceil", "floor", "round", "trunc")
# What these return chooses among samples, such as tokens.
_ORDERED = ("argsort", "sort", "topk")
# Whole numbers and truth values of the model choose among random numbers, or are combined with
# them; what comes out is as random as before.
_CHOSEN = frozenset(
    {"bitwise_and", "bitwise_or", "embedding", "gather", "index", "index_select", "logical_and",
     "logical_or", "masked_fill", "mul"}
)  # fmt: skip
_MULTIPLIED = ("addcmul", "lerp", "mul")
# The positions of the numbers of which some are replaced, of what says which, and of what by.
_REPLACED = {
    "index_fill": (0, 2, 3),
    "index_put": (0, 1, 2),
    "masked_fill": (0, 1, 2),
    "scatter": (0, 2, 3),
}
# The rates that comparisons of numbers between 0 and 1 make.
_COMPARED: dict[str, Callable[[float], float]] = {
    **dict.fromkeys(("gt", "ge"), lambda number: number),
    **dict.fromkeys(("lt", "le"), lambda number: 1 - number),
}
# Among so many numbers or more, those that are zero tell whether they are a mask.
_MANY = 64


class _Kind(enum.IntEnum):
    """What a tensor is whose values do not come from the model; of several, the largest counts."""

    CONSTANT = 1
    FOREIGN = 2  # from Python or NumPy
    MASK = 3  # few values, chosen at random
    NUMBERS = 4


class _Draw:
    """A call that has drawn random numbers."""

    def __init__(self, owner: nn.Module | None, rate: float = math.nan) -> None:
        self.rate, self.owner, self.frames = rate, owner, stack_frames()
        self.found = False

    def says_so(self) -> bool:
        """Return whether code that is dropout by its name has drawn: a function, or a layer."""
        users = (frame for frame in self.frames if not in_package(frame, "torch", "quantal"))
        names = [frame.function.rpartition(".")[2] for frame in users][:1]
        if self.owner is not None and not any(self.owner.children()):
            names.append(type(self.owner).__name__)
        return any(map(DROPOUT.search, names))


class _Trace(NamedTuple):
    """What is known of a tensor, which is kept alive so that its memory is no other's."""

    kind: _Kind
    draws: frozenset[_Draw] = frozenset()
    outside: bool = False  # made by code that belongs to no module
    tensor: Tensor | None = None


class _Use(NamedTuple):
    """Where a mask may drop numbers: which it multiplies or, where it is true, replaces."""

    mask: Tensor
    numbers: Any
    by: Any = None
    inverted: bool = False  # it is true where they stay


class MaskWatch(DispatchMode):
    """Within it, every operation is looked at, and masks that are drawn are found.

    Attributes
    ----------
    found : list of NativeMask
        The masks that were found.
    owners : list of nn.Module or None
        What has drawn each of them.
    diluted : bool
        Whether QSD has drawn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[NativeMask] = []
        self.owners: list[nn.Module | None] = []
        self.diluted = False
        self._traces: dict[int, _Trace] = {}
        self._foreign: list[tuple[_Draw, Tensor]] = []  # what may be masks, and what they drop

    def run(self, program: Callable[[], Any]) -> None:
        """Run a program in this mode; twice, if only this tells what is random."""
        with self, _also_in_new_threads(self):
            program()
            if first := self._foreign:
                found, self._foreign = len(self.found), []
                program()
                del self.found[found:], self.owners[found:]
                for (draw, before), (_, now) in zip(first, self._foreign, strict=False):
                    if before.shape == now.shape and not torch.equal(before, now):
                        self._find(draw)

    def owner(self) -> nn.Module | None:
        """Return the innermost module that runs, where modules are known."""
        return None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at it."""
        kwargs = kwargs or {}
        if in_backward_pass() and _repeats():
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        base = name.removesuffix("_")
        for use in _uses(base, args):  # before the operator can write into what it is given
            self._look_at(use)
        outputs = func(*args, **kwargs)
        made = _tensors(outputs)
        if rates := rates_of_dropout(func, args, kwargs):
            self._find(_Draw(self.owner(), rates[0]))
            trace = None
        elif torch.Tag.nondeterministic_seeded in func.tags:
            trace = self._drawn(base, name != base, args, kwargs)
            if trace and any(map(_has_units, made)):
                for draw in filter(_Draw.says_so, trace.draws):
                    self._find(draw)
        else:
            trace = self._passed_on(base, args, kwargs, made)
        for tensor in filter(_has_units, made):
            self._keep(tensor, trace)
        return outputs

    # --- where random numbers go -----------------------------------------------------------------

    def _trace(self, x: Any) -> _Trace | None:
        """Return what is known of a tensor; None for all that a model computes or is given."""
        trace = self._traces.get(identity_of_memory(x)) if isinstance(x, Tensor) else None
        # What a training step makes outside of the model is what the model is given.
        return None if trace and trace.outside and self.owner() else trace

    def _keep(self, x: Tensor, trace: _Trace | None) -> None:
        if trace is None:
            self._traces.pop(identity_of_memory(x), None)
        else:
            self._traces[identity_of_memory(x)] = trace._replace(
                outside=trace.outside or self.owner() is None, tensor=x
            )

    def _drawn(self, base: str, in_place: bool, args: Any, kwargs: Any) -> _Trace | None:
        """Return what is drawn; None for samples of what the model has computed."""
        if _is_for_qsd():
            self.diluted = True
            return None
        fills = in_place and base in _FILLED_BY_CHANCE
        sources = [] if base.endswith("_like") else _tensors((args, kwargs))[fills:]
        of_data = any(self._trace(each) is None for each in filter(_has_units, sources))
        if base == "bernoulli":
            given = args[1] if len(args) > 1 else kwargs.get("p", 0.5 if in_place else args[0])
            rate = 1 - _number(given)
            return _Trace(_Kind.MASK, frozenset({_Draw(self.owner(), rate)}))
        if of_data:
            return None
        coin = base in ("randint", "random") and [*filter(_is_number, args)][-1:] == [2]
        coin |= base == "binomial" and has_values(args[0]) and bool((args[0] <= 1).all())
        kind = _Kind.MASK if coin else _Kind.NUMBERS
        return _Trace(kind, frozenset({_Draw(self.owner())}))

    def _passed_on(self, base: str, args: Any, kwargs: Any, made: list[Tensor]) -> _Trace | None:
        """Return what is known of what an operator makes of its inputs."""
        sources = [x for x in _tensors((args, kwargs)) if _has_units(x)]
        if base.endswith("_like") or base.startswith("new_"):
            sources = []
        elif base in _FILLED and sources and _is_whole(sources[0]):
            del sources[0]
        known = {id(x): trace for x in sources if (trace := self._trace(x))}
        data = [x for x in sources if id(x) not in known]
        traces = list(known.values())
        kind = max((trace.kind for trace in traces), default=_Kind.CONSTANT)
        truth = bool(made) and made[0].dtype == torch.bool
        if base == "lift_fresh":
            return None if _is_for_qsd() else _Trace(_Kind.FOREIGN)
        if base in _ORDERED:
            return None
        if data:
            chosen = base in _CHOSEN and not any(x.is_floating_point() for x in data)
            if kind is _Kind.CONSTANT or not (truth or chosen):
                return None
        if kind is _Kind.NUMBERS and (truth or base in _ROUNDED):
            kind = _Kind.MASK
        elif base in _REPLACED and traces[0].kind is _Kind.CONSTANT and kind is _Kind.NUMBERS:
            kind = _Kind.MASK  # of random places
        elif base == "where" and kind is _Kind.MASK and not _makes_mask(args[1:]):
            return None
        draws = frozenset().union(*(trace.draws for trace in traces))
        if base in _COMPARED and len(draws) == 1:
            for draw in draws:
                draw.rate = _COMPARED[base](_number(args[1]))
        return _Trace(kind, draws, any(trace.outside for trace in traces))

    # --- what masks do ---------------------------------------------------------------------------

    def _look_at(self, use: _Use) -> None:
        """Find the mask of an operation, if it is one and drops numbers."""
        trace = self._trace(use.mask)
        if trace is None or trace.kind is _Kind.CONSTANT or not self._are_units(use, trace):
            return
        if use.by is None:
            if not _drops(use.mask, trace.kind):
                return
        elif _has_other_than_zeros(use.by) and not _is_by_unit(use):
            return
        if use.mask.dtype == torch.bool or use.by is None:
            dropped = use.mask == 0 if use.by is None or use.inverted else use.mask
        else:
            dropped = use.mask  # the places of what is dropped
        if trace.kind is _Kind.FOREIGN:
            self._foreign.append((_Draw(self.owner()), dropped.clone()))
        for draw in trace.draws:
            draw.rate = _agreeing(draw.rate, dropped)
            self._find(draw)

    def _are_units(self, use: _Use, of_mask: _Trace) -> bool:
        """Return whether the numbers are what a model computes, and not what masks are made of."""
        x = use.numbers
        if x is use.mask:
            return True
        if not isinstance(x, Tensor) or not x.is_floating_point() or not _has_units(x):
            return False
        trace = self._trace(x)
        if trace is None:
            return True
        if trace.kind in (_Kind.MASK, _Kind.NUMBERS):
            return trace.kind is _Kind.NUMBERS and not trace.draws & of_mask.draws
        return not _are_alike(x)

    def _find(self, draw: _Draw) -> None:
        if not draw.found:
            draw.found = True
            self.found.append(NativeMask(short(draw.rate), draw.frames))
            self.owners.append(draw.owner)


def native_masks(run: Callable[[], Any]) -> list[NativeMask]:
    """Run a function, and return every mask that is drawn meanwhile.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(8)
    >>> [mask.rate for mask in native_masks(lambda: torch.dropout(x, 0.25, True))]
    [0.25]
    """
    watch = MaskWatch()
    watch.run(run)
    return watch.found


@contextmanager
def _also_in_new_threads(mode: Any) -> Iterator[None]:
    """Within it, threads that are started are in a mode, which belongs to one thread else."""
    with _WATCHING():  # or what one watch puts back might be what another has set
        run = threading.Thread.run

        def run_in_mode(self: threading.Thread) -> None:
            with mode:
                run(self)

        threading.Thread.run = run_in_mode  # type: ignore[method-assign]
        try:
            yield
        finally:
            threading.Thread.run = run  # type: ignore[method-assign]


def _repeats() -> bool:
    """Return whether what runs in a backward pass repeats what has been seen.

    So do the derivatives of torch's functions, which no code in Python calls, and checkpoints.
    """
    frames, frame = [], sys._getframe(2)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    # Between an operator and its mode, the compiler may have put functions of its own.
    caller = next(frame for frame in frames if not is_of_compiler(frame))
    by_torch = caller.f_globals.get("__name__") == "torch.autograd.graph"
    return by_torch or any(map(is_checkpoint, frames))


def _is_for_qsd() -> bool:
    """Return whether code of this package runs, and not what it calls in the place of others."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not MaskWatch.run.__code__:
        name = str(frame.f_globals.get("__name__", ""))
        package = name.partition(".")[0]
        if package != "torch" and name not in (__name__, *_PASSING_ON):
            return package == "quantal"
        frame = frame.f_back
    return False


_PASSING_ON = ("quantal.torch._reroute", "quantal.torch._running")


def _uses(base: str, args: Any) -> Iterator[_Use]:
    """Walk through what may be masks among the inputs of an operator."""
    if base in _MULTIPLIED:
        operands = [x for x in args if isinstance(x, Tensor)]
        for mask, numbers in itertools.permutations(operands, 2):
            yield _Use(mask, numbers)
    elif base == "diag_embed":  # a matrix that another one is multiplied by
        yield _Use(args[0], args[0])
    elif base == "where" and len(args) == 3:
        yield _Use(args[0], args[1], args[2], inverted=True)
        yield _Use(args[0], args[2], args[1])
    elif base in _REPLACED:
        numbers, masks, by = (args[place] for place in _REPLACED[base])
        for mask in _tensors(masks):
            yield _Use(mask, numbers, by)


def _drops(mask: Tensor, kind: _Kind) -> bool:
    """Return whether numbers that are multiplied by a mask are dropped: some of them are zero."""
    if not has_values(mask):
        return kind is not _Kind.NUMBERS
    zeros = mask == 0
    if kind is not _Kind.NUMBERS:
        # A small mask may have dropped none this time.
        return bool(zeros.any()) or _are_alike(mask)
    share = zeros.double().mean().item()
    return mask.numel() >= _MANY and 0.01 < share < 1 and _are_alike(mask[~zeros])


def _is_by_unit(use: _Use) -> bool:
    """Return whether a mask decides for each unit, not for whole samples or tokens."""
    mask = use.mask
    alike = bool(mask.dim() == use.numbers.dim())
    return mask.dtype == torch.bool and alike and mask.dim() > 1 and mask.shape[-1] > 1


def _agreeing(rate: float, dropped: Tensor) -> float:
    """Return the rate of a draw, or of its contrary, if so many were dropped; else NaN."""
    if dropped.dtype != torch.bool or not has_values(dropped):
        return rate
    share, count = dropped.double().mean().item(), dropped.numel()
    for r in (rate, 1 - rate):
        if 0 < r < 1 and abs(r - share) < 5 * math.sqrt(r * (1 - r) / count) + 1 / count:
            return r
    return math.nan


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, Tensor)]


def _has_units(x: Tensor) -> bool:
    # One number decides about a whole model or layer, not about units; but where it has axes, it
    # is for a batch of one.
    return x.numel() > 1 or x.dim() > 1


def _is_whole(x: Tensor) -> bool:
    """Return whether a tensor is all that there is in its memory."""
    return x.layout == torch.strided and x.nbytes == x.untyped_storage().nbytes()


def _are_alike(x: Tensor) -> bool:
    return has_values(x) and (x.numel() == 0 or bool((x == x.flatten()[0]).all()))


def _makes_mask(choices: Any) -> bool:
    """Return whether what is chosen by a mask is one: of two numbers, one is zero."""
    numbers = [x for x in choices if isinstance(x, Tensor) and has_values(x)]
    return all(map(_are_alike, numbers)) and any(bool((x == 0).any()) for x in numbers)


def _has_other_than_zeros(x: Any) -> bool:
    return bool((x != 0).any() if isinstance(x, Tensor) and has_values(x) else x != 0)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float)


def _number(x: Any) -> float:
    """Return a number, also that of which a whole tensor consists; else NaN."""
    if isinstance(x, Tensor) and x.numel() and _are_alike(x):
        x = x.flatten()[0].item()
    return float(x) if _is_number(x) else math.nan
