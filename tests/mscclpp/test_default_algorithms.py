"""The algorithms that are there by default, executed on the CPU."""

from __future__ import annotations

import inspect
import os
import re
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks

import mscclpp
import mscclpp.ext
from mscclpp import DataType, ReduceOp
from mscclpp.defaults import DefaultAlgorithm
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

MakeRanks = Callable[[int], Ranks]
COUNTS = (0, 1, 7, 1000, 70_001)
COUNTS_OF_OTHER_TYPES = (*COUNTS[:-1], 9001)  # than float32, for a third of the time
OF_MSCCLPP = [
    "default_allreduce_allpair_packet",
    "default_allreduce_nvls_packet",
    "default_allreduce_packet",
    "default_allreduce_nvls_zero_copy",
    "default_allreduce_nvls_warp_pipeline",
    "default_allreduce_nvls_block_pipeline",
    "default_allreduce_fullmesh",
    "default_allreduce_rsag",
    "default_allreduce_rsag_pipeline",
    "default_allreduce_rsag_zero_copy",
    "default_allgather_fullmesh",
    "default_allgather_fullmesh2",
]
BEYOND = {
    "default_reduce_scatter_fullmesh": "reducescatter",
    "default_reduce_scatter_zero_copy": "reducescatter",
    "default_alltoall_fullmesh": "alltoall",
    "default_alltoall_zero_copy": "alltoall",
    "default_broadcast_fullmesh": "broadcast",
    "default_broadcast_zero_copy": "broadcast",
}
TYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.float8_e4m3fn,
    torch.float8_e5m2,
)  # fmt: skip


def defaults() -> mscclpp.AlgorithmCollection:
    return mscclpp.AlgorithmCollectionBuilder().build_default_algorithms()


def named(name: str) -> mscclpp.Algorithm:
    return next(algorithm for algorithm in defaults() if algorithm.name == name)


def group_of(rank: Rank) -> mscclpp.CommGroup:
    return mscclpp.CommGroup(store=rank.store("defaults"), rank=rank.rank, size=rank.size)


def execute(
    algorithm: mscclpp.Algorithm,
    group: mscclpp.CommGroup,
    mine: torch.Tensor,
    result: torch.Tensor,
    op: ReduceOp = ReduceOp.SUM,
    **more: object,
) -> int:
    return algorithm.execute(
        comm=group.communicator,
        input_buffer=mine.data_ptr(),
        output_buffer=result.data_ptr(),
        input_size=mine.nbytes,
        output_size=result.nbytes,
        dtype=torch_dtype_to_mscclpp_dtype(mine.dtype),
        op=op,
        **more,  # type: ignore[arg-type]
    )


def contribution(rank: int, count: int, kind: torch.dtype) -> torch.Tensor:
    """Small whole numbers, which every type adds exactly, other ones at every place."""
    return ((torch.arange(count) * (rank + 1)) % 5).to(kind)


def all_of(algorithm: mscclpp.Algorithm, group: mscclpp.CommGroup, kind: torch.dtype) -> None:
    size = group.nranks
    for count in COUNTS if kind is torch.float32 else COUNTS_OF_OTHER_TYPES:
        blocks = [contribution(rank, count * size, kind) for rank in range(size)]
        part = slice(group.my_rank * count, (group.my_rank + 1) * count)
        mine = blocks[group.my_rank].clone()
        total = torch.stack([block.double() for block in blocks]).sum(0).to(kind)
        wanted, result = mine, torch.full_like(mine, 3)
        if algorithm.collective == "allreduce":
            wanted = total
        elif algorithm.collective == "allgather":
            wanted = torch.cat([b[r * count : (r + 1) * count] for r, b in enumerate(blocks)])
            mine = mine[part]
        elif algorithm.collective == "reducescatter":
            wanted, result = total[part], result[:count]
        elif algorithm.collective == "alltoall":
            wanted = torch.cat([block[part] for block in blocks])
        else:
            wanted = blocks[1]
            for output in (result, mine):
                assert execute(algorithm, group, mine, output, extras={"root": 1}) == 0
                assert torch.equal(output.view(torch.uint8), wanted.view(torch.uint8))
                given = wanted if output is mine else blocks[group.my_rank]
                assert torch.equal(mine.view(torch.uint8), given.view(torch.uint8))
            continue
        assert execute(algorithm, group, mine, result) == 0
        assert torch.equal(result.double(), wanted.double()), (algorithm.name, count, kind)
        if algorithm.collective in ("allreduce", "alltoall"):
            assert execute(algorithm, group, mine, mine) == 0  # in place
            assert torch.equal(mine.double(), wanted.double()), (algorithm.name, count, kind)


