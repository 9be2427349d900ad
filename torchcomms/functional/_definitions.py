"""How operations are defined, and what all have in common.

After what their methods require come `async_op`; `hints`, keys and values in turn; `timeout` in
milliseconds, 0 for the communicator's. A reduction is its name, as "SUM"; PREMUL_SUM has `scale`, a
number, or `factor`, a tensor.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcomms._comms import RecvOptions, RedOpType, ReduceOp, SendOptions
from torchcomms.functional._registry import comm_of, window_of, works

LIBRARY: Any = torch.library.Library("torchcomms", "DEF")  # type: ignore[no-untyped-call]

# The operations that belong to a communicator or a window: their first argument is its name.
OWNED: list[str] = []

TAIL = "bool async_op=False, str[]? hints=None, int timeout=0"
REDUCTION = ", float? scale=None, Tensor? factor=None"
TAG = ", int tag=0"


def milliseconds(timeout: datetime.timedelta) -> int:
    """Rounded up. What is too long to be told, as timedelta.max, is as long as can be."""
    one = datetime.timedelta(milliseconds=1)
    whole, rest = divmod(timeout, one)
    return min(whole + bool(rest), datetime.timedelta.max // one)


@dataclass
class Given:
    """The arguments of one call."""

    owner: str  # a communicator or a window
    required: list[Any]
    async_op: bool
    hints: list[str] | None
    timeout: int
    scale: float | None = None
    factor: Tensor | None = None
    tag: int = 0

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.hints:
            options["hints"] = dict(zip(self.hints[::2], self.hints[1::2], strict=True))
        if self.timeout:
            options["timeout"] = datetime.timedelta(milliseconds=self.timeout)
        return options


class Binder:
    """Sorts the arguments of calls of one operation."""

    def __init__(self, schema: Any) -> None:
        self.names = [argument.name for argument in schema.arguments]
        self._defaults = {
            a.name: a.default_value for a in schema.arguments if a.has_default_value()
        }
        self._required = self.names.index("async_op")

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Given:
        given = {**self._defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
        owner, *required = (given[name] for name in self.names[: self._required])
        return Given(
            owner, required, **{name: given[name] for name in self.names[self._required :]}
        )

    def with_reduce_op(self, given: Given) -> list[Any]:
        """What is required, with the ReduceOp that the arguments tell."""
        if "op" not in self.names:
            return given.required
        required = list(given.required)
        index = self.names.index("op") - 1
        required[index] = _reduce_op(required[index], given.scale, given.factor)
        return required


def _reduce_op(op: str, scale: float | None, factor: Tensor | None) -> ReduceOp:
    if op == "PREMUL_SUM":
        value: float | Tensor | None = factor if factor is not None else scale
        if value is None:
            raise ValueError("PREMUL_SUM needs a scale or a factor")
        return ReduceOp.PREMUL_SUM(value)
    try:
        return ReduceOp(RedOpType.__members__[op])
    except KeyError:
        known = ", ".join(RedOpType.__members__)
        raise ValueError(f"There is no reduction {op!r}: it is one of {known}") from None


# What numbered signals are to the methods of a window.
_METHODS = {"set_signal": "signal", "compare_signal": "wait_signal"}


def call_method(name: str, given: Given, required: Sequence[Any]) -> Any:
    """Calls the method that an operation stands for; its work."""
    options = given.options()
    if name == "send":
        options = {"options": SendOptions(tag=given.tag, **options)}
    elif name == "recv":
        options = {"options": RecvOptions(tag=given.tag, **options)}
    method = name.removeprefix("window_")
    owner: Any = comm_of(given.owner) if method == name else window_of(given.owner)
    return getattr(owner, _METHODS.get(method, method))(*required, given.async_op, **options)


def listed(outputs: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else outputs


def tensors_in(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among them, and in the lists among them."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend([v for v in value if isinstance(v, Tensor)])
    return found


def written(arguments: str) -> list[int]:
    """Which of the arguments after the first a schema says are written."""
    return [i for i, argument in enumerate(arguments.split(", ")[1:]) if "!" in argument]


def operation(name: str) -> Any:
    """The overload torchcomm_<name>."""
    return getattr(torch.ops.torchcomms, f"torchcomm_{name}").default


def define(
    name: str,
    arguments: str,
    returns: str,
    kernel: Callable[..., Any],
    shapes: Callable[..., Any],
) -> None:
    """Defines torchcomm_<name>, which graphs keep, and in order."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
    from torch.fx.node import has_side_effect

    LIBRARY.define(f"torchcomm_{name}({arguments}) -> {returns}")
    LIBRARY.impl(f"torchcomm_{name}", kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torchcomms::torchcomm_{name}", shapes, lib=LIBRARY)
    _register_effectful_op(operation(name), _EffectType.ORDERED)
    has_side_effect(operation(name))
    if arguments.startswith(("str comm", "str window")):
        OWNED.append(name)


def into_new(
    name: str,
    arguments: str,
    shapes: Callable[..., Any],
    required: Callable[..., Sequence[Any]],
    returns: str = "Tensor",
    extra: str = "",
    call: Callable[[str, Given, Sequence[Any]], Any] = call_method,
) -> None:
    """Defines an operation that writes what `shapes(owner, *arguments)` makes, on fake tensors too.

    `required(outputs, *arguments)` is what its method requires."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = binder(args, kwargs)
        outputs = shapes(given.owner, *given.required)
        work = call(name, given, required(outputs, *binder.with_reduce_op(given)))
        if given.async_op:
            works.add(listed(outputs), work)
        return outputs

    def fake(*args: Any, **kwargs: Any) -> Any:
        given = binder(args, kwargs)
        return shapes(given.owner, *given.required)

    define(name, f"{arguments}, {TAIL}{extra}", returns, kernel, fake)
    binder = Binder(operation(name)._schema)


def changing(name: str, arguments: str, extra: str = "") -> None:
    """Defines an operation that changes its first tensor: here, a copy of it.

    There is _<name>_ too, which changes the tensor: lowerings choose which memory that is."""

    def change(tensor: Tensor, given: Given) -> None:
        _, *required = binder.with_reduce_op(given)
        work = call_method(name, given, [tensor, *required])
        if given.async_op:
            works.add([tensor], work)

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        given = binder(args, kwargs)
        output = given.required[0].clone(memory_format=torch.contiguous_format)
        change(output, given)
        return output  # type: ignore[no-any-return]

    def in_place(*args: Any, **kwargs: Any) -> None:
        given = binder(args, kwargs)
        change(given.required[0], given)

    def fake(_: str, tensor: Tensor, *__: Any, **___: Any) -> Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    arguments = f"{arguments}, {TAIL}{extra}"
    define(name, arguments, "Tensor", kernel, fake)
    binder = Binder(operation(name)._schema)
    define_lowered(f"_{name}_", arguments.replace("Tensor tensor", "Tensor(a!) tensor"), in_place)


def updating(name: str, arguments: str) -> None:
    """Defines an operation that changes parts of the tensors that `arguments` marks as written:
    here, of copies, which it returns one after another."""
    indices = written(arguments)

    def fresh(value: Any, index: int) -> Any:
        if isinstance(value, (list, tuple)):
            return [fresh(v, index) for v in value]
        if not isinstance(value, Tensor):
            return value
        if index in indices:
            return value.clone(memory_format=torch.contiguous_format)
        return value.contiguous()

    def kernel(*args: Any, **kwargs: Any) -> list[Tensor]:
        given = binder(args, kwargs)
        required = [fresh(value, index) for index, value in enumerate(given.required)]
        outputs = tensors_in([required[index] for index in indices])
        work = call_method(name, given, required)
        if given.async_op:
            works.add(outputs, work)
        return outputs

    def fake(*args: Any, **kwargs: Any) -> list[Tensor]:
        required = binder(args, kwargs).required
        changed = tensors_in([required[index] for index in indices])
        return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in changed]

    define(name, f"{re.sub(r'[(].!?[)]', '', arguments)}, {TAIL}", "Tensor[]", kernel, fake)
    binder = Binder(operation(name)._schema)


def define_lowered(name: str, arguments: str, kernel: Callable[..., None]) -> None:
    """Defines what a lowering makes of an operation."""
    LIBRARY.define(f"{name}({arguments}) -> ()")
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torchcomms::{name}", lambda *_, **__: None, lib=LIBRARY)
