"""Algorithms that serve the calls of torchcomms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mscclpp.algorithm import Algorithm
from mscclpp.compiler import PlanAlgorithm
from mscclpp.engine import Registration
from mscclpp.executor import ExecutionPlan
from mscclpp.language.program import CollectiveProgram
from mscclpp.native_algorithm import NativeAlgorithm
from mscclpp.types import ReduceOp

__all__ = ["register"]


def register(
    algorithm: Algorithm | ExecutionPlan,
    comm: Any = None,
    *,
    prefer: bool = False,
    dtypes: Iterable[Any] | None = None,
    reductions: Iterable[ReduceOp] = (ReduceOp.SUM,),
) -> Registration:
    """Makes an algorithm one of those that serve `comm.all_reduce(...)` of torchcomms,
    `torch.distributed` and so DDP, on tensors of the CPU and of GPUs. All ranks have to do so
    before the same call.

    It serves calls of its collective, over as many ranks as it has, of messages in its
    `message_size_range`: if it is preferred, if a hint names it ("plan:" and its name), or if it
    was the fastest when it was measured (`comm.tune`, `torchcomms tune`). `comm.explain` names it.

    Args:
        algorithm: a compiled program, an ExecutionPlan, or a native algorithm.
        comm: only this one: a `CommGroup`, a communicator of torchcomms, or a name.
        prefer: it comes first, except before what the hints of a call name.
        dtypes: of a native algorithm that reduces: the types that it does; mscclpp's, torch's, or
            their names.
        reductions: of a native algorithm: those that it does.

    Returns:
        What takes it away again, by `remove` or at the end of a `with`.

    Raises:
        TypeError: it is one of the engine's own, which serve already; a native one that reduces,
            without `dtypes`; or no algorithm: a program is compiled first.
        ValueError: it is wrong, as it may be if it was not verified; or there is no such type.
        EngineError: it cannot be executed here.
    """
    if isinstance(algorithm, CollectiveProgram):
        raise TypeError(
            f"the program {algorithm.name!r} is not compiled: register mscclpp.compile(program)"
        )
    if isinstance(algorithm, ExecutionPlan):
        algorithm = algorithm.algorithm
    if isinstance(algorithm, NativeAlgorithm):
        return algorithm.register(_name(comm), prefer=prefer, dtypes=dtypes, reductions=reductions)
    if isinstance(algorithm, Algorithm) and not isinstance(algorithm, PlanAlgorithm):
        raise TypeError(
            f"{algorithm!r} is one of the engine's own, which serve already; hints name them "
            f"(ctran::algorithm)"
        )
    if not isinstance(algorithm, PlanAlgorithm):
        raise TypeError(f"{algorithm!r} is no algorithm: register what mscclpp.compile returns")
    if dtypes is not None or tuple(reductions) != (ReduceOp.SUM,):
        raise TypeError(
            f"dtypes and reductions are of native algorithms: {algorithm!r} does all of them"
        )
    return algorithm.register(_name(comm), prefer=prefer)


def _name(comm: Any) -> str:
    if comm is None or isinstance(comm, str):
        return comm or ""
    for attribute in ("communicator", "name", "get_name"):
        if hasattr(comm, attribute):
            found = getattr(comm, attribute)
            if attribute == "communicator":
                found = found.name
            return str(found() if callable(found) else found)
    raise TypeError(f"{comm!r} is no communicator")