def every_algorithm(rank: Rank) -> None:
    with group_of(rank) as group:
        for algorithm in defaults():
            for kind in TYPES if algorithm.name.endswith("_packet") else TYPES[:1]:
                all_of(algorithm, group, kind)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_each_gives_the_right_result(ranks: MakeRanks, size: int) -> None:
    ranks(size).run(every_algorithm)


def test_the_names_of_mscclpp_are_there_and_some_beyond() -> None:
    algorithms = list(defaults())
    assert [a.name for a in algorithms] == [*OF_MSCCLPP, *BEYOND]
    for algorithm in algorithms:
        short = algorithm.name.split("_")[1]
        assert algorithm.collective == BEYOND.get(algorithm.name, short)
        assert ("nvls" in algorithm.tags) == ("nvls" in algorithm.name)
        least, most = algorithm.message_size_range
        assert 0 <= least < most
        assert algorithm.is_native_algorithm()
        assert not algorithm.is_dsl_algorithm()
    packet = named("default_allreduce_packet")
    assert packet.message_size_range == (0, 4 << 20)
    assert packet.buffer_mode is mscclpp.CollectiveBufferMode.ANY
    assert not mscclpp.is_nvls_supported()


def test_those_of_cpp_are_the_same() -> None:
    root = Path(__file__).parents[2]
    source = (root / "mscclpp" / "csrc" / "default_algorithms.cpp").read_text()
    rows = re.findall(r'\{"(default_\w+)", "(\w+)", ("\w+"|nullptr)([^}]*)\}', source)
    assert [name for name, *_ in rows] == [algorithm.name for algorithm in defaults()]
    units = {"kKB": 1 << 10, "kMB": 1 << 20, "kNoLimit": 2**64 - 1}
    for (_, collective, served, rest), algorithm in zip(rows, defaults(), strict=True):
        assert isinstance(algorithm, DefaultAlgorithm)
        assert (algorithm.collective, algorithm._on_one_host) == (
            collective,
            "" if served == "nullptr" else served.strip('"'),
        )
        least, most, *tags = [*[word.strip() for word in rest.split(",")[1:]], *["", ""]][:4]
        sizes = [
            eval(size or default, units) for size, default in ((least, "0"), (most, "kNoLimit"))
        ]
        assert algorithm.message_size_range == tuple(sizes)
        assert list(algorithm.tags) == [tag.strip('"') for tag in tags if tag]


def in_order(rank: Rank) -> list[bytes]:
    """Sums that other orders would round otherwise."""
    results = []
    with group_of(rank) as group:
        torch.manual_seed(rank.rank)
        for kind in (torch.float32, torch.bfloat16):
            mine = torch.randn(10_007).to(kind)
            everyone = [torch.empty(0)] * rank.size
            for r in range(rank.size):
                torch.manual_seed(r)
                everyone[r] = torch.randn(10_007).to(kind)
            wanted = everyone[0].float()
            for one in everyone[1:]:
                wanted = wanted + one.float()
            for algorithm in defaults().get_by_collective("allreduce"):
                torch.manual_seed(rank.rank)
                mine = torch.randn(10_007).to(kind)
                assert execute(algorithm, group, mine, mine) == 0
                assert torch.equal(mine, wanted.to(kind)), algorithm.name
                results.append(mine.view(torch.uint8).numpy().tobytes())
    return results


