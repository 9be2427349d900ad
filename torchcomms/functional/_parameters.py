"""How the methods of communicators and windows are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

_T = TypeVar("_T")

# The parameters of the methods up to `async_op`.
COMM = {
    "send": ("tensor", "dst"),
    "recv": ("tensor", "src"),
    "broadcast": ("tensor", "root"),
    "all_reduce": ("tensor", "op"),
    "reduce": ("tensor", "root", "op"),
    "all_gather": ("tensor_list", "tensor"),
    "all_gather_v": ("tensor_list", "tensor"),
    "all_gather_single": ("output", "input"),
    "reduce_scatter": ("output", "input_list", "op"),
    "reduce_scatter_v": ("output", "input_list", "op"),
    "reduce_scatter_single": ("output", "input", "op"),
    "all_to_all_single": ("output", "input"),
    "all_to_all_v_single": ("output", "input", "output_split_sizes", "input_split_sizes"),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
    "barrier": (),
    "scatter": ("output_tensor", "input_tensor_list", "root"),
    "gather": ("output_tensor_list", "input_tensor", "root"),
    "gather_single": ("output", "input", "root"),
    "all_to_all_v_dynamic": ("output", "input", "output_split_sizes", "input_split_sizes"),
    "device_alltoallv_single": ("output", "input", "output_split_sizes", "input_split_sizes"),
    "alltoallv_dynamic_dispatch": (
        "output_tensor_list",
        "output_chunk_sizes_per_rank",
        "input_tensor",
        "input_chunk_sizes",
        "input_chunk_indices",
        "input_chunk_count_per_rank",
        "hidden_dim",
    ),
    "alltoallv_dynamic_combine": (
        "output_tensor",
        "input_tensor",
        "input_chunk_sizes",
        "input_chunk_indices",
        "input_chunk_count_per_rank",
        "hidden_dim",
    ),
    "all_to_all_v_dedup": (
        "output",
        "input",
        "output_split_sizes",
        "input_indices",
        "input_split_sizes",
    ),
    "all_to_all_v_dedup_combine": (
        "output",
        "input",
        "weights",
        "input_split_sizes",
        "output_indices",
        "output_split_sizes",
    ),
}
# Persistent operations, and what they carry out into the output of their handle.
PERSISTENT = {
    "all_gather_p_exec": "all_gather_single",
    "all_to_all_p_exec": "all_to_all_single",
}
WINDOW = {
    "put": ("tensor", "dst_rank", "offset"),
    "get": ("tensor", "src_rank", "offset"),
    "flush": ("dst_rank",),
    "signal": ("peer_rank",),
    "wait_signal": ("peer_rank",),
}
NUMBERED_SIGNALS = {
    "signal": ("set_signal", ("signal_disp", "signal_val", "dst_rank")),
    "wait_signal": ("compare_signal", ("signal_disp", "signal_val", "cmp_op")),
}
_OTHER_SPELLINGS = {
    "output_splits": "output_split_sizes",
    "input_splits": "input_split_sizes",
    "output_split_sizes_gpu": "output_split_sizes",
    "input_split_sizes_gpu": "input_split_sizes",
    "output_list": "output_tensor_list",
    "target_offset_nelems": "offset",
    "source_offset_nelems": "offset",
    "target_disp": "offset",
}


def bind(
    parameters: Sequence[str], args: Sequence[_T], kwargs: Mapping[str, _T]
) -> dict[str, _T] | None:
    """The arguments of a call by the names of its parameters; None if the method would refuse it.

    After the parameters come `async_op`, `hints`, `timeout`, and `options` by name alone."""
    names = (*parameters, "async_op", "hints", "timeout")
    bound = dict(zip(names, args, strict=False))
    for given, value in kwargs.items():
        name = _OTHER_SPELLINGS.get(given, given)
        if name not in names:
            # Spellings that are the other form's of one method.
            name = {"output": "output_tensor", "input": "input_tensor"}.get(given, name)
            if given == "input_list" and "input_tensor_list" in names:
                name = "input_tensor_list"
            if given == "dst_rank" and "peer_rank" in names:
                name = "peer_rank"
        if name in bound or (name not in names and name != "options"):
            return None
        bound[name] = value
    if len(args) > len(names) or any(n not in bound for n in (*parameters, "async_op")):
        return None
    return bound
