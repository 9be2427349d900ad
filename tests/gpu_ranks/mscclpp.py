"""What `mscclpp` does with memory of GPUs: default algorithms, programs, graphs, and refusals."""

from __future__ import annotations

import ctypes
import json
import os
import re
import runpy
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from harness import Rank
from harness.devices import StandIn, has_gpu
from harness.failing import error_of

import mscclpp
from gpu_ranks import Make, case
from mscclpp import ReduceOp
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

PROGRAMS = Path(__file__).parents[1] / "mscclpp" / "programs"
COUNTS = (0, 1, 1001, 70_001)
# On the stand-ins each rank compiles the kernels of each type.
TYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8) if has_gpu() else (torch.float32,)
DEFAULTS = list(mscclpp.AlgorithmCollectionBuilder().build_default_algorithms())
SOON = 1.0


def symmetric(count: int) -> torch.Tensor:
    """Of float32, in memory that other ranks' GPUs can map."""
    buffer = mscclpp.RawGpuBuffer(4 * count, device="cuda")
    if has_gpu():
        return torch.utils.dlpack.from_dlpack(buffer.to_dlpack("torch.float32"))
    words = (ctypes.c_float * count).from_address(buffer.data())
    words.owner = buffer  # type: ignore[attr-defined]
    return torch.frombuffer(words, dtype=torch.float32)


class Group:
    """A group of all ranks, whose tensors lie on GPUs."""

    def __init__(self, rank: Rank, name: str, timeout: float = 60.0) -> None:
        self.gpu = rank.gpu()
        self.group = mscclpp.CommGroup(
            store=rank.store(f"mscclpp-{name}"), rank=rank.rank, size=rank.size, timeout=timeout
        )
        self.comm = self.group.communicator
        self.executor = mscclpp.Executor(self.comm)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.group.finalize()

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.gpu.place(tensor)

    def start(
        self,
        algorithm: mscclpp.Algorithm,
        mine: torch.Tensor,
        result: torch.Tensor,
        op: ReduceOp = ReduceOp.NOP,
        **more: Any,
    ) -> int:
        """As the guide has it: the call returns when it is on the stream."""
        return algorithm.execute(
            comm=self.comm,
            executor=self.executor,
            input_buffer=mine.data_ptr(),
            output_buffer=result.data_ptr(),
            input_size=mine.nbytes,
            output_size=result.nbytes,
            dtype=torch_dtype_to_mscclpp_dtype(mine.dtype),
            op=op,
            stream=self.gpu.stream(),
            **more,
        )

    def run(
        self, algorithm: mscclpp.Algorithm, mine: torch.Tensor, result: torch.Tensor, **more: Any
    ) -> torch.Tensor:
        """What is in `result` then, on the CPU."""
        assert self.start(algorithm, mine, result, **more) == 0
        self.gpu.synchronize()
        return result.cpu().clone()


def named(name: str) -> mscclpp.Algorithm:
    return next(algorithm for algorithm in DEFAULTS if algorithm.name == name)