def test_sums_are_in_the_order_of_the_ranks_and_the_same_bits_everywhere(ranks: MakeRanks) -> None:
    first, *others = ranks(4).run(in_order)
    assert all(other == first for other in others)


def on_two_hosts(rank: Rank) -> None:
    comm = rank.comm("ctran", 2)
    group = mscclpp.CommGroup.from_comm(comm)
    assert (group.nranks, group.nranks_per_node) == (4, 2)
    for name in ("default_allreduce_packet", "default_allgather_fullmesh", *BEYOND):
        all_of(named(name), group, torch.float32)


def overlapping(rank: Rank) -> None:
    with group_of(rank) as group:
        size, me = rank.size, rank.rank
        memory = torch.arange(100, dtype=torch.int32)
        one, all_blocks = 10, 10 * size
        places = {
            "allreduce": (one, one, 0),
            "allgather": (one, all_blocks, -one * me),
            "reducescatter": (all_blocks, one, one * me),
            "alltoall": (all_blocks, all_blocks, 0),
            "broadcast": (one, one, 0),
        }
        for algorithm in defaults():
            given, got, place = places[algorithm.collective]
            mine = memory[40 : 40 + given]
            for off in (-1, 1):
                at = 40 + place + off
                result = memory[at : at + got]
                with pytest.raises(ValueError, match="overlap") as told:
                    execute(algorithm, group, mine, result)
                for tensor in (mine, result):
                    begin = tensor.data_ptr()
                    assert f"[{begin:#x}, {begin + tensor.nbytes:#x})" in str(told.value)
            in_place = memory[40 + place : 40 + place + got]
            assert execute(algorithm, group, mine, in_place) == 0
            memory.copy_(torch.arange(100))
        group.barrier()


def test_input_and_output_overlap_in_place_only(ranks: MakeRanks) -> None:
    ranks(2).run(overlapping)


def test_they_serve_ranks_of_several_hosts(ranks: MakeRanks) -> None:
    ranks(4).run(on_two_hosts)


REDUCTIONS = {
    ReduceOp.SUM: lambda stack: stack.sum(0),
    ReduceOp.PROD: lambda stack: stack.prod(0),
    ReduceOp.MAX: lambda stack: stack.amax(0),
    ReduceOp.MIN: lambda stack: stack.amin(0),
    ReduceOp.AVG: lambda stack: stack.mean(0),
    ReduceOp.NOP: lambda stack: stack.sum(0),
}


def every_reduction(rank: Rank) -> None:
    with group_of(rank) as group:
        everyone = [contribution(r, 100, torch.float32) - 1 for r in range(rank.size)]
        for op, wanted in REDUCTIONS.items():
            mine = everyone[rank.rank].clone()
            assert execute(named("default_allreduce_packet"), group, mine, mine, op) == 0
            torch.testing.assert_close(mine, wanted(torch.stack(everyone)))
        bits = torch.tensor([12 >> rank.rank, 255])
        assert execute(named("default_allreduce_packet"), group, bits, bits, ReduceOp.BOR) == 0
        assert bits.tolist() == [12 | 6, 255]


def test_every_reduction(ranks: MakeRanks) -> None:
    ranks(2).run(every_reduction)


def like_flags(rank: Rank) -> None:
    """Whatever numbers packets are told apart by, data is every one of them some time."""
    with group_of(rank) as group:
        packets = [named(f"default_allreduce_{how}packet") for how in ("allpair_", "", "nvls_")]
        for turn in range(600):
            for algorithm in packets:
                mine = torch.full((64,), turn + rank.rank, dtype=torch.int32)
                assert execute(algorithm, group, mine, mine) == 0
                assert mine.eq(2 * turn + 1).all(), (algorithm.name, turn)


