"""Results that are on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchcomms.functional._registry import works


class AsyncTensor:
    """The result of an operation that goes on: wait() makes it a tensor.

    Functions of torch that get one wait for it, and so do its methods and operators that are those
    of a tensor. It can be passed out of compiled code."""

    def __init__(self, tensor: Tensor, held: Sequence[Tensor]) -> None:
        """`held` is what the operation reads."""
        self._tensor = tensor
        self._held = list(held)
        self._pending = True

    @property
    def shape(self) -> torch.Size:
        """Of the result."""
        return self._tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the result."""
        return self._tensor.dtype

    @property
    def device(self) -> torch.device:
        """Of the result."""
        return self._tensor.device

    def is_completed(self) -> bool:
        """Whether wait() would return at once; never blocks."""
        found = works.find([self._tensor]) if self._pending else []
        return all(work.is_completed() for work in found)

    def wait(self) -> Tensor:
        """The result, when the operation has ended. Raises the error of one that has failed."""
        if self._pending:
            operations = torch.ops.torchcomms
            self._tensor = operations.torchcomm_wait_tensors([self._tensor], self._held)[0]
            self._pending = False
            self._held = []
        return self._tensor

    def wait_blocking(self) -> Tensor:
        """As wait()."""
        return self.wait()

    def __getattr__(self, name: str) -> Any:
        """What a tensor has, of the result."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.wait(), name)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        from torch.utils._pytree import tree_map

        def waited(value: Any) -> Any:
            return value.wait() if isinstance(value, AsyncTensor) else value

        return function(*tree_map(waited, args), **tree_map(waited, kwargs or {}))


def _of_result(name: str) -> Callable[..., Any]:
    def operator(self: AsyncTensor, *args: Any) -> Any:
        return getattr(self.wait(), name)(*args)

    return operator


for _name in (
    *("neg", "abs", "invert", "getitem", "len", "iter", "bool", "float", "int"),
    *(f"{side}{name}" for name in ("add", "sub", "mul", "truediv", "pow") for side in ("", "r")),
    *(f"{side}{name}" for name in ("mod", "floordiv", "and", "or", "xor") for side in ("", "r")),
    *("matmul", "rmatmul", "lt", "le", "gt", "ge", "ne", "eq"),
):
    setattr(AsyncTensor, f"__{_name}__", _of_result(f"__{_name}__"))