def numbers(rank: int, count: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers, which every type adds exactly, other ones at every place."""
    return ((torch.arange(count) * (rank + 1)) % 5).to(kind)


def _expected(
    collective: str, blocks: list[torch.Tensor], me: int, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a rank has, and what it gets, of blocks of so many numbers."""
    part = slice(me * count, (me + 1) * count)
    total = torch.stack([block.double() for block in blocks]).sum(0).to(blocks[0].dtype)
    if collective == "allreduce":
        return blocks[me], total
    if collective == "allgather":
        own = [block[r * count : (r + 1) * count] for r, block in enumerate(blocks)]
        return own[me], torch.cat(own)
    if collective == "reducescatter":
        return blocks[me], total[part]
    if collective == "alltoall":
        return blocks[me], torch.cat([block[part] for block in blocks])
    return blocks[me], blocks[1]  # from rank 1


def _check(on: Group, algorithm: mscclpp.Algorithm, count: int, kind: torch.dtype) -> None:
    size, me = on.group.nranks, on.group.my_rank
    blocks = [numbers(rank, count * size, kind) for rank in range(size)]
    given, wanted = _expected(algorithm.collective, blocks, me, count)
    what = (algorithm.name, count, kind)
    mine = on.place(given)
    result = on.place(torch.full_like(wanted, 3))
    if algorithm.collective == "broadcast":
        assert torch.equal(on.run(algorithm, mine, result, extras={"root": 1}), wanted), what
        assert torch.equal(mine.cpu(), given), what
        assert torch.equal(on.run(algorithm, mine, mine, extras={"root": 1}), wanted), what
        return
    assert torch.equal(on.run(algorithm, mine, result), wanted), what
    assert torch.equal(mine.cpu(), given), what
    if algorithm.collective in ("allreduce", "alltoall"):
        assert torch.equal(on.run(algorithm, mine, mine), wanted), what


def _defaults(rank: Rank) -> None:
    with Group(rank, "defaults") as on:
        for kind in TYPES:
            for algorithm in DEFAULTS:
                for count in COUNTS:
                    _check(on, algorithm, count, kind)
        served = {a.name: a.explain(on.comm, 4096, mscclpp.DataType.float32) for a in DEFAULTS}
        assert served["default_allreduce_allpair_packet"] == "one_shot"
        assert served["default_allreduce_nvls_packet"] == "two_shot"
        assert served["default_allreduce_rsag_pipeline"] == "pipeline"
        assert served["default_alltoall_zero_copy"] == "direct"
        # What packets have no room for, the pipeline does.
        large = named("default_allreduce_allpair_packet")
        assert large.explain(on.comm, 1 << 30, mscclpp.DataType.float32) == "pipeline"


@case(world=2)
def default_algorithms_take_memory_of_gpus(make: Make) -> None:
    make(2).run(_defaults)


def _both_memories(rank: Rank) -> None:
    """One communicator, in turns; the CPU's calls end before they return."""
    with Group(rank, "both") as on:
        algorithm = named("default_allreduce_packet")
        total = numbers(0, 1001) + numbers(1, 1001)
        for _ in range(3):
            on_cpu = numbers(rank.rank, 1001)
            code = algorithm.execute(
                on.comm, on_cpu.data_ptr(), on_cpu.data_ptr(), on_cpu.nbytes, on_cpu.nbytes,
                mscclpp.DataType.float32,
            )  # fmt: skip
            assert code == 0
            assert torch.equal(on_cpu, total)
            mine = on.place(numbers(rank.rank, 1001))
            assert torch.equal(on.run(algorithm, mine, mine), total)
        on.group.barrier()


@case(world=2)
def a_communicator_serves_both_memories(make: Make) -> None:
    make(2).run(_both_memories)


def _over_hosts(rank: Rank, hosts: tuple[int, ...]) -> None:
    os.environ["CTRAN_HOST"] = f"host{hosts[rank.rank]}"
    algorithms = [
        named("default_allreduce_packet"),
        named("default_allgather_fullmesh2"),
        named("default_alltoall_fullmesh"),
        named("default_broadcast_fullmesh"),
        compiled("all_gather_port", ranks=rank.size),
        compiled("all_reduce_exchange", ranks=rank.size),
        compiled("all_reduce_two_shot", ranks=rank.size, instances=2),
    ]
    try:
        with Group(rank, f"hosts {hosts}") as on:
            for algorithm in algorithms:
                for count in COUNTS:
                    _check(on, algorithm, count, torch.float32)
            for program in algorithms[4:]:
                served = program.explain(on.comm, 4096, mscclpp.DataType.float32)
                assert served.startswith(f"plan:{program.name}-"), served
            _replays(on, algorithms[0], 70_001)
            _replays(on, algorithms[-1], 70_001)
    finally:
        del os.environ["CTRAN_HOST"]


@case(world=4, breaks=True)
def algorithms_take_memory_of_gpus_of_several_hosts(make: Make) -> None:
    for hosts in ((0, 0, 1, 1), (0, 1, 2)):
        make(len(hosts)).run(_over_hosts, hosts)


def _replays_of_one_call(on: Group, algorithm: mscclpp.Algorithm, count: int) -> None:
    """Nothing else is executed between two replays, so what they leave is all that there is."""
    mine, result = (on.place(torch.zeros(count)) for _ in range(2))
    replay = on.gpu.capture(lambda: on.start(algorithm, mine, result))
    for number in range(5):
        inputs = [numbers(r, count) + number for r in range(on.group.nranks)]
        mine.copy_(inputs[on.group.my_rank])
        result.fill_(-1)
        on.gpu.synchronize()
        replay()
        on.gpu.synchronize()
        assert torch.equal(result.cpu(), torch.stack(inputs).sum(0)), (algorithm, number)


def _replays(on: Group, algorithm: mscclpp.Algorithm, count: int) -> None:
    """Captured, then replayed with other inputs each time, in place and not."""
    size, me = on.group.nranks, on.group.my_rank
    mine = on.place(torch.zeros(count))
    result = on.place(torch.zeros(count))

    def step() -> None:
        assert on.start(algorithm, mine, result) == 0
        assert on.start(algorithm, result, result) == 0

    replay = on.gpu.capture(step)
    for number in range(5):
        inputs = [numbers(r, count) + number for r in range(size)]
        mine.copy_(inputs[me])
        result.fill_(-1)
        on.gpu.synchronize()
        replay()
        on.gpu.synchronize()
        assert torch.equal(result.cpu(), size * torch.stack(inputs).sum(0)), (algorithm, number)


def _graphs(rank: Rank) -> None:
    with Group(rank, "graphs") as on:
        on.group.use_gpu()  # before the capture, in which the first executes are
        for name in ("packet", "rsag", "rsag_pipeline"):
            _replays(on, named(f"default_allreduce_{name}"), 70_001)
        _replays_of_one_call(on, named("default_allreduce_packet"), 1001)
        _replays_of_one_call(on, compiled("all_reduce_packets"), 1001)
        _replays_of_one_call(on, compiled("all_reduce_exchange", ranks=rank.size), 1001)


@case(world=2)
def default_algorithms_are_captured(make: Make) -> None:
    make(2).run(_graphs)


def _shapes(rank: Rank) -> None:
    with Group(rank, "shapes") as on:
        total = numbers(0, 70_001) + numbers(1, 70_001)
        asked = ((1, 32), (2, 64), (3, 500), (128, 1024), (0, 0))
        for name in ("packet", "nvls_packet", "rsag", "rsag_pipeline"):
            for nblocks, nthreads in asked:
                mine = on.place(numbers(rank.rank, 70_001))
                got = on.run(
                    named(f"default_allreduce_{name}"), mine, mine,
                    nblocks=nblocks, nthreads_per_block=nthreads,
                )  # fmt: skip
                assert torch.equal(got, total), (name, nblocks, nthreads)
                if nblocks == 0 or not isinstance(on.gpu, StandIn):
                    continue
                blocks, threads = on.gpu.last_launch()
                assert 1 <= blocks <= nblocks, (name, nblocks, blocks)
                assert threads <= min(512, nthreads // 32 * 32), (name, nthreads, threads)
                assert nblocks > 3 or blocks == nblocks, (name, nblocks, blocks)


@case(world=2)
def blocks_and_threads_are_as_asked(make: Make) -> None:
    make(2).run(_shapes)


def _refusals(rank: Rank) -> None:
    with Group(rank, "refusals") as on:
        algorithm = named("default_allreduce_packet")
        mine, host = on.place(numbers(rank.rank, 100)), numbers(rank.rank, 100)

        def captured() -> None:
            on.start(algorithm, mine, mine)

        def in_capture() -> None:
            told = error_of(captured, RuntimeError)
            assert "the first use of a GPU by this communicator cannot be captured" in str(told)

        on.gpu.capture(in_capture)  # the capture is as if nothing had been called
        told = error_of(lambda: on.start(algorithm, mine, host), ValueError)
        assert "input_buffer is on GPU " in str(told)
        assert "output_buffer in the host's memory" in str(told)
        told = error_of(
            lambda: algorithm.execute(
                on.comm, host.data_ptr(), host.data_ptr(), host.nbytes, host.nbytes,
                mscclpp.DataType.float32, stream=7,
            ),
            ValueError,
        )  # fmt: skip
        assert "there is no stream 7: on the CPU, stream is 0" in str(told)
        assert on.comm.gpu is None
        total = numbers(0, 100) + numbers(1, 100)
        assert torch.equal(on.run(algorithm, mine, mine), total)
        assert on.comm.gpu is not None
        for name in ("default_allreduce_packet", "default_broadcast_zero_copy"):
            told = error_of(lambda n=name: on.start(named(n), mine[:99], mine[1:]), ValueError)
            assert "overlaps the output, [" in str(told)
        other = on.comm.gpu + 1
        told = error_of(lambda: on.group.use_gpu(other), ValueError)
        assert "works on GPU" in str(told)


@case(world=2)
def what_gpus_cannot_do_is_refused(make: Make) -> None:
    make(2).run(_refusals)


def _late(rank: Rank) -> tuple[int, ...]:
    on = Group(rank, "late")
    algorithm, mine = named("default_allreduce_packet"), on.place(numbers(rank.rank, 1000))
    on.run(algorithm, mine, mine)
    on.comm.timeout = SOON
    if rank.rank == 1:
        rank.listen()  # until the other has given up
        return ()
    on.start(algorithm, mine, mine)
    on.gpu.synchronize()  # the kernel ends, and says who did not come
    error = error_of(lambda: on.start(algorithm, mine, mine), mscclpp.CommTimeoutError)
    assert on.comm.is_aborted()
    error_of(on.group.barrier, mscclpp.CommTimeoutError)
    rank.say("gave up")
    ranks: tuple[int, ...] = error.ranks
    return ranks


@case(world=2, breaks=True)
def a_rank_late_on_a_gpu_is_named(make: Make) -> None:
    job = make(2).start(_late)
    assert job.hear(0) == "gave up"
    job.say(1)
    assert job.results()[0] == (1,)


def compiled(name: str, **settings: object) -> mscclpp.DslAlgorithm:
    write = runpy.run_path(str(PROGRAMS / f"{name}.py"))["program"]
    return mscclpp.compile(write, **settings)


def _programs(rank: Rank) -> None:
    size = rank.size
    programs = [
        compiled("all_reduce_two_shot", ranks=size, instances=2),
        compiled("all_reduce_switch", ranks=size),
        compiled("all_reduce_exchange", ranks=size),
        compiled("all_gather_port", ranks=size),
        compiled("all_gather_ring", ranks=size),
        compiled("all_gather_switch", ranks=size),
        compiled("reduce_scatter_pull", ranks=size),
        compiled("reduce_scatter_pull", ranks=size, in_place=True),
        compiled("all_to_all_group", ranks=size),
    ]
    with Group(rank, "programs") as on:
        for program in programs:
            for count in COUNTS:
                _check(on, program, count, torch.float32)
            served = program.explain(on.comm, 4096, mscclpp.DataType.float32)
            assert served.startswith(f"plan:{program.name}-"), served
        two_shot = programs[0]
        mine = on.place(numbers(rank.rank, 1001))
        largest = torch.stack([numbers(r, 1001) for r in range(size)]).amax(0)
        assert torch.equal(on.run(two_shot, mine, mine, op=ReduceOp.MAX), largest)
        # As many blocks as it has thread blocks are the least that it can be executed by.
        for nblocks, nthreads in ((1, 32), (2, 64), (4, 512)):
            mine = on.place(numbers(rank.rank, 1001))
            got = on.run(two_shot, mine, mine, nblocks=nblocks, nthreads_per_block=nthreads)
            assert torch.equal(got, torch.stack([numbers(r, 1001) for r in range(size)]).sum(0))


@case(world=2)
def programs_take_memory_of_gpus(make: Make) -> None:
    make(2).run(_programs)


def _symmetric_programs(rank: Rank) -> None:
    """Straight from and to each other's tensors, once all ranks have mapped them; and a rank whose
    tensor is elsewhere."""
    size, count = rank.size, 40_001
    with Group(rank, "symmetric") as on:
        on.group.use_gpu()
        program = compiled("all_reduce_two_shot", ranks=size, instances=2)
        reached, elsewhere = symmetric(count), on.place(torch.empty(count))
        expected = torch.stack([numbers(r, count) for r in range(size)]).sum(0)
        for turn in range(60):
            mine = elsewhere if turn % 7 == 3 and rank.rank == 0 else reached
            mine.copy_(numbers(rank.rank, count))
            assert torch.equal(on.run(program, mine, mine).cpu(), expected), turn
            time.sleep(0.02)  # the others map it meanwhile
        reached.copy_(numbers(rank.rank, count))
        for _ in range(200):  # one close behind the other
            on.start(program, reached, reached, op=ReduceOp.MAX)
        on.gpu.synchronize()
        largest = torch.stack([numbers(r, count) for r in range(size)]).amax(0)
        assert torch.equal(reached.cpu(), largest)


@case(world=2)
def programs_reach_symmetric_memory(make: Make) -> None:
    make(2).run(_symmetric_programs)


def _named(on: Group, algorithm: mscclpp.Algorithm) -> int:
    """How often the engine has told the others of a place in memory that they have mapped."""
    operation = algorithm._operations[id(on.comm)]
    why = json.loads(operation.explain(4096, mscclpp.DataType.float32))["why"]
    found = re.search(r"named (\d+) times", why)
    return int(found[1]) if found else 0


def _symmetric_at_once(rank: Rank) -> None:
    with Group(rank, "at once") as on:
        on.group.use_gpu()
        program = compiled("all_reduce_two_shot", ranks=rank.size)
        elsewhere = on.place(numbers(rank.rank, 1001))
        on.run(program, elsewhere, elsewhere, symmetric_memory=True)  # and says so
        assert _named(on, program) == 0
        expected = torch.stack([numbers(r, 40_001) for r in range(rank.size)]).sum(0)
        for _ in range(3):
            before = _named(on, program)
            reached = symmetric(40_001)
            reached.copy_(numbers(rank.rank, 40_001))
            got = on.run(program, reached, reached, symmetric_memory=True)
            assert torch.equal(got, expected)
            assert _named(on, program) > before  # of the first call with that memory


@case(world=2)
def symmetric_memory_is_direct_at_once(make: Make) -> None:
    make(2).run(_symmetric_at_once)


def _captured_programs(rank: Rank) -> None:
    """For the first time in a capture; and as a plan in a file."""
    with Group(rank, "captured") as on:
        on.group.use_gpu()
        program = compiled("all_reduce_packets")
        _replays(on, program, 1001)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(program.to_json())
            file.flush()
            plan = mscclpp.ExecutionPlan(file.name, rank.rank)
        mine = on.place(numbers(rank.rank, 1001))
        code = on.executor.execute(
            rank.rank, mine.data_ptr(), mine.data_ptr(), mine.nbytes, mine.nbytes,
            mscclpp.DataType.float32, plan, on.gpu.stream(),
        )  # fmt: skip
        assert code == 0
        on.gpu.synchronize()
        assert torch.equal(mine.cpu(), numbers(0, 1001) + numbers(1, 1001))


@case(world=2)
def programs_are_captured_and_replayed(make: Make) -> None:
    make(2).run(_captured_programs)


def _tunes(rank: Rank, folder: str) -> dict[str, Any]:
    os.environ["CTRAN_TUNING_DIR"] = folder
    with Group(rank, "tunes") as on:
        on.group.use_gpu()
        sizes = [1 << 10, 1 << 16]
        natives = [named("default_allreduce_packet"), named("default_allreduce_rsag")]
        tuned = mscclpp.tune(on.group, ["allreduce"], sizes, 0.5, algorithms=natives)
        assert tuned.measured
        assert not mscclpp.tune(on.group, ["allreduce"], sizes, 0.5, algorithms=natives).measured
        for size in sizes:
            times = tuned.seconds["allreduce"][size]
            assert {name.partition("@")[0] for name in times} == {one.name for one in natives}
            assert any(name.endswith("@8x256") for name in times), times
            config = tuned.best_config("allreduce", size)
            shaped = f"@{config.nblocks}x{config.nthreads_per_block}" if config.nblocks else ""
            assert times[config.algorithm.name + shaped] == min(times.values())
        programs = [compiled("all_reduce_two_shot", ranks=rank.size)]
        alone = mscclpp.tune(on.group, ["allreduce"], sizes, 0.2, algorithms=programs)
        assert alone.best_config("allreduce", 1 << 10) == (programs[0], 0, 0)
        return dict(tuned.seconds)


@case(world=2)
def the_tuner_measures_on_gpus(make: Make) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = make(2).run(_tunes, folder)
    assert first == second