def test_data_may_be_equal_to_flags(ranks: MakeRanks) -> None:
    ranks(2).run(like_flags)


def in_turns(rank: Rank) -> None:
    """Where packets lie, data has lain before, and the other way round; one rank is late."""
    with group_of(rank) as group:
        names = ("rsag", "packet", "fullmesh", "allpair_packet", "rsag_pipeline", "packet")
        algorithms = [named(f"default_allreduce_{name}") for name in names]
        gather = named("default_allgather_fullmesh")
        for turn in range(40):
            for count, algorithm in enumerate(algorithms, 7 * turn + 1):
                mine = torch.arange(count, dtype=torch.int32) + turn + rank.rank
                assert execute(algorithm, group, mine, mine) == 0
                assert torch.equal(mine, 2 * (torch.arange(count) + turn) + 1), algorithm.name
            own, got = torch.full((turn + 1,), rank.rank + turn), torch.zeros(2 * (turn + 1))
            got = got.to(own.dtype)
            assert execute(gather, group, own, got) == 0
            assert got.tolist() == [turn] * (turn + 1) + [turn + 1] * (turn + 1)


def test_algorithms_in_turns_leave_each_other_nothing(ranks: MakeRanks) -> None:
    ranks(2).run(in_turns)


def of_one_allocation(rank: Rank) -> None:
    """Other places of the same memory, and other ones on each rank, are other buffers."""
    with group_of(rank) as group:
        capsule = mscclpp.RawGpuBuffer(1 << 16).to_dlpack("torch.int32")
        memory = torch.utils.dlpack.from_dlpack(capsule)
        for name in ("default_allreduce_rsag_zero_copy", "default_allreduce_packet"):
            for turn, at in enumerate((0, 4096, 100, 0, 8000)):
                memory.fill_(-1)
                begin = at + 16 * rank.rank
                mine = memory[begin : begin + 1000]
                mine.copy_(torch.arange(1000) + turn + rank.rank)
                assert execute(named(name), group, mine, mine, symmetric_memory=True) == 0
                assert torch.equal(mine, 2 * (torch.arange(1000) + turn) + 1), (name, at)
                assert memory[begin + 1000 :].eq(-1).all()
                assert memory[:begin].eq(-1).all()


def test_places_of_one_allocation_are_told_apart(ranks: MakeRanks) -> None:
    ranks(2).run(of_one_allocation)


def of_two_groups(rank: Rank) -> None:
    """Each in a thread of its own, at the same time, with the same algorithm objects."""
    size = rank.size
    groups = [
        mscclpp.CommGroup(store=rank.store(f"two {n}"), rank=rank.rank, size=size) for n in range(2)
    ]
    algorithms = [named("default_allreduce_packet"), named("default_allreduce_rsag")]

    def use(number: int) -> None:
        for turn in range(300):
            for algorithm in algorithms:
                mine = torch.arange(1 + turn) * (number + 1) + rank.rank
                assert execute(algorithm, groups[number], mine, mine) == 0
                wanted = size * torch.arange(1 + turn) * (number + 1) + size * (size - 1) // 2
                assert torch.equal(mine, wanted), (number, turn, algorithm.name)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(use, number) for number in range(2)]:
            done.result()
    for group in groups:
        group.finalize()


def test_groups_at_the_same_time(ranks: MakeRanks) -> None:
    ranks(2).run(of_two_groups)


