"""The QSD layer, which takes the place of ``torch.nn.Dropout``, and what all layers share."""

# No annotations as strings here: with them, torch.fx could not save a graph made of `forward`.

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quantal._arguments import axes_as_given, flag
from quantal._errors import wrong_type, wrong_value
from quantal._granularity import Axes
from quantal.dilution import Dilution, Vary
from quantal.keys import Key, _integer
from quantal.torch._apply import apply_coefficients, zeros
from quantal.torch._draws import COUNTING
from quantal.torch._functional import (
    check_axes,
    check_generator,
    check_input,
    check_tensor,
    dilute,
    number,
    refuse_recomputation,
)
from quantal.torch._private_api import (
    Code,
    MoveHook,
    function_modes_active,
    in_graph,
    kind_of_code,
    modes_active,
    without_function_modes,
    without_modes,
)
from quantal.torch._special_tensors import dilute_special, is_special
from quantal.torch._tables import DeviceTables, tables

__all__ = ["QSD", "DilutionLayer"]


class DilutionLayer(MoveHook):
    """What `QSD`, `QSD1d`, `QSD2d` and `QSD3d` share: all but the axes that share a coefficient.

    Each of them is also a subclass of the layer of torch whose place it takes, so that code which
    looks for dropout finds it.
    """

    _own_dims: tuple[int, ...] = ()
    _native: type[nn.Module] | None = None  # the class that the layer had before `convert`
    _added: tuple[str, ...]  # the attributes that `convert` has given it
    _tables: DeviceTables
    inplace: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "_diluted" not in vars(cls):  # else made by `convert`, and no concern of a registry
            super().__init_subclass__(**kwargs)

    def __init__(
        self,
        p: float | None = None,
        alpha: float | None = None,
        inplace: bool = False,
        *,
        rate: float | None = None,
        vary: Vary = "pq",
        unit_mean: bool = False,
        broadcast_dims: Axes = (),
        p_broadcast_dims: Axes = (),
        generator: torch.Generator | Key | None = None,
    ) -> None:
        nn.Module.__init__(self)  # that of torch's layer would set p before alpha is known
        if p is not None and rate is not None:
            raise wrong_value("rate", "p or rate, not both", rate)
        if p is None:
            p = 0.5 if rate is None else rate
        self.inplace = inplace
        # Not by the properties: nn.Module bypasses them where the value is a module.
        self._broadcast_dims = axes_as_given("broadcast_dims", broadcast_dims)
        self._p_broadcast_dims = axes_as_given("p_broadcast_dims", p_broadcast_dims)
        self.generator = generator
        self.calls = 0
        self._device = torch.device("cpu")
        self.dilution = Dilution(number(p), number(alpha), vary=vary, unit_mean=unit_mean)

    # --- parameters ----------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), property):
            # torch would register a parameter or a module of that name beside the property.
            object.__setattr__(self, name, value)
            return
        if name == "inplace":
            value = flag(name, value)
        elif name == "generator":
            check_generator(value)
        super().__setattr__(name, value)

    @property
    def dilution(self) -> Dilution:
        """The law of the coefficients."""
        return self._dilution

    @dilution.setter
    def dilution(self, law: Dilution) -> None:
        if not isinstance(law, Dilution):
            raise wrong_type("dilution", "a quantal.Dilution", law)
        self._dilution = law
        # `forward` reads nothing but tensors and this, so a new law needs no new graph.
        self._limit = law.rate if law.rate in (0, 1) else None
        self._make_tables(self._device)

    @property
    def p(self) -> float:
        """The probability that a unit is dropped."""
        return self._dilution.rate

    @p.setter
    def p(self, rate: float) -> None:
        self.dilution = dataclasses.replace(self._dilution, rate=number(rate))

    rate = p

    @property
    def alpha(self) -> float:
        """The homogeneity."""
        return self._dilution.alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self.dilution = dataclasses.replace(self._dilution, alpha=number(alpha))

    @property
    def broadcast_dims(self) -> Axes:
        """The axes along which one coefficient is shared."""
        return self._broadcast_dims

    @broadcast_dims.setter
    def broadcast_dims(self, axes: Axes) -> None:
        self._broadcast_dims = axes_as_given("broadcast_dims", axes)

    @property
    def p_broadcast_dims(self) -> Axes:
        """The axes along which only the retain probability is shared."""
        return self._p_broadcast_dims

    @p_broadcast_dims.setter
    def p_broadcast_dims(self, axes: Axes) -> None:
        self._p_broadcast_dims = axes_as_given("p_broadcast_dims", axes)
        self._make_tables(self._device)

    @property
    def calls(self) -> int:
        """How many draws a portable key has served; set it to resume a run."""
        return int(self._count)

    @calls.setter
    def calls(self, count: int) -> None:
        # One number in two forms that share their memory. Eager code uses NumPy's, since torch.func
        # forbids in-place operations on captured tensors; graphs take nothing but tensors.
        self._count = np.array(_integer("calls", count, 32), np.int64)
        with torch.inference_mode(False):  # it may be increased in training
            self._calls = torch.from_numpy(self._count)

    def extra_repr(self) -> str:
        """Return the parameters as torch's layers do; those of granularity only if they are set."""
        text = f"p={self.p}, alpha={self.alpha}, inplace={self.inplace}"
        more = {"vary": self.dilution.vary, "unit_mean": self.dilution.unit_mean}
        more |= {name: getattr(self, name) for name in ("broadcast_dims", "p_broadcast_dims")}
        plain = {"vary": "pq", "unit_mean": False, "broadcast_dims": self._own_dims}
        shown = (f", {k}={v!r}" for k, v in more.items() if v != plain.get(k, ()))
        return text + "".join(shown)

    # --- the pass ------------------------------------------------------------------------------

    def forward(self, input: Tensor) -> Tensor:
        """Dilute in training; return the input itself in evaluation and at a rate of 0."""
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            return self._forward(input)
        draws = True
        if self._limit is not None:  # the compiler leaves out what follows for None
            draws = self._limit != 0
        assert not (draws and self.training), "training: expected False for QSD in scripted code"
        return input

    def _forward(self, input: Tensor) -> Tensor:
        if not isinstance(input, Tensor):
            return self._record(input)
        dims, p_dims = self._dims_for(input), self._p_broadcast_dims
        if not self.training or self._limit == 0:
            check_axes(input, dims, p_dims)
            return input
        code = kind_of_code(input)
        if code is Code.EAGER:
            if function_modes_active():  # as in a converted model: it need not see each step
                with without_function_modes():
                    return self._forward(input)
        elif is_special(input, code):
            return dilute_special(input, self._forward, dims, p_dims, self.inplace)
        mask_shape, p_shape = check_input(input, dims, p_dims)
        if self._limit == 1:
            return zeros(input, self.inplace)
        looked_up, generator, calls = self._tables_for(input, code), self.generator, None
        if generator is not None:
            generator, calls = self._source_of_this_call(code)
        return apply_coefficients(
            input, looked_up, mask_shape, p_shape, generator, self.inplace, code, calls
        )

    def _dims_for(self, input: Tensor) -> Axes:
        """Return the axes along which the units of an input share a coefficient."""
        return self._broadcast_dims

    def _record(self, proxy: Any) -> Any:
        """Appear in a graph of torch.fx as one node, as torch's own layers do."""
        if not isinstance(proxy, torch.fx.Proxy):
            check_tensor(proxy)
        tracer = proxy.tracer
        if self is not tracer.root:
            return tracer.create_proxy("call_module", tracer.path_of_module(self), (proxy,), {})
        law = self._dilution
        return dilute(
            proxy,
            law.rate,
            law.alpha,
            training=self.training,
            vary=law.vary,
            unit_mean=law.unit_mean,
            broadcast_dims=self.broadcast_dims,
            p_broadcast_dims=self.p_broadcast_dims,
            inplace=self.inplace,
        )

    def _source_of_this_call(self, code: Code) -> tuple[torch.Generator | Key, Tensor | None]:
        """Return the generator, or the key of this call; a graph folds in the count by itself."""
        generator: Any = self.generator
        if code is Code.COMPILED:
            return generator, self._calls if isinstance(generator, Key) else None
        refuse_recomputation(generator)
        if isinstance(generator, Key):
            with COUNTING():
                generator = generator.fold_in(self.calls)
                self._count[...] += 1
        return generator, None

    # --- the tables: not buffers, but made where they are needed --------------------------------

    def _tables_for(self, x: Tensor, code: Code) -> DeviceTables:
        """Return the tables for a tensor: those at hand, if they are on its device."""
        at_hand = self._tables  # read once: another thread may move them meanwhile
        here = at_hand.values.device == x.device
        if here and code is not Code.TRANSFORMED:
            return at_hand
        if in_graph(code):  # a graph cannot make them, and need not keep them
            return at_hand.to(x.device)
        if modes_active():  # where those at hand may be of the wrong kind
            return tables(self._dilution, self._shared, x.device)
        return at_hand if here else self._make_tables(x.device)

    def _make_tables(self, device: torch.device) -> DeviceTables:
        """Return the tables on a device and keep them there."""
        context: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if modes_active():  # they would end with it; those of the CPU can be moved later
            context, device = without_modes(), torch.device("cpu")
        with context:
            made = tables(self._dilution, self._shared, device)
        if device.type != "meta":  # tables there have no values that could be moved
            self._tables, self._device = made, device
        return made

    @property
    def _shared(self) -> bool:
        """Whether units share retain probabilities."""
        return self._p_broadcast_dims != ()

    def _moved(self, fn: Callable[[Tensor], Tensor]) -> None:
        self._make_tables(fn(torch.empty(0, device=self._device)).device)

    # --- saving: in plain numbers and words, so that torch.load(weights_only=True) can read it ---

    def __getstate__(self) -> dict[str, Any]:
        made_again = ("_tables", "_device", "_calls", "_count", "_dilution", "_limit")
        state = {name: value for name, value in self.__dict__.items() if name not in made_again}
        if isinstance(self.generator, Key):
            state["generator"] = (self.generator.word0, self.generator.word1)
        return state | {"_law": dataclasses.asdict(self._dilution), "_served": self.calls}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "_law" not in state:
            self._set_native_state(state)
            return
        law, calls = state.pop("_law"), state.pop("_served")
        super().__setstate__(state)
        if isinstance(self.generator, tuple):
            self.generator = Key(*self.generator)
        self.calls = calls
        self._device = torch.device("cpu")
        self.dilution = Dilution(**law)

    def _set_native_state(self, state: dict[str, Any]) -> None:
        """Take the state of a layer of torch's own: its rate and all else; alpha stays as it is."""
        if "_dilution" not in vars(self):
            expected = "a number; the state of a layer of dropout has none. Load it as dropout, and"
            raise wrong_value("alpha", f"{expected} convert it", None)
        rate = state.pop("p")
        super().__setstate__(state)
        self.p = rate

    # --- torch.jit.script compiles what `forward` has for it, and needs nothing else --------------

    __jit_ignored_attributes__ = ("_tables", "_native")
    __jit_unused_properties__ = (
        "dilution", "p", "rate", "alpha", "broadcast_dims", "p_broadcast_dims", "calls", "_shared",
    )  # fmt: skip

    def __prepare_scriptable__(self) -> "DilutionLayer":
        """Refuse to be compiled in training, unless the rate is 0 and nothing is drawn."""
        if self.training and self._limit != 0:
            raise wrong_value("training", "False for torch.jit.script: call eval() first", True)
        return self  # what else is returned takes this layer's place in the model, for good


