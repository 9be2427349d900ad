"""Which algorithm runs, why, and how to measure what is best here (docs/selection.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchcomms import _comms, _engine
from torchcomms.select import _measure

__all__ = ["Alternative", "Explanation", "explain", "host"]

_TYPES = re.compile(  # as torch and ctran call them
    r"bool|u?int(8|16|32|64)|float8_e(4m3fn|5m2)|b?float16|float(32|64)|complex(64|128)"
)
_REDUCES = ("all_reduce", "reduce", "reduce_scatter")
_IN_BLOCKS = ("reduce_scatter", "scatter", "all_to_all")  # a block of the bytes for each rank


def _call(do: str, progress: Callable[[float, str], None] | None = None, **request: Any) -> Any:
    def report(done: float, following: bytes) -> None:
        if progress is not None:
            progress(done, following.decode())

    return _engine.ask("select", do, _engine.PROGRESS(report), **request)


@dataclass(frozen=True)
class Alternative:
    """An algorithm of the collective."""

    algorithm: str
    predicted_us: float | None
    """Microseconds by the cost model; registered plans have none, and neither have algorithms of
    GPUs, which go by sizes that were measured."""
    measured_us: float | None
    """Microseconds at the nearest size in the tuning table, if there is one."""
    why_not: str
    """Why it cannot serve the call; empty if it can."""
    sizes: str = ""
    """On GPUs: for which sizes it is taken where nobody names one, as it counts bytes itself."""


@dataclass(frozen=True)
class Explanation:
    """What would run, and why. Printed, it is a table."""

    collective: str
    bytes: int
    algorithm: str
    why: str
    alternatives: list[Alternative]
    network: list[str] = field(default_factory=list)
    """What messages to ranks of other hosts go over, of those with a connection so far."""

    def __str__(self) -> str:
        lines = [
            f"{self.collective}, {self.bytes} bytes of each rank: {self.algorithm} ({self.why})"
        ]
        width = max([12, *(len(one.algorithm) for one in self.alternatives)])
        if self.alternatives:
            lines.append(f"  {'algorithm':<{width}} {'predicted µs':>13} {'measured µs':>12}")
        for one in self.alternatives:
            predicted, measured = (
                "-" if us is None else f"{us:.3g}" for us in (one.predicted_us, one.measured_us)
            )
            mark = "*" if one.algorithm == self.algorithm else " "
            note = f"  {one.sizes}" if one.sizes else ""
            if one.why_not:
                note = f"  cannot: {one.why_not}"
            lines.append(f"{mark} {one.algorithm:<{width}} {predicted:>13} {measured:>12}{note}")
        lines += [f"  to {path}" for path in self.network]
        return "\n".join(lines)


def _explanation(collective: str, nbytes: int, answer: dict[str, Any]) -> Explanation:
    alternatives = [Alternative(**one) for one in answer["alternatives"]]
    return Explanation(
        collective,
        nbytes,
        answer["algorithm"],
        answer["why"],
        alternatives,
        answer.get("network", []),
    )


def _type_of(collective: str, dtype: torch.dtype | None) -> dict[str, Any]:
    """What to say of it: not every algorithm does every type."""
    if dtype is not None and collective in _REDUCES:
        _comms._check_reducible(dtype, collective)
    name = str(dtype).removeprefix("torch.")
    return {"type": name} if _TYPES.fullmatch(name) else {}


def explain(
    collective: str, nbytes: int, ranks: int, hosts: int = 1, dtype: torch.dtype | None = None
) -> Explanation:
    """What would run in a communicator of `ranks` ranks on each of `hosts` hosts like this one.

    Args:
        collective: its name, such as ``"all_reduce"``.
        nbytes: bytes that each rank contributes: its tensor; of reduce_scatter, scatter and
            all_to_all all of its blocks.
        ranks: of each host. CTRAN_ALGORITHM and the tuning table count.
        hosts: how many.
        dtype: between hosts, floats of 16 and 8 bits are not reduced by way of partial sums.

    Raises:
        ValueError: there is no such collective, or no such size.
        CommError: no reduction takes the dtype.
    """
    answer = _call(
        "explain",
        collective=collective,
        bytes=nbytes,
        ranks=ranks,
        hosts=hosts,
        **_type_of(collective, dtype),
    )
    return _explanation(collective, nbytes, answer)


def comm_explain(
    self: _comms.TorchComm,
    op: str,
    nbytes: int,
    dtype: torch.dtype | None = None,
    hints: Mapping[str, str] | None = None,
) -> Explanation:
    """What would run if this communicator's ranks called `op` now, why, and what else there is.

    Of backend ncclx: which member, ctran or nccl, and what was measured of both.

    Args:
        op: the name of a collective, such as ``"all_reduce"``.
        nbytes: bytes that each rank contributes: its tensor; of reduce_scatter, scatter and
            all_to_all all of its blocks.
        dtype: on the CPUs of one host it matters to native algorithms of mscclpp alone; between
            hosts, floats of 16 and 8 bits are not reduced by way of partial sums; on GPUs, packets
            hold no complex128. Types that NCCL does not reduce go to ctran.
        hints: of the call, as the operation would get them.

    Raises:
        ValueError: there is no such collective, the communicator is not one of ctran or ncclx, or
            a hint names what cannot serve the call on its GPUs.
        CommError: no reduction takes the dtype.
    """
    of_call: dict[str, Any] = {"hints": dict(hints)} if hints else {}
    answer = _call(
        "explain",
        collective=op,
        bytes=nbytes,
        **_name_of(self),
        **_type_of(op, dtype),
        **of_call,
    )
    return _explanation(op, nbytes, answer)


def _name_of(comm: _comms.TorchComm) -> dict[str, Any]:
    """By which the engine finds it: several communicators of a process may have one name."""
    return {"communicator": comm.get_name(), "token": comm._engine_token}


def _run_once(
    comm: _comms.TorchComm,
    op: str,
    nbytes: int,
    dtype: torch.dtype,
    reduction: _comms.ReduceOp,
    hints: dict[str, str] | None,
) -> None:
    """The call itself, with tensors of its own: of the CPU, there is nothing that it leaves out."""
    ranks, root = comm.get_size(), comm.get_rank() == 0
    count = nbytes // dtype.itemsize
    block = torch.zeros(count // ranks if op in _IN_BLOCKS else count, dtype=dtype)

    def blocks() -> torch.Tensor:
        return torch.zeros(ranks * block.numel(), dtype=dtype)

    def listed() -> list[torch.Tensor]:
        return list(blocks().chunk(ranks)) if root and block.numel() else [block] * ranks * root

    calls: dict[str, Callable[[], object]] = {
        "barrier": lambda: comm.barrier(False, hints),
        "broadcast": lambda: comm.broadcast(block, 0, False, hints),
        "all_reduce": lambda: comm.all_reduce(block, reduction, False, hints),
        "reduce": lambda: comm.reduce(block, 0, reduction, False, hints),
        "all_gather": lambda: comm.all_gather_single(blocks(), block, False, hints),
        "reduce_scatter": lambda: comm.reduce_scatter_single(
            block, blocks(), reduction, False, hints
        ),
        "all_to_all": lambda: comm.all_to_all_single(blocks(), blocks(), False, hints),
        "gather": lambda: comm.gather(listed(), block, 0, False, hints),
        "scatter": lambda: comm.scatter(block, listed(), 0, False, hints),
    }
    if op not in calls or nbytes < 0:
        raise ValueError(
            f"there is nothing to prepare of {nbytes} bytes of {op!r}; "
            f"collectives: {', '.join(calls)}"
        )
    calls[op]()


def comm_prepare(
    self: _comms.TorchComm,
    op: str,
    nbytes: int,
    dtype: torch.dtype | None = None,
    reduction: _comms.ReduceOp | None = None,
    hints: Mapping[str, str] | None = None,
) -> None:
    """Does now what the first such call would: compiles, loads, allocates, connects. Collective.

    On CPUs that is a call, with tensors of its own, which hooks see; whatever the backend. On GPUs
    nothing runs; what the hint ``ctran::algorithm`` of the communicator names is prepared at its
    creation there, but for kernels of reductions, which depend on their type.

    Args:
        op: the name of a collective, such as ``"all_reduce"``.
        nbytes: bytes that each rank contributes, as in `explain`; on CPUs whole elements, and whole
            blocks, of them.
        dtype: of the tensors; of reductions. Default float32.
        reduction: of reductions. Default a sum.
        hints: of the call, as the operation would get them.

    Raises:
        ValueError: there is no such collective, the communicator is of GPUs and none of ctran's,
            or a hint names what cannot serve the call.
        CommError: a kernel cannot be compiled, memory cannot be had, or the call failed.
    """
    of_call: dict[str, Any] = {"hints": dict(hints)} if hints else {}
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    answer = _call(
        "prepare",
        collective=op,
        bytes=nbytes,
        **_name_of(self),
        type=name,
        reduction="sum" if reduction is None else str(reduction.type).rsplit(".", 1)[-1].lower(),
        **of_call,
    )
    if answer["prepared"]:
        return
    if self.get_device().type != "cpu":
        raise ValueError(f"communicator '{self.get_name()}' is none of ctran's on GPUs")
    _run_once(
        self,
        op,
        nbytes,
        torch.float32 if dtype is None else dtype,
        _comms.ReduceOp.SUM if reduction is None else reduction,
        of_call.get("hints"),
    )


def comm_tune(
    self: _comms.TorchComm,
    seconds: float = 30,
    progress: Callable[[float, str], None] | None = None,
) -> Path:
    """Measures the algorithms of every collective and uses the fastest from now on. Collective.

    On GPUs: all_reduce, reduce_scatter, all_gather, all_to_all and broadcast, in graphs. Of backend
    ctran its algorithms and the registered plans, with tensors of float32; of backend ncclx its
    members, ctran and NCCL, with tensors of bfloat16. Sizes that lie far apart come first: with
    little time the table is coarse.

    Rank 0 keeps the result in CTRAN_TUNING_DIR; later communicators of as many ranks, spread over
    as many hosts, use it on machines that are alike: on one host if all of their ranks find the
    same, between hosts as their rank 0 finds it.

    Args:
        seconds: about how long it takes.
        progress: called on each rank with how much is done, from 0 to 1, and what is next.

    Returns:
        Where the table is.

    Raises:
        ValueError: the time is not positive, or the communicator is not one of ctran or ncclx.
        CommError: the table cannot be written; there is only one member; or the GPUs are in several
            domains.
    """
    if not seconds > 0:
        raise ValueError("the time to tune in must be positive")
    who = _name_of(self)
    if not _call("measured", **who)["outside"]:
        return Path(_call("tune", progress, seconds=float(seconds), **who)["path"])

    def force(name: str) -> None:
        _call("force", algorithm=name, **who)

    force("")  # an error where there is no choice
    measured: _measure.Measured = _measure.Members(force)
    if self.get_backend() == "ctran":
        measured = _measure.Algorithms(
            lambda op, nbytes: comm_explain(self, op, nbytes, torch.float32), force
        )
    rows = _measure.measure(self, seconds, measured, progress)
    return Path(_call("use", measured=rows, save=self.get_rank() == 0, **who)["path"])


def host() -> dict[str, Any]:
    """What this machine is made of: cores, caches, NUMA nodes, network cards."""
    answer: dict[str, Any] = _call("host")
    return answer
