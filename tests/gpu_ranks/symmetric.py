"""Collectives on symmetric memory: what they give, wherever the ranks' tensors are, and its end."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from harness import Rank
from harness.gpu_windows import memory_of_nccl

import torchcomms
from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp, TorchComm, TorchCommWindow

# Of a block, or of two; more than flows take in steps of that size before they write directly.
COUNT = 1_500_008
STEP = 4096


class Memory:
    """Tensors of float32 that other ranks can map, if `symmetric`."""

    def __init__(self, rank: Rank, comm: TorchComm, symmetric: bool) -> None:
        self._rank, self._comm, self._symmetric = rank, comm, symmetric
        self._windows: list[TorchCommWindow] = []
        self._registered: list[torch.Tensor] = []

    def take(self, count: int) -> torch.Tensor:
        """Collective: windows are. Filled with -1."""
        window = self._comm.window_allocate(4 * count)
        self._windows.append(window)
        own = window.get_tensor(self._rank.rank, [count], torch.float32)
        assert own is not None
        if self._symmetric:
            self._comm.tensor_register(own)  # from here on the others have it
            self._registered.append(own)
        else:
            own = torch.empty(count, device=self._rank.device(BACKEND))
        own.fill_(-1.0)
        self._rank.synchronize(BACKEND)
        return own

    def give_back(self) -> None:
        self._rank.synchronize(BACKEND)
        while self._registered:
            self._comm.tensor_deregister(self._registered.pop())
        for window in self._windows:
            window.tensor_deregister()


def _named(comm: TorchComm) -> int:
    """How often this rank has offered its memory to others."""
    found = re.search(r"named (\d+) times", comm.explain("all_reduce", 1 << 20).why)
    return int(found[1]) if found else 0


@contextmanager
def _small_steps() -> Iterator[None]:
    os.environ["CTRAN_GPU_STEP_BYTES"] = str(STEP)
    try:
        yield
    finally:
        del os.environ["CTRAN_GPU_STEP_BYTES"]


def _data(rank: int, count: int) -> torch.Tensor:
    return (torch.arange(count) % 1009 + 7 * rank).float()


def _equal(rank: Rank, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    rank.synchronize(BACKEND)
    got = found.cpu()
    wrong = (got != expected).nonzero().flatten()
    assert not len(wrong), f"{what}: element {wrong[0]} of {len(wrong)}: {got[wrong[0]]}"


def _collectives(rank: Rank, name: str, symmetric: tuple[bool, ...]) -> None:
    with _small_steps():
        comm = rank.new_comm(BACKEND, name)
    memory = Memory(rank, comm, symmetric[rank.rank])
    size, me, whole = rank.size, rank.rank, COUNT * rank.size
    source, result, part = memory.take(whole), memory.take(whole), memory.take(COUNT)
    sent = [_data(r, whole) for r in range(size)]
    blocks = [[sent[r][COUNT * b : COUNT * (b + 1)] for b in range(size)] for r in range(size)]
    total = torch.stack(sent).sum(0)
    place = result[COUNT * me : COUNT * (me + 1)]
    following, before = (me + 1) % size, (me - 1) % size
    source.copy_(sent[me])
    rank.synchronize(BACKEND)

    def check(
        what: str,
        call: Callable[[], object],
        output: torch.Tensor,
        expected: torch.Tensor,
        straight: bool = True,
    ) -> None:
        """`straight`: data is written to where others say that it shall be."""
        earlier = _named(comm)
        for async_op in (False, True):
            output.fill_(-1.0)
            if output is result and what.endswith("in place"):
                result.copy_(sent[me])
            rank.synchronize(BACKEND)
            comm.barrier(async_op=async_op).wait()
            call()
            _equal(rank, output, expected, what)
        named = straight and symmetric[me]
        assert (_named(comm) > earlier) == named, f"{what}: {_named(comm)}, {earlier}"

    check(
        "all_reduce in place",
        lambda: comm.all_reduce(result, ReduceOp.SUM, async_op=False),
        result,
        total,
        straight=False,
    )
    check(
        "reduce_scatter",
        lambda: comm.reduce_scatter_single(part, source, ReduceOp.SUM, async_op=False),
        part,
        torch.stack([blocks[r][me] for r in range(size)]).sum(0),
        straight=False,
    )
    check(
        "all_to_all",
        lambda: comm.all_to_all_single(result, source, async_op=True).wait(),
        result,
        torch.cat([blocks[r][me] for r in range(size)]),
    )
    part.copy_(blocks[me][0])
    rank.synchronize(BACKEND)
    check(
        "all_gather",
        lambda: comm.all_gather_single(result, part, async_op=False),
        result,
        torch.cat([blocks[r][0] for r in range(size)]),
    )

    def exchange() -> None:
        batch = comm.batch_op_create()
        batch.send(source, following)
        batch.recv(result, before)
        batch.issue(async_op=False)

    check("messages", exchange, result, sent[before])
    if size == 2:
        place.copy_(blocks[me][0])
        comm.all_reduce(place, ReduceOp.PREMUL_SUM(0.5 + me), async_op=False)
        scaled = [(0.5 + r) * blocks[r][0] for r in range(size)]
        _equal(rank, place, torch.stack(scaled).sum(0), "premul")
    # At an odd place it is like any other memory.
    odd = result[1 : 1 + COUNT]
    odd.copy_(blocks[me][0])
    comm.all_reduce(odd, ReduceOp.SUM, async_op=False)
    _equal(rank, odd, torch.stack([blocks[r][0] for r in range(size)]).sum(0), "odd")
    memory.give_back()
    comm.finalize()


@case(world=2)
def collectives_on_symmetric_memory(make: Make) -> None:
    make(2).run(_collectives, "symmetric", (True, True))


@case(world=2)
def some_ranks_have_symmetric_memory_and_others_not(make: Make) -> None:
    make(2).run(_collectives, "mixed", (False, True))


@case(world=4)
def symmetric_memory_of_four(make: Make) -> None:
    make(4).run(_collectives, "four", (True,) * 4)


class Gathering:
    """An all_gather into `output`, again and again."""

    def __init__(self, rank: Rank, comm: TorchComm, output: torch.Tensor) -> None:
        self._rank, self._comm, self._output = rank, comm, output
        self._part = torch.empty(output.numel() // rank.size, device=output.device)

    def prepare(self, turn: int) -> None:
        self._output.fill_(-1.0)
        self._part.copy_(_data(self._rank.rank + turn, self._part.numel()))
        self._rank.synchronize(BACKEND)
        self._comm.barrier(async_op=False)

    def call(self, async_op: bool = False) -> None:
        self._comm.all_gather_single(self._output, self._part, async_op=async_op).wait()

    def check(self, turn: int, what: str) -> None:
        parts = [_data(r + turn, self._part.numel()) for r in range(self._rank.size)]
        _equal(self._rank, self._output, torch.cat(parts), f"{what} {turn}")


def _replayed(rank: Rank) -> None:
    """A capture waits for the others to map what it uses; eager calls and graphs mix."""
    with _small_steps():
        comm = rank.new_comm(BACKEND, "replayed")
    window = comm.window_allocate(4 * COUNT)
    own = window.get_tensor(rank.rank, [COUNT], torch.float32)
    assert own is not None
    captured = Gathering(rank, comm, own)
    replay = rank.gpu().capture(captured.call)
    assert _named(comm) > 0
    ordinary = Gathering(rank, comm, torch.empty(COUNT, device=own.device))
    for turn in range(10):
        captured.prepare(turn)
        replay()
        captured.check(turn, "replay")
        ordinary.prepare(turn)
        ordinary.call()
        ordinary.check(turn, "eager")
    del replay, captured
    window.tensor_deregister()
    comm.finalize()


@case(world=2)
def symmetric_memory_is_captured(make: Make) -> None:
    make(2).run(_replayed)


def _comes_and_goes(rank: Rank) -> None:
    """More segments than there is room for at a time."""
    with _small_steps():
        comm = rank.new_comm(BACKEND, "comes-and-goes")
    for turn in range(8):
        memory = Memory(rank, comm, True)
        gathering = Gathering(rank, comm, memory.take(COUNT))
        gathering.prepare(turn)
        earlier = _named(comm)
        gathering.call()
        gathering.check(turn, "turn")
        assert _named(comm) > earlier
        memory.give_back()
        del gathering, memory
    comm.finalize()


@case(world=2)
def segments_come_and_go(make: Make) -> None:
    make(2).run(_comes_and_goes)


@contextmanager
def _pooled(rank: Rank, comm: TorchComm, count: int) -> Iterator[torch.Tensor]:
    """A tensor of the communicator's allocator: of a pool of torch's, where torch knows the GPU."""
    if rank.gpu().is_real:
        pool = torch.cuda.MemPool(comm.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(count, device=rank.device(BACKEND))
        yield tensor
        del tensor, pool
        torch.cuda.empty_cache()
        return
    library = ctypes.CDLL(str(Path(torchcomms._comms.__file__).parent / "lib/libtorchcomms.so"))
    library.torchcomms_ctran_allocate.restype = ctypes.c_void_p
    library.torchcomms_ctran_allocate.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    library.torchcomms_ctran_free.argtypes = (
        ctypes.c_void_p,
        *library.torchcomms_ctran_allocate.argtypes,
    )
    address = library.torchcomms_ctran_allocate(4 * count, 0, None)
    assert address
    memory = (ctypes.c_char * (4 * count)).from_address(address)
    yield torch.frombuffer(memory, dtype=torch.float32)
    library.torchcomms_ctran_free(address, 4 * count, 0, None)


def _pool(rank: Rank) -> None:
    """Tensors of the allocator are symmetric, and windows take them."""
    with _small_steps():
        comm = rank.new_comm(BACKEND, "pool")
    count = 1 << 22
    following, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    for _ in range(3):
        with _pooled(rank, comm, count) as tensor:
            comm.tensor_register(tensor)
            gathering = Gathering(rank, comm, tensor)
            for async_op in (False, True):
                earlier = _named(comm)
                gathering.prepare(async_op)
                gathering.call(async_op)
                gathering.check(async_op, "all_gather")
                assert _named(comm) > earlier
            del gathering
            comm.tensor_deregister(tensor)
            window = comm.new_window(tensor)
            own = torch.full((1000,), rank.rank + 0.5, device=tensor.device)
            window.put(own, following, 10, async_op=False)
            window.signal(following, async_op=False)
            window.wait_signal(before, async_op=False)
            _equal(rank, tensor[10:1010], torch.full((1000,), before + 0.5), "put")
            view = window.map_remote_tensor(following)
            assert view.shape == tensor.shape
            _equal(rank, view[10:1010], own.cpu(), "view")
            del view
            window.tensor_deregister()
            del tensor, window
    comm.finalize()


def _registered(rank: Rank) -> None:
    """Memory of NCCL is symmetric for as long as it is registered."""
    with _small_steps():
        comm = rank.new_comm(BACKEND, "registered")
    for turn in range(3):
        with memory_of_nccl(rank, 1 << 22) as tensor:
            gathering = Gathering(rank, comm, tensor)
            for registered in (False, True, False):
                if registered:
                    comm.tensor_register(tensor)
                earlier = _named(comm)
                gathering.prepare(turn)
                gathering.call()
                gathering.check(turn, "all_gather")
                assert (_named(comm) > earlier) == registered
                if registered:
                    comm.tensor_deregister(tensor)
            del gathering, tensor
    comm.finalize()


@case(world=2)
def registered_memory_of_nccl_is_symmetric(make: Make) -> None:
    make(2).run(_registered)


def _wrapped(rank: Rank) -> None:
    """torch.distributed registers a whole pool; backends share the allocator of the engine."""
    with _small_steps():
        comm = rank.new_comm(BACKEND, "wrapped")
    backend = torchcomms._comms._BackendWrapper(comm)
    for allocator in (
        backend.mem_allocator,
        torchcomms.get_mem_allocator("ncclx"),
        torchcomms.get_mem_allocator("ctran"),
        torchcomms.get_mem_allocator("nccl"),
    ):
        pool = torch.cuda.MemPool(allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(1 << 22, device=rank.device(BACKEND))
        backend.register_mem_pool(pool)
        backend.register_mem_pool(pool)  # nothing new
        gathering = Gathering(rank, comm, tensor)
        earlier = _named(comm)
        gathering.prepare(0)
        gathering.call()
        gathering.check(0, "all_gather")
        assert _named(comm) > earlier
        backend.deregister_mem_pool(pool)
        del gathering, tensor, pool
        torch.cuda.empty_cache()
    comm.finalize()


@case(world=2, real=True)
def pools_are_registered_through_c10d(make: Make) -> None:
    make(2).run(_wrapped)


@case(world=2)
def a_pool_has_symmetric_memory(make: Make) -> None:
    make(2).run(_pool)