class QSD(DilutionLayer, nn.Dropout):
    """Quantal Synaptic Dilution, in the place of ``torch.nn.Dropout``.

    Parameters
    ----------
    p : float
        The probability that a unit is dropped, by torch's name for it; 0.5 if it is left out.
    alpha : float
        The homogeneity, above 0; ``inf`` is standard dropout.
    inplace : bool
        Write the result into the input.
    rate : float
        Another name for ``p``; give only one of the two.
    vary, unit_mean
        As in `quantal.Dilution`.
    broadcast_dims, p_broadcast_dims
        As in `quantal.dilute`.
    generator : torch.Generator, quantal.key or None
        Where random numbers come from; None is torch's own stream of the input's device. With a
        key, call number n draws with ``key.fold_in(n)``; ``calls`` is that count, from 0.

    Notes
    -----
    ``p``, ``rate``, ``alpha`` and ``dilution`` may be set at any time, without a new compilation.
    The layer has no parameters and no buffers, so its state_dict is empty, like dropout's.

    Examples
    --------
    >>> layer = QSD(0.2, 0.2)
    >>> layer
    QSD(p=0.2, alpha=0.2, inplace=False)
    >>> isinstance(layer, nn.Dropout)
    True
    >>> x = torch.ones(3, 4)
    >>> layer.eval()(x) is x
    True
    """
