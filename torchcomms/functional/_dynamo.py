"""What communicators and windows are to Dynamo, the tracer of torch.compile.

Their operations become those of _methods.py; what they say of themselves becomes constants. A
compiled function belongs to the very communicator that it was traced with: another one makes torch
compile it again.
"""

from __future__ import annotations

import datetime
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.misc import GetAttrVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.user_defined import (
    UserDefinedClassVariable,
    UserDefinedObjectVariable,
)

from torchcomms._comms import BatchSendRecv, ReduceOp, SignalCmpOp, TorchComm, TorchCommWindow
from torchcomms.functional import _methods
from torchcomms.functional._definitions import milliseconds
from torchcomms.functional._parameters import COMM, NUMBERED_SIGNALS, PERSISTENT, WINDOW, bind
from torchcomms.functional._registry import register, register_window

_MAY_BE_NONE = ("output_tensor_list", "input_tensor_list")
_CONSTANT_METHODS = (
    "get_rank",
    "get_size",
    "get_name",
    "get_ranks",
    "get_device",
    "get_backend",
    "get_backend_version",
)
_WINDOW_CONSTANT_METHODS = ("get_size", "get_device")


class _NotTraceable(Exception):
    """The graph breaks; the call says why, if it is wrong."""


def _constant(value: Any) -> Any:
    return ConstantVariable.create(value)


def _tuple(values: list[VariableTracker]) -> VariableTracker:
    return TupleVariable(values)


def _real(variable: VariableTracker) -> Any:
    """The object behind a variable, on whose identity the compiled code depends from now on."""
    variable = variable.realize()
    if isinstance(variable, UserDefinedObjectVariable):
        if variable.source is not None:
            install_guard(variable.source.make_guard(GuardBuilder.ID_MATCH))
        return variable.value
    try:
        return variable.as_python_constant()
    except NotImplementedError:
        raise _NotTraceable from None