def unsigned(rank: Rank) -> None:
    """Numbers whose highest bit is set are large, not negative."""
    with group_of(rank) as group:
        for kind, bits in ((torch.uint8, 8), (torch.uint16, 16), (torch.uint32, 32)):
            top = 1 << (bits - 1)
            ranks = [[top + 1, 3, 2 * top - 1, 0, 7], [2, top, 0, 2 * top - 1, 9]]
            for op, pick in ((ReduceOp.MIN, min), (ReduceOp.MAX, max)):
                for algorithm in defaults().get_by_collective("allreduce"):
                    mine = torch.tensor(ranks[rank.rank]).to(kind)
                    assert execute(algorithm, group, mine, mine, op) == 0
                    wanted = [pick(pair) for pair in zip(*ranks, strict=True)]
                    assert mine.tolist() == wanted, (algorithm.name, kind, op)


def test_unsigned_numbers_have_no_sign(ranks: MakeRanks) -> None:
    ranks(2).run(unsigned)


def by_position(rank: Rank) -> None:
    with group_of(rank) as group:
        mine = torch.ones(4)
        code = named("default_allreduce_packet").execute(
            group.communicator, mine.data_ptr(), mine.data_ptr(), 16, 16, DataType.float32,
            ReduceOp.SUM, 0, None, 8, 512, True, None, DataType.float32,
        )  # fmt: skip
        assert code == mscclpp.CommResult.COMM_SUCCESS
        assert mine.tolist() == [2.0] * 4


def test_arguments_by_position(ranks: MakeRanks) -> None:
    ranks(2).run(by_position)
    assert list(inspect.signature(mscclpp.Algorithm.execute).parameters)[1:] == [
        "comm", "input_buffer", "output_buffer", "input_size", "output_size", "dtype", "op",
        "stream", "executor", "nblocks", "nthreads_per_block", "symmetric_memory", "extras",
        "accum_dtype",
    ]  # fmt: skip


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> mscclpp.CommGroup:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    return mscclpp.CommGroup()


@pytest.mark.parametrize(
    ("changed", "kind", "says"),
    [
        ({"comm": None}, TypeError, "comm must be a Communicator.*not NoneType"),
        ({"input_buffer": 0}, ValueError, "input_buffer is null"),
        ({"output_buffer": 0}, ValueError, "output_buffer is null"),
        ({"input_buffer": "x"}, TypeError, "input_buffer must be an int, not str"),
        ({"input_size": -4}, ValueError, "input_size must not be negative"),
        ({"input_size": 8}, ValueError, "input_size is 8 and output_size 16 bytes, but they must"),
        ({"input_size": 1 << 70}, ValueError, "input_size is far too large"),
        ({"input_size": 2, "output_size": 2}, ValueError, "an element of float32 has 4"),
        ({"dtype": 99}, ValueError, "dtype must be one of mscclpp.DataType, not 99"),
        ({"op": 77}, ValueError, "op must be one of mscclpp.ReduceOp, not 77"),
        ({"stream": 5}, ValueError, "there is no stream 5: on the CPU, stream is 0"),
        ({"input_buffer": -16}, ValueError, "input_buffer is -16, which is no address"),
        ({"nblocks": -1}, ValueError, "nblocks is -1, but must be from 0 to"),
        ({"nthreads_per_block": 2**40}, ValueError, "nthreads_per_block is 1099511627776, but"),
        ({"nblocks": "x"}, TypeError, "nblocks must be an int, not str"),
        ({"extras": [1]}, TypeError, "extras must be a dict of str to int, not list"),
        ({"extras": {1: 2}}, TypeError, "extras must be a dict of str to int, but has the key 1"),
        ({"extras": {"a": "b"}}, TypeError, r"extras\['a'\] must be an int, not str"),
        ({"extras": {"a": -1}}, ValueError, r"extras\['a'\] is -1, but must be from 0"),
        ({"accum_dtype": 99}, ValueError, "accum_dtype is 99, which is no mscclpp.DataType"),
    ],
)
def test_arguments_that_make_no_sense_are_named(
    alone: mscclpp.CommGroup, changed: dict[str, object], kind: type[Exception], says: str
) -> None:
    mine = torch.ones(4)
    arguments = {
        "comm": alone.communicator,
        "input_buffer": mine.data_ptr(),
        "output_buffer": mine.data_ptr(),
        "input_size": 16,
        "output_size": 16,
        "dtype": DataType.float32,
        "op": ReduceOp.SUM,
    }
    with pytest.raises(kind, match=says):
        named("default_allreduce_packet").execute(**{**arguments, **changed})  # type: ignore[arg-type]
    assert named("default_allreduce_packet").execute(**arguments) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "sizes", "says"),
    [
        ("default_allgather_fullmesh", (8, 12), "the output of 2 ranks is so many inputs"),
        ("default_reduce_scatter_fullmesh", (12, 8), "the input of 2 ranks is so many outputs"),
        ("default_alltoall_fullmesh", (4, 4), "an element of float32 has 4"),
        ("default_alltoall_fullmesh", (5, 5), "one block for each of 2 ranks"),
    ],
)
def test_sizes_that_do_not_belong_together_are_named(
    ranks: MakeRanks, name: str, sizes: tuple[int, int], says: str
) -> None:
    ranks(2).run(refuses_sizes, name, sizes, says)


