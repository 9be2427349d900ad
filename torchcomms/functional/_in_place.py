"""The operations that write the tensors they are given: torch.ops.torchcomms.torchcomm_<name>_.

Called, they are the methods of TorchComm, with their arguments in their order. Traced or
differentiated, they are the functional ones, and a copy of what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from torchcomms.functional._definitions import (
    LIBRARY,
    OWNED,
    REDUCTION,
    TAG,
    TAIL,
    Binder,
    call_method,
    listed,
    operation,
    tensors_in,
    written,
)
from torchcomms.functional._ops import ROW_EXCHANGES
from torchcomms.functional._registry import is_plain, works

# Of what the method requires, what the functional operation does.
_FUNCTIONAL: dict[str, Callable[..., Sequence[Any]]] = {}

# Of what the method requires, which arguments it writes.
_WRITTEN: dict[str, list[int]] = {}


def functional_arguments(name: str, required: Sequence[Any]) -> Sequence[Any]:
    """What torchcomm_<name> requires, of what torchcomm_<name>_ does."""
    return _FUNCTIONAL[name](*required)


def written_tensors(name: str, required: Sequence[Any]) -> list[Tensor]:
    """Of what torchcomm_<name>_ requires, what it writes."""
    return tensors_in([required[index] for index in _WRITTEN[name]])


def to_write(name: str, targets: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    """Those of `targets` that get `values`, the results of torchcomm_<name>. None of a rank that
    gets nothing.

    Raises:
        RuntimeError: they are not of the results' sizes and dtypes.
    """
    if name in ("gather", "gather_single") and all(value.numel() == 0 for value in values):
        return []
    if len(targets) != len(values):
        raise RuntimeError(f"{name}: got {len(targets)} tensors to write instead of {len(values)}")
    for target, value in zip(targets, values, strict=True):
        if target.numel() != value.numel():
            raise RuntimeError(
                f"{name}: got {target.numel()} elements to write instead of {value.numel()}"
            )
        if target.dtype != value.dtype:
            raise RuntimeError(f"{name}: got {target.dtype} to write instead of {value.dtype}")
    return list(targets)


def _define(
    name: str, arguments: str, functional: Callable[..., Sequence[Any]], extra: str = ""
) -> None:
    def kernel(*args: Any, **kwargs: Any) -> None:
        given = binder(args, kwargs)
        outputs = written_tensors(name, given.required)
        if is_plain(*tensors_in([*given.required, given.factor])):
            work = call_method(name, given, binder.with_reduce_op(given))
            if given.async_op:
                works.add(outputs, work)
            return
        tail = {n: getattr(given, n) for n in binder.names if hasattr(given, n)}
        tail["async_op"] = False
        new = listed(operation(name)(given.owner, *functional(*given.required), **tail))
        for output, value in zip(to_write(name, outputs, new), new, strict=False):
            output.copy_(value.reshape(output.shape))

    _FUNCTIONAL[name] = functional
    _WRITTEN[name] = written(arguments)
    LIBRARY.define(f"torchcomm_{name}_({arguments}, {TAIL}{extra}) -> ()")
    LIBRARY.impl(f"torchcomm_{name}_", kernel, "CompositeImplicitAutograd")
    binder = Binder(operation(f"{name}_")._schema)
    OWNED.append(f"{name}_")


def _same(*required: Any) -> Sequence[Any]:
    return required


def _without_output(_: Any, *required: Any) -> Sequence[Any]:
    return required


def _with_rows(outputs: Sequence[Tensor], tensor: Tensor) -> Sequence[Any]:
    return tensor.reshape(-1), [output.numel() for output in outputs]


def _with_numels(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Sequence[Any]:
    return inputs, [output.numel() for output in outputs]


def _flat(_: Tensor, input: Tensor, op: str) -> Sequence[Any]:
    return input.reshape(-1), op


def _with_splits(_: Tensor, input: Tensor, outputs: Any, inputs: Any) -> Sequence[Any]:
    return input, outputs, inputs


_define("all_reduce", "str comm, Tensor(a!) tensor, str op", _same, REDUCTION)
_define("broadcast", "str comm, Tensor(a!) tensor, int root", _same)
_define("reduce", "str comm, Tensor(a!) tensor, int root, str op", _same, REDUCTION)
_define("all_gather", "str comm, Tensor(a!)[] tensor_list, Tensor tensor", _without_output)
_define("all_gather_v", "str comm, Tensor(a!)[] tensor_list, Tensor tensor", _with_rows)
_define("all_gather_single", "str comm, Tensor(a!) output, Tensor input", _without_output)
for _name in ("reduce_scatter", "reduce_scatter_v"):
    _arguments = "str comm, Tensor(a!) output, Tensor[] input_list, str op"
    _define(_name, _arguments, _without_output, REDUCTION)
_arguments = "str comm, Tensor(a!) output, Tensor input, str op"
_define("reduce_scatter_single", _arguments, _flat, REDUCTION)
_define("all_to_all_single", "str comm, Tensor(a!) output, Tensor input", _without_output)
_define(
    "all_to_all_v_single",
    "str comm, Tensor(a!) output, Tensor input, SymInt[] output_split_sizes, "
    "SymInt[] input_split_sizes",
    _with_splits,
)
_define(
    "all_to_all",
    "str comm, Tensor(a!)[] output_tensor_list, Tensor[] input_tensor_list",
    _with_numels,
)
_arguments = "str comm, Tensor(a!) output_tensor, Tensor[] input_tensor_list, int root"
_define("scatter", _arguments, _same)
_arguments = "str comm, Tensor(a!)[] output_tensor_list, Tensor input_tensor, int root"
_define("gather", _arguments, _without_output)
_define("gather_single", "str comm, Tensor(a!) output, Tensor input, int root", _without_output)
_define("recv", "str comm, Tensor(a!) tensor, int src", _same, TAG)
for _name, _arguments in ROW_EXCHANGES.items():
    _define(_name, f"str comm, {_arguments}", _same)
_define("window_get", "str window, Tensor(a!) tensor, int src_rank, SymInt offset", _same)


def _wait_tensors(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """`tensors`, when the operations that write them have ended."""
    if is_plain():
        works.wait(tensors)
    else:
        for tensor, value in zip(tensors, operation("wait_tensors")(tensors), strict=True):
            tensor.copy_(value)
    return tensors


LIBRARY.define("torchcomm_wait_tensors_(Tensor(a!)[] tensors) -> Tensor(a!)[]")
LIBRARY.impl("torchcomm_wait_tensors_", _wait_tensors, "CompositeImplicitAutograd")
