"""One rank of a library that is called from Python.

usage: python -m side_by_side.torch_rank LIBRARY RANK RANKS CONTROL_SOCKET CPUS STORE_FILE

LIBRARY is c10d/NAME or torchcomms/NAME, with +async for async_op=True. The loop and the protocol
are those of ctran-bench (cpp/rank.h, cpp/control.h), but operations are called as users of torch
call them: all_reduce and reduce in place.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from side_by_side.operations import OPERATIONS, Operation

Call = Callable[[], Any]
Slot = tuple[torch.Tensor, torch.Tensor]

SLOTS = 4
ROTATION_BYTES = 128 << 20


def wait(call: Callable[..., Any]) -> None:
    """Runs an asynchronous call to its end."""
    call().wait()


class C10d:
    """torch.distributed's process group of that backend."""

    def __init__(self, backend: str, rank: int, ranks: int, store: Any) -> None:
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)

    def calls(self, name: str, slot: Slot, blocks: Sequence[torch.Tensor], peer: int) -> list[Any]:
        """The library's function and arguments; `blocks` are those of gather and scatter."""
        source, result = slot
        functions: dict[str, tuple[Any, ...]] = {
            "all_reduce": (dist.all_reduce, result),
            "all_gather": (dist.all_gather_into_tensor, result, source),
            "reduce_scatter": (dist.reduce_scatter_tensor, result, source),
            "broadcast": (dist.broadcast, result, 0),
            "all_to_all": (dist.all_to_all_single, result, source),
            "barrier": (dist.barrier,),
            "reduce": (dist.reduce, result, 0),
            "gather": (dist.gather, source, blocks or None, 0),
            "scatter": (dist.scatter, result, blocks or None, 0),
            "send": (dist.send, source, peer),
            "recv": (dist.recv, result, peer),
        }
        return list(functions[name])

    def blocking(self, function: Any, *args: Any) -> Call:
        return functools.partial(function, *args)

    def asynchronous(self, function: Any, *args: Any) -> Call:
        start = {dist.send: dist.isend, dist.recv: dist.irecv}.get(function)
        if start:
            return functools.partial(wait, functools.partial(start, *args))
        return functools.partial(wait, functools.partial(function, *args, async_op=True))

    def close(self) -> None:
        dist.destroy_process_group()


class TorchComms:
    """A communicator of that backend of torchcomms."""

    def __init__(self, backend: str, rank: int, ranks: int, store: Any) -> None:
        import torchcomms

        os.environ.update(TORCHCOMM_RANK=str(rank), TORCHCOMM_SIZE=str(ranks))
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
        self._sum = torchcomms.ReduceOp.SUM
        device = torch.device("cpu")
        self._comm = torchcomms.new_comm(backend, device, name="bench", store=store)

    def calls(self, name: str, slot: Slot, blocks: Sequence[torch.Tensor], peer: int) -> list[Any]:
        """The library's function and arguments; `blocks` are those of gather and scatter."""
        source, result = slot
        comm = self._comm
        functions: dict[str, tuple[Any, ...]] = {
            "all_reduce": (comm.all_reduce, result, self._sum),
            "all_gather": (comm.all_gather_single, result, source),
            "reduce_scatter": (comm.reduce_scatter_single, result, source, self._sum),
            "broadcast": (comm.broadcast, result, 0),
            "all_to_all": (comm.all_to_all_single, result, source),
            "barrier": (comm.barrier,),
            "reduce": (comm.reduce, result, 0, self._sum),
            "gather": (comm.gather, blocks, source, 0),
            "scatter": (comm.scatter, result, blocks, 0),
            "send": (comm.send, source, peer),
            "recv": (comm.recv, result, peer),
        }
        return list(functions[name])

    def blocking(self, function: Any, *args: Any) -> Call:
        return functools.partial(function, *args, False)

    def asynchronous(self, function: Any, *args: Any) -> Call:
        return functools.partial(wait, functools.partial(function, *args, True))

    def close(self) -> None:
        self._comm.finalize()


def input_of(rank: int, elements: int) -> torch.Tensor:
    """Small integers, so that float sums are exact in any order."""
    return ((rank * 31 + torch.arange(elements) * 7) % 61).float()


def expected(name: str, rank: int, ranks: int, count: int) -> torch.Tensor | None:
    """The output of a call with blocks of `count`, None if the call leaves it alone."""

    def block(of: int, at: int) -> torch.Tensor:
        return input_of(of, (at + 1) * count)[at * count :]

    match name:
        case "all_reduce":
            return sum((block(r, 0) for r in range(ranks)), torch.zeros(count))
        case "reduce" if rank == 0:
            return sum((block(r, 0) for r in range(ranks)), torch.zeros(count))
        case "reduce_scatter":
            return sum((block(r, rank) for r in range(ranks)), torch.zeros(count))
        case "all_gather":
            return torch.cat([block(r, 0) for r in range(ranks)])
        case "gather" if rank == 0:
            return torch.cat([block(r, 0) for r in range(ranks)])
        case "all_to_all":
            return torch.cat([block(r, rank) for r in range(ranks)])
        case "broadcast":
            return block(0, 0)
        case "scatter":
            return block(0, rank)
        case "send_recv" if rank < 2:
            return block(1 - rank, 0)
    return None


