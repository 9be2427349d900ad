"""Algorithms in C++ that serve torchcomms, torch.distributed and DDP, on memory of the host."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Died, Rank, Ranks, Returned
from harness.failing import error_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mscclpp
import torchcomms
from torchcomms import ReduceOp
from torchcomms.select import Explanation

MakeRanks = Callable[[int], Ranks]
KERNELS = Path(__file__).parent / "native" / "kernels"
GUIDE = Path(__file__).parents[2] / "examples" / "torch-integration" / "customized_allgather.cu"


def native(name: str) -> mscclpp.Algorithm:
    module = mscclpp.compile_native(name, KERNELS / f"{name}.cu", device="cpu")
    return mscclpp.Algorithm.create_from_native_capsule(module.create())


def kinds() -> ModuleType:
    return mscclpp.compile_native("all_kinds", KERNELS / "all_kinds.cu", device="cpu")


def all_gather() -> mscclpp.Algorithm:
    module = mscclpp.compile_native("mscclpp_native", GUIDE, device="cpu")
    return mscclpp.Algorithm.create_from_native_capsule(module.create_allgather_algorithm())


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Before ranks have their timeouts."""
    for name in ("packet_all_reduce", "faulty_all_reduce"):
        native(name)
    kinds()
    all_gather()


def explained(comm: torchcomms.TorchComm, count: int = 1000) -> Explanation:
    return comm.explain("all_reduce", 4 * count, torch.float32)


def why_not(comm: torchcomms.TorchComm, name: str, count: int = 1000) -> str:
    alternatives = explained(comm, count).alternatives
    return next(one.why_not for one in alternatives if one.algorithm == f"plan:{name}")


def value(rank: int, count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) * 7 + 1009 * (rank + 1)


def total(size: int, count: int) -> torch.Tensor:
    return torch.stack([value(rank, count) for rank in range(size)]).sum(0)


