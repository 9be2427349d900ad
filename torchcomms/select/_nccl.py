"""Measures the ways in which NCCL can do a call, for its tuner (docs/backends/nccl.md)."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import socket
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchcomms import _comms, _engine
from torchcomms._errors import CommError
from torchcomms.select import _measure

OWN = "own"  #: what NCCL takes by itself
# In the order of torchcomms/csrc/nccl_plugin/names.h.
_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")
_ASKED = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")  # about which NCCL asks
_LEAST_GAIN = 1.05  # times faster than what NCCL takes by itself, to be written down
_HEADING = "# collective, least bytes, most bytes, algorithm, protocol, channels, hosts, ranks"


def offer() -> None:
    """Has NCCL load the plug-in in this process, which has no communicator yet, and no table."""
    os.environ["NCCL_TUNER_PLUGIN"] = _plugin()
    os.environ.pop("TORCHCOMMS_NCCL_TUNING", None)


def tune(
    comm: _comms.TorchComm,
    seconds: float,
    progress: Callable[[float, str], None] | None = None,
) -> str:
    """The text of a table for TORCHCOMMS_NCCL_TUNING, the same on all ranks. Collective.

    Args:
        comm: of backend nccl, made after `offer`. Nothing else runs on NCCL in this process.
        seconds: about how long it takes.
        progress: called with how much is done, from 0 to 1, and what is next.

    Raises:
        CommError: this NCCL does not let a tuner choose.
    """
    rows = _measure.measure(comm, seconds, Ways(comm), progress)
    if not rows:
        raise CommError("this NCCL does not let a tuner choose: from 2.21 on it does")
    return table(rows, _hosts(comm), comm.get_size())


class Ways:
    """Pairs of an algorithm and a protocol of NCCL."""

    dtype = torch.bfloat16
    factor = 4

    def __init__(self, comm: _comms.TorchComm) -> None:
        self._comm = comm
        self._library = ctypes.CDLL(_plugin())

    def choices(self, operation: str, nbytes: int) -> Sequence[str]:
        """Those that NCCL says it can do, found by trying."""
        if operation not in _ASKED:
            return ()
        ways = [f"{a}/{p}" for a, p in itertools.product(_ALGORITHMS, _PROTOCOLS)]
        call = _measure.call_of(self._comm, operation, nbytes, self.dtype)
        can = []
        try:
            for way in ways:
                self.force(operation, way)
                call().wait_blocking()
                can.append(self._is_taken())
        finally:
            self.force(operation, "")
        agreed = torch.tensor(can, dtype=torch.int32, device=self._comm.get_device())
        self._comm.all_reduce(agreed, _comms.ReduceOp.MIN, async_op=True).wait_blocking()
        return [OWN, *itertools.compress(ways, agreed.cpu().tolist())]

    def force(self, operation: str, choice: str) -> None:
        algorithm, _, protocol = choice.partition("/")
        named = protocol != ""
        self._library.torchcomms_nccl_force(
            _ALGORITHMS.index(algorithm) if named else -1,
            _PROTOCOLS.index(protocol) if named else -1,
            -1,
        )

    def name(self, choice: str) -> str:
        return choice

    def _is_taken(self) -> bool:
        taken, refused = ctypes.c_uint64(), ctypes.c_uint64()
        self._library.torchcomms_nccl_forced(ctypes.byref(taken), ctypes.byref(refused))
        return taken.value > 0 and refused.value == 0


def table(rows: Sequence[dict[str, Any]], hosts: int, ranks: int) -> str:
    """Of what `_measure.measure` has returned. Between two measured sizes the way changes at their
    geometric mean. Where NCCL's own choice is as fast there is no line."""
    lines = [_HEADING]
    for collective in _ASKED:
        # NCCL counts the full buffer; of all_gather a rank contributes a part of it.
        parts = ranks if collective == "all_gather" else 1
        best = sorted(
            (row["bytes"] * parts, _best(row["us"]))
            for row in rows
            if row["collective"] == collective
        )
        least = 0
        for way, same in itertools.groupby(best, key=lambda one: one[1]):
            largest = list(same)[-1][0]
            following = next((size for size, _ in best if size > largest), None)
            most = "" if following is None else str(math.isqrt(largest * following))
            if way != OWN:
                algorithm, _, protocol = way.partition("/")
                lines.append(
                    f"{collective}, {least}, {most}, {algorithm}, {protocol}, , {hosts}, {ranks}"
                )
            least = int(most or 0) + 1
    return "\n".join(lines) + "\n"


def _best(us: dict[str, float]) -> str:
    fastest = min(us, key=lambda way: us[way])
    return fastest if us[OWN] > us[fastest] * _LEAST_GAIN else OWN


def _hosts(comm: _comms.TorchComm) -> int:
    """On how many hosts the ranks are."""
    own = torch.tensor([zlib.crc32(socket.gethostname().encode())], device=comm.get_device())
    of_all = torch.zeros(comm.get_size(), dtype=own.dtype, device=comm.get_device())
    comm.all_gather_single(of_all, own, async_op=True).wait_blocking()
    return len(set(of_all.cpu().tolist()))


def _plugin() -> str:
    return str(_engine.folder() / "lib" / "libtorchcomms_nccl.so")