def refuses_sizes(rank: Rank, name: str, sizes: tuple[int, int], says: str) -> None:
    with group_of(rank) as group:
        there = torch.zeros(16)
        with pytest.raises(ValueError, match=says):
            named(name).execute(
                group.communicator, there.data_ptr(), there.data_ptr(), *sizes, DataType.float32
            )


def test_what_there_is_no_sum_of_is_a_code_and_a_warning(alone: mscclpp.CommGroup) -> None:
    algorithm = named("default_allreduce_packet")
    mine = torch.ones(4)
    call = partial(execute, algorithm, alone, mine, mine)
    with pytest.warns(
        RuntimeWarning, match="'default_allreduce_packet' was not executed: .*bitwise"
    ):
        assert call(ReduceOp.BAND) == mscclpp.CommResult.COMM_INVALID_ARGUMENT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(ReduceOp.BAND) == 4  # told once
    with pytest.warns(RuntimeWarning, match="sums of float32 are not made in float16.*no other"):
        assert call(accum_dtype=DataType.float16) == 4
    assert mine.tolist() == [1.0] * 4
    small = torch.ones(4, dtype=torch.bfloat16)
    call = partial(execute, algorithm, alone, small, small)
    with pytest.warns(RuntimeWarning, match="bfloat16 are not made in float64: .* or a smaller"):
        assert call(accum_dtype=DataType.float64) == 4
    for served in (DataType.float32, DataType.float16, DataType.float8_e4m3):
        assert call(accum_dtype=served) == 0
    gathers = partial(execute, named("default_allgather_fullmesh"), alone, mine, mine)
    assert gathers(accum_dtype=DataType.float64) == 0  # nothing is summed


def rss_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * (os.sysconf("SC_PAGESIZE") >> 10)


def again_and_again(rank: Rank, times: int) -> int:
    with group_of(rank) as group:
        algorithm, mine = named("default_allreduce_packet"), torch.zeros(64)
        for _ in range(2000):
            execute(algorithm, group, mine, mine)
        before, descriptors = rss_kib(), len(os.listdir("/proc/self/fd"))
        for _ in range(times):
            execute(algorithm, group, mine, mine)
        assert len(os.listdir("/proc/self/fd")) == descriptors
        return rss_kib() - before