def serves(rank: Rank) -> None:
    comm, algorithm = rank.comm("ctran"), native("packet_all_reduce")
    name, types = f"plan:{algorithm.name}", [torch.float32]

    def reduced(count: int, **options: Any) -> None:
        for _ in range(3):
            mine = value(rank.rank, count)
            comm.all_reduce(mine, ReduceOp.SUM, async_op=False, **options)
            assert mine.equal(total(rank.size, count))

    with mscclpp.register(algorithm, comm, dtypes=types):
        assert explained(comm).algorithm != name  # nobody has asked for it
        reduced(1000, hints={"ctran::algorithm": name})
        reduced(1000, hints={"ctran::algorithm": f"all_reduce={name}"})
        assert (
            comm.explain(
                "all_reduce", 4000, torch.float32, hints={"ctran::algorithm": name}
            ).algorithm
            == name
        )
    with mscclpp.register(algorithm, comm, dtypes=["float32"], prefer=True):
        assert explained(comm).algorithm == name
        for count in (1, 5, 1024, 10_001):
            reduced(count)
        works, several = [], [value(rank.rank, 100 + i) for i in range(5)]
        for mine in several:
            works.append(comm.all_reduce(mine, ReduceOp.SUM, async_op=True))
        for work in works:
            work.wait()
        assert all(mine.equal(total(rank.size, 100 + i)) for i, mine in enumerate(several))
        whole = torch.full((6,), rank.rank + 1, dtype=torch.int64)
        comm.all_reduce(whole, ReduceOp.SUM, async_op=False)  # another algorithm does those
        assert whole.eq(rank.size * (rank.size + 1) // 2).all()
        largest = value(rank.rank, 50)
        comm.all_reduce(largest, ReduceOp.MAX, async_op=False)
        assert largest.equal(value(rank.size - 1, 50))
        with mscclpp.register(algorithm, "another", dtypes=types):
            pass
        pair = comm.split([0, 1] if rank.rank < 2 else [2, 3], f"pair{rank.rank // 2}")
        assert pair is not None
        part = value(pair.get_rank(), 10)
        pair.all_reduce(part, ReduceOp.SUM, async_op=False)
        assert part.equal(total(2, 10))
        pair.finalize()
    assert explained(comm).algorithm != name
    algorithm.set_message_size_range(16, 4096)
    with mscclpp.register(algorithm, dtypes=types, prefer=True):
        assert explained(comm, 1024).algorithm == name
        assert "it is for messages of 16 to 4096 bytes" in why_not(comm, algorithm.name, 1025)
        assert comm.explain("all_reduce", 800, torch.int64).algorithm != name
        rank_order = {"ctran::deterministic": "rank_order"}
        found = comm.explain("all_reduce", 4000, torch.float32, hints=rank_order)
        assert found.algorithm != name
        if rank.size == 4:
            apart = rank.comm("ctran", hosts=2)
            assert "cannot span hosts" in why_not(apart, algorithm.name)


@pytest.mark.parametrize("size", [2, 4])
def test_serves_the_calls_that_it_is_for(ranks: MakeRanks, size: int) -> None:
    ranks(size).run(serves)


def gathers(rank: Rank) -> None:
    comm = rank.comm("ctran")
    with mscclpp.register(all_gather(), comm, prefer=True):
        for count in (4, 1000):
            mine = value(rank.rank, count)
            wanted = [value(r, count) for r in range(rank.size)]
            whole = torch.full((rank.size * count,), -1.0)
            comm.all_gather_single(whole, mine, async_op=False)
            assert whole.equal(torch.cat(wanted))
            apart = [torch.full((count,), -1.0) for _ in range(rank.size)]
            comm.all_gather(apart, mine, async_op=False)
            assert all(one.equal(other) for one, other in zip(apart, wanted, strict=True))
        assert comm.explain("all_gather", 4000, torch.float32).algorithm.startswith("plan:")


def test_the_algorithm_of_the_guide_gathers_into_tensors_and_lists(ranks: MakeRanks) -> None:
    ranks(2).run(gathers)


def parts(rank: int, size: int, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """A block for each rank; sums of them are exact."""
    whole = torch.arange(size * count) * 3 + 11 * (rank + 1)
    return list((whole % 61).to(dtype).chunk(size)) if count else [whole.to(dtype)] * size


class Calls:
    """Every collective that a native algorithm serves, with all ways of placing its buffers."""

    def __init__(self, rank: Rank, comm: torchcomms.TorchComm) -> None:
        self.rank, self.size, self.comm = rank.rank, rank.size, comm

    def wanted(self, count: int, dtype: torch.dtype, op: ReduceOp) -> list[torch.Tensor]:
        """The reductions of the blocks."""
        every = [parts(r, self.size, count, dtype) for r in range(self.size)]
        stacked = [torch.stack([one[block] for one in every]) for block in range(self.size)]
        if op == ReduceOp.SUM:
            return [one.sum(0, dtype=dtype) for one in stacked]
        return [one.max(0).values if count else one[0] for one in stacked]

    def allreduce(self, count: int, dtype: torch.dtype, op: ReduceOp) -> None:
        mine = torch.cat(parts(self.rank, self.size, count, dtype))
        self.comm.all_reduce(mine, op, async_op=False)
        assert mine.equal(torch.cat(self.wanted(count, dtype, op)))

    def reducescatter(self, count: int, dtype: torch.dtype, op: ReduceOp) -> None:
        wanted = self.wanted(count, dtype, op)[self.rank]
        blocks = parts(self.rank, self.size, count, dtype)
        whole, result = torch.cat(blocks), torch.zeros(count, dtype=dtype)
        kept = whole.clone()
        self.comm.reduce_scatter_single(result, whole, op, async_op=False)
        assert result.equal(wanted)
        assert whole.equal(kept)
        result = torch.zeros(count, dtype=dtype)
        self.comm.reduce_scatter(result, [one.clone() for one in blocks], op, async_op=False)
        assert result.equal(wanted)
        own = whole[self.rank * count : (self.rank + 1) * count]
        self.comm.reduce_scatter_single(own, whole, op, async_op=False)
        assert own.equal(wanted)

    def allgather(self, count: int, dtype: torch.dtype, _op: ReduceOp) -> None:
        mine = parts(self.rank, self.size, count, dtype)[0].clone()
        wanted = [parts(r, self.size, count, dtype)[0] for r in range(self.size)]
        whole = torch.zeros(self.size * count, dtype=dtype)
        self.comm.all_gather_single(whole, mine, async_op=False)
        assert whole.equal(torch.cat(wanted))
        lists = [torch.zeros(count, dtype=dtype) for _ in range(self.size)]
        self.comm.all_gather(lists, mine, async_op=False)
        assert all(one.equal(other) for one, other in zip(lists, wanted, strict=True))
        whole.zero_()
        own = whole[self.rank * count : (self.rank + 1) * count]
        own.copy_(mine)
        self.comm.all_gather_single(whole, own, async_op=False)
        assert whole.equal(torch.cat(wanted))

    def alltoall(self, count: int, dtype: torch.dtype, _op: ReduceOp) -> None:
        blocks = [one.clone() for one in parts(self.rank, self.size, count, dtype)]
        wanted = [parts(r, self.size, count, dtype)[self.rank] for r in range(self.size)]
        result = torch.zeros(self.size * count, dtype=dtype)
        self.comm.all_to_all_single(result, torch.cat(blocks), async_op=False)
        assert result.equal(torch.cat(wanted))
        lists = [torch.zeros(count, dtype=dtype) for _ in range(self.size)]
        self.comm.all_to_all(lists, blocks, async_op=False)
        assert all(one.equal(other) for one, other in zip(lists, wanted, strict=True))

    def broadcast(self, count: int, dtype: torch.dtype, _op: ReduceOp) -> None:
        for root in range(self.size):
            mine = parts(self.rank, self.size, count, dtype)[0].clone()
            self.comm.broadcast(mine, root, async_op=False)
            assert mine.equal(parts(root, self.size, count, dtype)[0])


NAMES = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
}


def every_call(rank: Rank) -> None:
    comm, module = rank.comm("ctran"), kinds()
    calls = Calls(rank, comm)
    for kind, op_name in NAMES.items():
        for mode in range(3):
            algorithm = mscclpp.Algorithm.create_from_native_capsule(module.create(kind, mode))
            reduces, types = kind in ("allreduce", "reducescatter"), [torch.float32, torch.uint8]
            with mscclpp.register(
                algorithm,
                comm,
                prefer=True,
                dtypes=types if reduces else None,
                reductions=(mscclpp.ReduceOp.SUM, mscclpp.ReduceOp.MAX),
            ):
                # int16 is not among what it reduces: another algorithm does those.
                for dtype in (*types, torch.int16):
                    served = not reduces or dtype in types
                    name = comm.explain(op_name, 24 * rank.size, dtype).algorithm
                    assert (name == f"plan:{algorithm.name}") == served
                    for count in (0, 1, 33, 1000):
                        for op in (ReduceOp.SUM, ReduceOp.MAX):
                            getattr(calls, kind)(count, dtype, op)


@pytest.mark.parametrize("size", [2, 3])
def test_all_collectives_with_all_ways_of_placing_buffers(ranks: MakeRanks, size: int) -> None:
    ranks(size).run(every_call)


def leaves_nothing(rank: Rank) -> None:
    module = kinds()
    algorithm = mscclpp.Algorithm.create_from_native_capsule(module.create("allreduce", 0))
    before = module.contexts()
    for round in range(3):
        comm = rank.new_comm("ctran", f"left{round}")
        with mscclpp.register(algorithm, comm, prefer=True, dtypes=[torch.float32]):
            mine = value(rank.rank, 9)
            comm.all_reduce(mine, ReduceOp.SUM, async_op=False)
            assert mine.equal(total(rank.size, 9))
            assert module.contexts() == before + 1
        comm.finalize()
        del comm
        gc.collect()
        assert module.contexts() == before


def test_what_it_made_goes_with_the_communicator(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(leaves_nothing)


def competes(rank: Rank) -> list[str]:
    comm = rank.new_comm("ctran", "measured")
    algorithm = native("packet_all_reduce")
    algorithm.set_message_size_range(4, 1 << 16)
    with mscclpp.register(algorithm, comm, dtypes=[torch.float32]):
        for seconds in (2, 4, 8, 16, 32):  # a busy machine takes longer
            comm.tune(seconds=seconds)
            found = comm.explain("all_reduce", 4096, torch.float32)
            measured = [one.algorithm for one in found.alternatives if one.measured_us]
            if f"plan:{algorithm.name}" in measured:
                break
        for count in (1, 1000, 100_000):
            mine = value(rank.rank, count)
            comm.all_reduce(mine, ReduceOp.SUM, async_op=False)
            assert mine.equal(total(rank.size, count))
    comm.finalize()
    return measured


def test_it_is_measured_beside_the_engines_own(
    fresh_ranks: MakeRanks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTRAN_TUNING_DIR", str(tmp_path))
    for measured in fresh_ranks(2).run(competes):
        assert "plan:packet_all_reduce" in measured
        assert len(measured) > 1


def on_some_ranks(rank: Rank, where: list[int]) -> str:
    comm = rank.new_comm("ctran", "some", timeout=timedelta(seconds=20))
    mine = torch.ones(9)
    with contextlib.ExitStack() as stack:
        if rank.rank in where:
            algorithm = native("packet_all_reduce")
            stack.enter_context(mscclpp.register(algorithm, comm, prefer=True, dtypes=["float32"]))

        def calls() -> None:
            comm.all_reduce(mine, ReduceOp.SUM, async_op=False)
            comm.barrier(async_op=False)

        return str(error_of(calls))


@pytest.mark.parametrize("where", [[0], [1, 2]])
def test_registered_on_some_ranks_it_is_an_error_that_names_one(
    fresh_ranks: MakeRanks, where: list[int]
) -> None:
    for error in fresh_ranks(3).run(on_some_ranks, where):
        assert "called the first collective that a registered algorithm serves" in error
        assert "called all_reduce(sum, float32, 9 elements)" in error
        assert "all ranks must register the same algorithms" in error


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.Linear(40, 5))


def trained(network: nn.Module, batches: Callable[[int], list[torch.Tensor]]) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2)
    for step in range(3):
        optimizer.zero_grad()
        own = batches(step)
        for one in own:
            (network(one).square().mean() / len(own)).backward()
        optimizer.step()
    return [parameter.detach() for parameter in network.parameters()]


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, 20, generator=torch.Generator().manual_seed(10 * step + rank))