class Rank:
    """Times operations of one library on one rank."""

    def __init__(self, library: C10d | TorchComms, asynchronous: bool, rank: int, ranks: int):
        self._library = library
        self._bind = library.asynchronous if asynchronous else library.blocking
        self._rank = rank
        self._ranks = ranks
        self._key: tuple[str, int] | None = None
        self._calls: list[Call] = []
        self._per_call = 1
        empty = torch.empty(0)
        self._barrier = self._bind(*library.calls("barrier", (empty, empty), [], 0))

    def check(self, name: str, nbytes: int) -> None:
        """Runs it once on every slot; raises when a result is wrong. Collective."""
        slots = self._prepare(name, nbytes)
        for call in self._calls:
            call()
        count = OPERATIONS[name].block_elements(nbytes, self._ranks)
        correct = expected(name, self._rank, self._ranks, count)
        for source, result in slots:
            if correct is not None and not torch.equal(result, correct):
                at = int((result != correct).nonzero()[0])
                raise RuntimeError(
                    f"wrong result of {name} with blocks of {count}: element {at} on rank "
                    f"{self._rank} is {float(result[at])}, not {float(correct[at])}"
                )
            # Repeated in place, sums would grow without bound.
            source.zero_()
            result.zero_()

    def time(self, name: str, nbytes: int, warmup: int, iterations: int) -> float:
        """Seconds per call. Collective."""
        if (name, nbytes) != self._key:
            self._prepare(name, nbytes)
        calls = itertools.cycle(self._calls)
        for call in itertools.islice(calls, warmup * self._per_call):
            call()
        self._barrier()
        self._barrier()
        begin = time.perf_counter()
        for call in itertools.islice(calls, iterations * self._per_call):
            call()
        elapsed = time.perf_counter() - begin
        return elapsed / (iterations * self._per_call) if self._per_call else 0.0

    def _prepare(self, name: str, nbytes: int) -> list[Slot]:
        operation = OPERATIONS[name]
        count = operation.block_elements(nbytes, self._ranks)
        slots = [
            self._slot(operation, count)
            for _ in range(max(2, min(SLOTS, ROTATION_BYTES // max(1, nbytes))))
        ]
        steps = [self._steps(operation, slot, count) for slot in slots]
        self._key = (name, nbytes)
        self._per_call = len(steps[0])
        self._calls = [call for slot_steps in steps for call in slot_steps]
        return slots

    def _slot(self, operation: Operation, count: int) -> Slot:
        source = input_of(self._rank, count * (self._ranks if operation.input_per_rank else 1))
        result = torch.full((count * (self._ranks if operation.output_per_rank else 1),), torch.nan)
        in_place = operation.name in ("all_reduce", "reduce")
        if in_place or (operation.name == "broadcast" and self._rank == 0):
            result.copy_(source)
        return source, result

    def _steps(self, operation: Operation, slot: Slot, count: int) -> list[Call]:
        names = [operation.name]
        if operation.name == "send_recv":
            names = {0: ["send", "recv"], 1: ["recv", "send"]}.get(self._rank, [])
        source, result = slot
        blocks: list[torch.Tensor] = []
        if self._rank == 0 and operation.name in ("gather", "scatter"):
            whole = result if operation.name == "gather" else source
            blocks = list(torch.split(whole, count))
        peer = 1 - self._rank
        return [self._bind(*self._library.calls(name, slot, blocks, peer)) for name in names]


def serve(channel: Any, rank: Rank) -> None:
    """Does what the driver says until it says quit or is gone."""
    for line in channel:
        verb, *words = line.decode().split()
        if verb == "quit":
            return
        try:
            name, *numbers = words
            do = rank.check if verb == "check" else rank.time
            reply = f"ok {do(name, *map(int, numbers)) or 0}"
        except Exception as error:  # whatever it is, the driver is to hear of it
            reply = f"error {type(error).__name__}: {error}".replace("\n", " ")
        channel.write(f"{reply}\n".encode())
        channel.flush()


def main() -> None:
    spec, rank_text, ranks_text, control, cpus, store_file = sys.argv[1:]
    rank, ranks = int(rank_text), int(ranks_text)
    if cpus != "none":
        os.sched_setaffinity(0, {int(cpus.split(",")[rank])})
    torch.set_num_threads(1)
    kind, backend = spec.removesuffix("+async").split("/")
    store = FileStore(store_file, ranks)
    library = (C10d if kind == "c10d" else TorchComms)(backend, rank, ranks, store)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(control)
        channel = connection.makefile("rwb")
        channel.write(f"hello {rank}\n".encode())
        channel.flush()
        serve(channel, Rank(library, spec.endswith("+async"), rank, ranks))
    library.close()


if __name__ == "__main__":
    main()
