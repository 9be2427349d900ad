"""Methods of TorchComm that record gradients, as TORCHCOMMS_PATCH_FOR_COMPILE=1 asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchcomms._comms import TorchComm
from torchcomms.functional import _api
from torchcomms.functional._async_tensor import AsyncTensor
from torchcomms.functional._definitions import listed, operation, tensors_in
from torchcomms.functional._in_place import functional_arguments, to_write, written_tensors
from torchcomms.functional._parameters import COMM, bind
from torchcomms.functional._registry import register


def _write(target: Tensor, value: Tensor) -> None:
    """The tensor that the method writes, with the result's gradient where that can be."""
    if target.is_leaf and target.requires_grad:
        target.detach().copy_(value.detach())
    else:
        target.copy_(value)


class _Result(AsyncTensor):
    """One that is also written where the method writes it."""

    def __init__(self, tensor: Tensor, held: Sequence[Tensor], target: Tensor) -> None:
        super().__init__(tensor, held)
        self._target: Tensor | None = target

    def wait(self) -> Tensor:
        """The result, when the operation has ended. Raises the error of one that has failed."""
        target = self._target
        if target is not None:
            # A copy: autograd takes what comes out of a wait for a view of what goes in, which no
            # later operation could write.
            self._tensor = super().wait().reshape(target.shape).clone()
            self._target = None
            _write(target, self._tensor)
        return super().wait()


class _Results(list[_Result]):
    """Those of one call, whose wait() waits for all."""

    def is_completed(self) -> bool:
        return all(result.is_completed() for result in self)

    def wait(self) -> list[Tensor]:
        return [result.wait() for result in self]

    wait_blocking = wait


def _recorded(name: str, comm: TorchComm, bound: dict[str, Any]) -> Any:
    """The operation, with what its gradient needs; its results."""
    required = [bound[parameter] for parameter in COMM[name]]
    targets = written_tensors(name, required)
    if name == "scatter" and required[1] is None:
        required[1] = []
    written = {id(target) for target in targets}

    def kept(value: Any) -> Any:
        """What is read, apart from what is written: gradients need it as it is now."""
        if isinstance(value, list | tuple):
            return [kept(one) for one in value]
        return value.clone() if id(value) in written else value

    reduction: tuple[Any, ...] = ()
    if "op" in COMM[name]:
        index = COMM[name].index("op")
        required[index], *reduction = _api._reduction(required[index])  # type: ignore[assignment]
    arguments = [kept(value) for value in functional_arguments(name, required)]
    options = bound.get("options")
    hints = bound.get("hints") or (options.hints if options is not None else None)
    timeout = bound.get("timeout") or (options.timeout if options is not None else None)
    flat = [word for pair in hints.items() for word in pair] if hints else None
    limit = _api._milliseconds(timeout) if timeout else 0
    async_op = bool(bound["async_op"])
    values = operation(name)(register(comm), *arguments, async_op, flat, limit, *reduction)
    targets = to_write(name, targets, listed(values)) if targets else []
    if not targets:  # a rank that gets nothing
        return _Results() if async_op else None
    held = tensors_in(arguments)
    results: list[Any] = []
    for target, value in zip(targets, listed(values), strict=True):
        if async_op:
            results.append(_Result(value, held, target))
        else:
            results.append(value.reshape(target.shape))
            _write(target, results[-1])
    if isinstance(values, Tensor):
        return results[0]
    return _Results(results) if async_op else results


def call(
    name: str,
    method: Callable[..., Any],
    comm: TorchComm,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Calls the method, or what records the gradient where an input requires one."""
    args = [a.wait() if isinstance(a, AsyncTensor) else a for a in args]
    kwargs = {n: v.wait() if isinstance(v, AsyncTensor) else v for n, v in kwargs.items()}
    differentiates = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in tensors_in([*args, *kwargs.values()])
    )
    bound = bind(COMM[name], args, kwargs) if differentiates else None
    return method(comm, *args, **kwargs) if bound is None else _recorded(name, comm, bound)