def trains(rank: Rank) -> list[bytes]:
    size, algorithm = rank.size, native("packet_all_reduce")
    dist.init_process_group("ctran", store=rank.store("ddp"), rank=rank.rank, world_size=size)
    try:
        with mscclpp.register(algorithm, prefer=True, dtypes=[torch.float32]):
            found = trained(DistributedDataParallel(model()), lambda step: [batch(step, rank.rank)])
            summed = value(rank.rank, 33)
            dist.all_reduce(summed)
            assert summed.equal(total(size, 33))
    finally:
        dist.destroy_process_group()
    alone = trained(model(), lambda step: [batch(step, r) for r in range(size)])
    for one, other in zip(found, alone, strict=True):
        torch.testing.assert_close(one, other)
    return [parameter.numpy().tobytes() for parameter in found]


def test_ddp_trains_through_a_kernel(ranks: MakeRanks) -> None:
    first, *others = ranks(3).run(trains)
    assert all(other == first for other in others)


def faults(rank: Rank, words: int, name: str) -> tuple[str, str]:
    comm = rank.new_comm("ctran", name, timeout=timedelta(seconds=4))
    with mscclpp.register(native("faulty_all_reduce"), name, prefer=True, dtypes=[torch.float32]):
        comm.all_reduce(torch.ones(9), ReduceOp.SUM, async_op=False)  # which it can do

        def calls() -> None:
            comm.all_reduce(torch.ones(words), ReduceOp.SUM, async_op=False)
            longer = timedelta(seconds=20)  # rank 1 is the one that is late
            comm.all_reduce(torch.ones(9), ReduceOp.SUM, async_op=False, timeout=longer)

        with pytest.raises(torchcomms.CommError) as raised:
            calls()
    return type(raised.value).__name__, str(raised.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (1, "the algorithm 'faulty' failed on rank 1: it returned 3"),
        (2, "the algorithm 'faulty' failed on rank 1: no luck today"),
        (3, "the algorithm 'faulty' has not ended within 4000 ms on rank 1"),
    ],
)
def test_what_it_does_wrong_is_told_on_all_ranks(
    fresh_ranks: MakeRanks, words: int, says: str
) -> None:
    for _, error in fresh_ranks(3).run(faults, words, f"faults{words}"):
        assert says in error