def _bound(
    parameters: tuple[str, ...], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> dict[str, VariableTracker]:
    bound = bind(parameters, args, kwargs)
    if bound is None:
        raise _NotTraceable
    return bound


def _milliseconds(timeout: Any) -> int:
    if timeout is None:
        return 0
    if not isinstance(timeout, datetime.timedelta) or timeout < datetime.timedelta(0):
        raise _NotTraceable
    return milliseconds(timeout)


def _tail(bound: dict[str, VariableTracker]) -> tuple[list[VariableTracker], int]:
    """`hints` and `timeout` as operations take them, and the tag of a message."""
    hints: dict[str, str] = {}
    timeout = None
    tag = 0
    given = _real(bound["options"]) if "options" in bound else None
    if given is not None:
        hints, timeout, tag = dict(given.hints), given.timeout, getattr(given, "tag", 0)
    if "hints" in bound:
        hints = _real(bound["hints"]) or hints
    if "timeout" in bound:
        own = _real(bound["timeout"])
        timeout = own if own is not None else timeout
    flat = [_constant(word) for pair in hints.items() for word in pair]
    return [_tuple(flat) if flat else _constant(None), _constant(_milliseconds(timeout))], tag


def _reduction(tx: Any, variable: VariableTracker) -> list[VariableTracker]:
    """The name of a ReduceOp, its scale and its factor."""
    variable = variable.realize()
    if isinstance(variable, ScaledVariable):
        return [_constant("PREMUL_SUM"), _constant(None), variable.factor]
    op = _real(variable)
    if not isinstance(op, ReduceOp):
        raise _NotTraceable
    scale: VariableTracker = _constant(None)
    factor: VariableTracker = _constant(None)
    if isinstance(op.factor, float):
        scale = _constant(op.factor)
    elif op.factor is not None:
        if variable.source is None:
            raise _NotTraceable
        factor = VariableTracker.build(tx, op.factor, AttrSource(variable.source, "factor"))
    return [_constant(op.type.name), scale, factor]


class ScaledVariable(VariableTracker):
    """What ReduceOp.PREMUL_SUM(tensor) returns."""

    def __init__(self, factor: VariableTracker, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor


class PremulSumVariable(VariableTracker):
    """The function ReduceOp.PREMUL_SUM."""

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        factor = (args[0] if args else kwargs["factor"]).realize()
        if isinstance(factor, TensorVariable):
            return ScaledVariable(factor)
        return variable_of_constant(ReduceOp.PREMUL_SUM(factor.as_python_constant()))


def _inline(tx: Any, function: Any, args: list[VariableTracker]) -> VariableTracker:
    traced = VariableTracker.build(tx, function)
    return tx.inline_user_function_return(traced, args, {})  # type: ignore[no-any-return]


def _issue(
    tx: Any, name: str, owner: str, parameters: tuple[str, ...], bound: dict[str, VariableTracker]
) -> VariableTracker:
    async_op = _real(bound["async_op"])
    if not isinstance(async_op, bool):
        raise _NotTraceable
    rest, tag = _tail(bound)
    if name in ("send", "recv"):
        rest.append(_constant(tag))
    required = []
    for parameter in parameters:
        value = bound[parameter].realize()
        if parameter == "op":
            op, *factors = _reduction(tx, value)
            rest += factors
            value = op
        elif parameter == "cmp_op":
            given = _real(value)
            if not isinstance(given, SignalCmpOp):
                raise _NotTraceable
            value = _constant(given.name)
        elif parameter in _MAY_BE_NONE and value.is_python_constant():
            value = value if value.as_python_constant() is not None else _tuple([])
        required.append(value)
    args = [_constant(name), _constant(owner), _tuple(required), _constant(async_op), _tuple(rest)]
    return _inline(tx, _methods.issue, args)


class _Held(UserDefinedObjectVariable):
    """An object that operations are told something with. Functions that Dynamo itself calls get
    it: Dynamo of torch 2.8 to 2.11, and perhaps of later ones, asks the variable for it; that of
    2.15 takes it."""

    def reconstruct(self, codegen: Any) -> None:
        """Without a source, where a graph breaks."""
        name = codegen.tx.output.install_global_by_id("torchcomms_held", self.value)
        codegen.append_output(codegen.create_load_global(name, add=True))

    def as_python_constant(self) -> Any:
        """The object, on whose identity the compiled code depends from now on."""
        if self.source is not None:
            install_guard(self.source.make_guard(GuardBuilder.ID_MATCH))
        return self.value


class ConstructorVariable(UserDefinedClassVariable):
    """A class of what compiled code may make, of constants, and pass to operations."""

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        try:
            made = self.value(*map(_real, args), **{k: _real(v) for k, v in kwargs.items()})
        except _NotTraceable:
            return super().call_function(tx, args, kwargs)
        return _Held(made)


class _Ours(_Held):
    """An object whose methods `_trace` knows."""

    _traced: frozenset[str] = frozenset()

    def _trace(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        raise NotImplementedError

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in self._traced:
            try:
                return self._trace(tx, name, list(args), kwargs)
            except _NotTraceable:
                pass
        return super().call_method(tx, name, args, kwargs)

    def _attribute(self, name: str) -> VariableTracker | None:
        return GetAttrVariable(self, name) if name in self._traced else None

    # One of these is what Dynamo calls, depending on torch's version.

    def var_getattr(self, tx: Any, name: str) -> VariableTracker:
        return self._attribute(name) or super().var_getattr(tx, name)  # type: ignore[misc]

    def tp_getattro_impl(self, tx: Any, name: str) -> VariableTracker:
        return self._attribute(name) or super().tp_getattro_impl(tx, name)


class CommVariable(_Ours):
    """A TorchComm."""

    _traced = frozenset((*COMM, *PERSISTENT, *_CONSTANT_METHODS, "batch_op_create"))

    def _trace(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in _CONSTANT_METHODS:
            result: VariableTracker = VariableTracker.build(tx, getattr(self.value, name)())
            return result
        owner = register(self.value)  # type: ignore[arg-type]
        if name == "batch_op_create":
            return _inline(tx, _methods.batch_op_create, [_constant(owner)])
        if name in PERSISTENT:
            bound = _bound(("handle", "input"), args, kwargs)
            bound["output"] = self._output_of(tx, bound.pop("handle"))
            name = PERSISTENT[name]
            return _issue(tx, name, owner, COMM[name], bound)
        return _issue(tx, name, owner, COMM[name], _bound(COMM[name], args, kwargs))

    def as_proxy(self) -> str:
        """What operations that get the communicator are given in the graph."""
        return register(self.value)  # type: ignore[arg-type]

    def _output_of(self, tx: Any, handle: VariableTracker) -> VariableTracker:
        """Of a persistent operation."""
        found = _real(handle)
        source = handle.source
        is_own = getattr(found, "comm", None) is self.value
        if source is None or not is_own or found.output is None:
            raise _NotTraceable
        return VariableTracker.build(tx, found.output, AttrSource(source, "output"))  # type: ignore[no-any-return]


class WindowVariable(_Ours):
    """A TorchCommWindow."""

    _traced = frozenset((*WINDOW, *_WINDOW_CONSTANT_METHODS, "get_tensor", "map_remote_tensor"))

    def _trace(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in _WINDOW_CONSTANT_METHODS:
            result: VariableTracker = VariableTracker.build(tx, getattr(self.value, name)())
            return result
        owner = register_window(self.value)  # type: ignore[arg-type]
        if name in ("get_tensor", "map_remote_tensor"):
            function = VariableTracker.build(tx, getattr(_methods, f"window_{name}"))
            return tx.inline_user_function_return(function, [_constant(owner), *args], kwargs)  # type: ignore[no-any-return]
        parameters = WINDOW[name]
        numbered = "signal_disp" in kwargs or (
            len(args) > 1 and not isinstance(_real(args[1]), bool)
        )
        if name in NUMBERED_SIGNALS and numbered:
            name, parameters = NUMBERED_SIGNALS[name]
        bound = _bound(parameters, args, kwargs)
        return _issue(tx, f"window_{name}", owner, parameters, bound)

    def as_proxy(self) -> str:
        """What operations that get the window are given in the graph."""
        return register_window(self.value)  # type: ignore[arg-type]


class BatchVariable(_Ours):
    """A BatchSendRecv that was made outside compiled code, where it has what is added inside."""

    _traced = frozenset(("send", "recv", "issue"))
    _batch: VariableTracker | None = None

    def as_python_constant(self) -> Any:
        """Raises: another batch of the same communicator will do, and what it has changes."""
        return UserDefinedObjectVariable.as_python_constant(self)

    def _trace(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if self._batch is None:
            if self.source is None:
                raise _NotTraceable
            value: Any = self.value
            added = VariableTracker.build(tx, value._ops, AttrSource(self.source, "_ops"))
            of_comm = _constant(register(value._comm))
            self._batch = _inline(tx, _methods.batch_of, [of_comm, added])
        result = self._batch.call_method(tx, name, args, kwargs)
        if name != "issue":
            effects = tx.output.side_effects
            effects.store_attr(self, "_ops", effects.load_attr(self._batch, "ops"))
        return result


_KINDS = {
    TorchComm: CommVariable,
    TorchCommWindow: WindowVariable,
    BatchSendRecv: BatchVariable,
}


def variable_of_constant(value: Any) -> VariableTracker:
    """Of an object that compiled code has come by without a source that could be guarded."""
    if value is ReduceOp.PREMUL_SUM:
        return PremulSumVariable()
    return _KINDS.get(type(value), _Held)(value)


def variable_of(builder: Any, value: Any) -> VariableTracker:
    """What VariableBuilder makes of a communicator, a window, a batch, or what operations are
    told."""
    if isinstance(value, BatchSendRecv):  # others of the same communicator will do
        builder.install_guards(GuardBuilder.TYPE_MATCH)
        comm = AttrSource(builder.source, "_comm")
        install_guard(comm.make_guard(GuardBuilder.ID_MATCH))
    else:
        builder.install_guards(GuardBuilder.ID_MATCH)
    result = _KINDS.get(type(value), _Held)(value, source=builder.source)
    return builder.tx.output.side_effects.track_object_existing(value, result)  # type: ignore[no-any-return]


def constructor(builder: Any, value: type) -> VariableTracker:
    """What VariableBuilder makes of a class that ConstructorVariable is for."""
    builder.install_guards(GuardBuilder.ID_MATCH)
    return ConstructorVariable(value, source=builder.source)