@pytest.mark.parametrize("times", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_memory_stays_flat(ranks: MakeRanks, times: int) -> None:
    for grown in ranks(2).run(again_and_again, times):
        assert grown < 2048


def test_a_communicator_is_not_kept_by_what_was_executed(alone: mscclpp.CommGroup) -> None:
    algorithm, mine = named("default_allreduce_packet"), torch.ones(4)
    group = mscclpp.CommGroup()
    execute(algorithm, group, mine, mine)
    gone = weakref.ref(group.communicator)
    del group
    assert gone() is None
    assert not algorithm._operations


def different(rank: Rank) -> None:
    group = group_of(rank)
    mine = torch.ones(8 if rank.rank == 0 else 16)
    with pytest.raises(mscclpp.MismatchError):
        execute(named("default_allreduce_packet"), group, mine, mine)


def test_ranks_that_differ_are_told(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(different)


def request(**more: object) -> mscclpp.CollectiveRequest:
    given = {
        "world_size": 2, "n_ranks_per_node": 2, "rank": 0, "input_buffer": 1, "output_buffer": 1,
        "message_size": 4096, "stream": 0, "collective": "allreduce", "dtype": DataType.float32,
    }  # fmt: skip
    return mscclpp.CollectiveRequest(**{**given, **more})  # type: ignore[arg-type]


def test_selectors_choose_and_fall_back() -> None:
    builder = mscclpp.ext.AlgorithmCollectionBuilder()
    for algorithm in defaults():
        builder.add_algorithm_builder(algorithm)
    asked: list[mscclpp.CollectiveRequest] = []

    def small(
        algorithms: dict[str, dict[str, mscclpp.Algorithm]], request: mscclpp.CollectiveRequest
    ) -> mscclpp.Algorithm | None:
        asked.append(request)
        if request.message_size > 8192:
            return None
        return algorithms[request.collective]["default_allreduce_packet"]

    builder.set_algorithm_selector(small)
    builder.set_fallback_algorithm_selector(
        lambda algorithms, request: next(iter(algorithms[request.collective].values()))
    )
    collection = builder.build()
    chosen = collection.select_algorithm(request())
    assert chosen is not None
    assert chosen.name == "default_allreduce_packet"
    assert asked[0].buffer_mode() is mscclpp.CollectiveBufferMode.IN_PLACE
    chosen = collection.select_algorithm(request(message_size=1 << 20))
    assert chosen is not None
    assert chosen.name == "default_allreduce_allpair_packet"


def test_what_a_selector_returns_is_checked() -> None:
    one = mscclpp.AlgorithmCollectionBuilder()
    one.add_algorithm_builder(named("default_allreduce_packet"))
    one.set_algorithm_selector(lambda *_: "default_allreduce_packet")  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="must return an Algorithm or None, not str"):
        one.build().select_algorithm(request())
    one.set_algorithm_selector(lambda *_: named("default_allgather_fullmesh"))
    with pytest.raises(ValueError, match="asked for allreduce, and returned <allgather"):
        one.build().select_algorithm(request())


def test_builders_are_each_their_own() -> None:
    one, other = mscclpp.AlgorithmCollectionBuilder(), mscclpp.AlgorithmCollectionBuilder()
    one.addAlgorithmBuilder(mscclpp.AlgorithmBuilder(lambda: named("default_allreduce_packet")))
    assert [a.name for a in one.build()] == ["default_allreduce_packet"]
    assert len(other.build()) == 0
    assert one.build().select_algorithm(request()) is None
    one.reset()
    assert len(one.build()) == 0
    with pytest.raises(TypeError, match="neither an Algorithm nor an AlgorithmBuilder"):
        one.add_algorithm_builder("packet")  # type: ignore[arg-type]
    one.add_algorithm_builder(mscclpp.AlgorithmBuilder(lambda: 5))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="a builder must build an Algorithm, not 5"):
        one.build()


def test_a_collection_is_a_sequence_by_collective() -> None:
    collection = defaults()
    assert len(collection) == len(OF_MSCCLPP) + len(BEYOND)
    assert collection[0].name == OF_MSCCLPP[0]
    assert [a.name for a in collection.get_by_collective("allgather")] == OF_MSCCLPP[10:]
    assert collection.get_by_collective("nothing") == []
    collection.register_algorithm("allreduce", "mine", collection[0])
    assert collection.to_dict()["allreduce"]["mine"] is collection[0]