def is_late(rank: Rank) -> None:
    comm = rank.new_comm("ctran", "late", timeout=timedelta(seconds=1))
    with mscclpp.register(native("faulty_all_reduce"), prefer=True, dtypes=[torch.float32]):
        longer = timedelta(seconds=60)
        comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=False, timeout=longer)
        comm.all_reduce(torch.ones(9), ReduceOp.SUM, async_op=False)
    comm.finalize()


def test_the_deadline_of_a_call_is_that_of_its_waits(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(3).run(is_late)


def test_a_rank_that_dies_in_it_is_named(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(3).start(faults, 5, "dies")
    first, dead, last = job.outcomes()
    assert isinstance(dead, Died)
    for one in (first, last):
        assert isinstance(one, Returned)
        assert "rank 1" in one.value[1]


def is_aborted(rank: Rank) -> str:
    comm, store = rank.new_comm("ctran", "aborted"), rank.store("go")
    with mscclpp.register(native("faulty_all_reduce"), prefer=True, dtypes=[torch.float32]):
        calls = threading.Event()

        def tells() -> None:
            calls.wait()
            store.set("called", "1")

        if rank.rank == 1:  # the call waits for rank 0, and lets other threads run meanwhile
            thread = threading.Thread(target=tells)
            thread.start()
            calls.set()
        else:
            store.wait(["called"])
        work = comm.all_reduce(torch.ones(3), ReduceOp.SUM, async_op=True)
        if rank.rank == 0:
            work.wait()
            comm.abort()
            return "aborted"
        with pytest.raises(torchcomms.CommError) as raised:
            work.wait()
        thread.join()
        return str(raised.value)


def test_an_abort_ends_it(fresh_ranks: MakeRanks) -> None:
    assert "was aborted by rank 0" in fresh_ranks(2).run(is_aborted)[1]


def test_what_it_sums_has_to_be_said() -> None:
    with pytest.raises(TypeError, match="so only you know of which types it makes sums"):
        mscclpp.register(native("packet_all_reduce"))
    with pytest.raises(ValueError, match="there is no DataType for float7"):
        mscclpp.register(native("packet_all_reduce"), dtypes=["float7"])
