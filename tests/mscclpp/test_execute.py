"""Programs of the DSL, executed on the CPU."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks

import mscclpp
import torchcomms
from mscclpp import DataType, ReduceOp
from mscclpp.language import (
    AllReduce,
    Buffer,
    CollectiveProgram,
    MemoryChannel,
    ReduceOperationType,
    Semaphore,
    SendRecv,
    TestCollective,
)
from mscclpp.language import Rank as RankOf
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

MakeRanks = Callable[[int], Ranks]
PROGRAMS = Path(__file__).parent / "programs"
COUNTS = (0, 1, 7, 1000, 70_001)
DEFAULTS = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms()


def compiled(name: str, **settings: object) -> mscclpp.DslAlgorithm:
    write = runpy.run_path(str(PROGRAMS / f"{name}.py"))["program"]
    return mscclpp.compile(write, **settings)


def group_of(rank: Rank) -> mscclpp.CommGroup:
    return mscclpp.CommGroup(store=rank.store("execute"), rank=rank.rank, size=rank.size)


class Runner:
    """As the guide has it."""

    def __init__(self, group: mscclpp.CommGroup) -> None:
        self.comm = group.communicator
        self.executor = mscclpp.Executor(self.comm)

    def __call__(
        self,
        algorithm: mscclpp.Algorithm,
        mine: torch.Tensor,
        result: torch.Tensor,
        op: ReduceOp = ReduceOp.NOP,
    ) -> None:
        code = algorithm.execute(
            comm=self.comm,
            executor=self.executor,
            input_buffer=mine.data_ptr(),
            output_buffer=result.data_ptr(),
            input_size=mine.nbytes,
            output_size=result.nbytes,
            dtype=torch_dtype_to_mscclpp_dtype(mine.dtype),
            op=op,
            stream=0,
        )
        assert code == 0


def all_reduces(rank: Rank, name: str, settings: dict[str, object]) -> None:
    with group_of(rank) as group:
        run, algorithm = Runner(group), compiled(name, **settings)
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
            for count in COUNTS:
                everyone = [(torch.arange(count) % 7 + r).to(kind) for r in range(rank.size)]
                stack = torch.stack([one.double() for one in everyone])
                for op, wanted in ((ReduceOp.NOP, stack.sum(0)), (ReduceOp.MAX, stack.amax(0))):
                    mine, result = everyone[rank.rank].clone(), torch.full((count,), 9).to(kind)
                    run(algorithm, mine, result, op)
                    assert torch.equal(result.double(), wanted), (kind, count)
                    assert torch.equal(mine, everyone[rank.rank])
                    for _ in range(3):  # in place, again and again
                        mine.copy_(everyone[rank.rank])
                        run(algorithm, mine, mine, op)
                        assert torch.equal(mine.double(), wanted), (kind, count)
        for kind in (torch.complex64, torch.complex128):
            mine = torch.complex(torch.arange(1001.0), torch.full((1001,), 1.0 + rank.rank))
            mine = mine.to(kind)
            run(algorithm, mine, mine)
            total = torch.full((1001,), rank.size * (rank.size + 1) / 2)
            wanted = torch.complex(rank.size * torch.arange(1001.0), total)
            assert torch.equal(mine, wanted.to(kind)), kind
        served = algorithm.explain(group.communicator, 4096, DataType.float32)
        assert served.startswith(f"plan:{algorithm.name}-")


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", ["all_reduce_two_shot", "all_reduce_switch"])
def test_all_reduces(ranks: MakeRanks, size: int, name: str) -> None:
    ranks(size).run(all_reduces, name, {"ranks": size, "instances": 2})


def test_packets(ranks: MakeRanks) -> None:
    ranks(2).run(all_reduces, "all_reduce_packets", {})


@pytest.mark.parametrize("size", [2, 4])
def test_packets_beside_data(ranks: MakeRanks, size: int) -> None:
    settings = {"ranks": size, "instances": 2}
    ranks(size).run(all_reduces, "all_reduce_packets_relayed", settings)


@pytest.mark.parametrize("size", [2, 4])
def test_own_contributions_first(ranks: MakeRanks, size: int) -> None:
    ranks(size).run(all_reduces, "all_reduce_exchange", {"ranks": size})


def test_blocks_that_take_turns_in_any_order(ranks: MakeRanks) -> None:
    ranks(3).run(all_reduces, "all_reduce_locked", {"ranks": 3})


def test_orders_of_which_there_are_too_many_to_be_proved(ranks: MakeRanks) -> None:
    settings: dict[str, object] = {"ranks": 4, "instances": 2, "verify": False}
    with pytest.raises(mscclpp.CannotVerify, match="in more than 2000 orders in all"):
        compiled("all_reduce_locked", **{**settings, "verify": True})
    ranks(4).run(all_reduces, "all_reduce_locked", settings)


def unproved(rank: Rank, file: Path) -> None:
    """Wrong programs do what they say, and harm nobody else."""
    with group_of(rank) as group:
        run = Runner(group)
        racing = compiled("all_reduce_locked", ranks=rank.size, lock=False, verify=False)
        incomplete = mscclpp.compile(keeps_the_own_part, verify=False)
        for count in (7, 1000, 70_001):
            for _ in range(3):
                mine = torch.full((count,), 1.0 + rank.rank)
                run(racing, mine, mine)
                whole = torch.ones(count)
                run(DEFAULTS[0], whole, whole, ReduceOp.SUM)
                assert torch.equal(whole, torch.full((count,), float(rank.size)))
                result = torch.full((count,), -1.0)
                run(incomplete, mine, result)
                assert torch.equal(result, mine)
        with pytest.raises(ValueError, match="is not right:\nwrong result"):
            mscclpp.register(incomplete)
        result = torch.full((9,), -1.0)
        run(mscclpp.ExecutionPlan(file, rank.rank, verify=False).algorithm, mine[:9], result)
        assert torch.equal(result, mine[:9])
        with pytest.raises(ValueError, match="is not right:\nwrong result"):
            run(mscclpp.ExecutionPlan(file, rank.rank).algorithm, mine[:9], result)
        uneven = mscclpp.compile(acquires_twice, verify=False)
        with pytest.raises(ValueError, match="is not right:\nunmatched"):
            run(uneven, torch.ones(8), torch.ones(8))


def keeps_the_own_part() -> CollectiveProgram:
    with CollectiveProgram("own", AllReduce(3, 1, False), 3) as program:
        for me in range(3):
            mine = RankOf(me)
            mine.copy(mine.get_output_buffer()[0:3], mine.get_input_buffer()[0:3], tb=0)
    return program


def acquires_twice() -> CollectiveProgram:
    with CollectiveProgram("uneven", AllReduce(3, 1, False), 3) as program:
        done = Semaphore(0, initial_value=2)
        done.release(tb=0)
        for _ in range(2):
            done.acquire(tb=1)
    return program


def test_what_is_wrong_is_executed_by_those_who_insist(ranks: MakeRanks, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(keeps_the_own_part().to_json())
    ranks(3).run(unproved, file)


def waits_for_ever(rank: Rank) -> None:
    with CollectiveProgram("stuck", AllReduce(2, 1, True), 2) as program:
        channels = [MemoryChannel(1 - me, me) for me in range(2)]
        for channel in channels:
            channel.wait(tb=0)
        for channel in channels:
            channel.signal(tb=0)
    algorithm = mscclpp.compile(program, verify=False)
    group = group_of(rank)
    group.communicator.timeout = 2.0
    mine = torch.ones(8)
    with pytest.raises(mscclpp.CommTimeoutError, match="makes no progress") as error:
        Runner(group)(algorithm, mine, mine)
    assert error.value.ranks in ((0,), (1,))  # they wait for each other


def test_what_waits_for_ever_runs_into_its_deadline(ranks: MakeRanks) -> None:
    ranks(2).run(waits_for_ever)


def others(rank: Rank) -> None:
    size = rank.size
    with group_of(rank) as group:
        run = Runner(group)
        exchange = compiled("all_to_all_group", ranks=size)
        names = ("port", "semaphores", "ring", "switch")
        gathers = [compiled(f"all_gather_{name}", ranks=size) for name in names]
        gathers.append(compiled("all_gather_ring", ranks=size, port=True))
        gathers.append(compiled("all_gather_port", ranks=size, at_once=True))
        scatter = compiled("reduce_scatter_pull", ranks=size)
        in_place = compiled("reduce_scatter_pull", ranks=size, in_place=True)
        ring = compiled("reduce_scatter_ring", ranks=size, blocks=2)
        for count in COUNTS:
            blocks = [torch.arange(size * count) + 1000 * r for r in range(size)]
            part = slice(rank.rank * count, (rank.rank + 1) * count)
            mine, got = blocks[rank.rank].clone(), torch.zeros(size * count, dtype=torch.int64)
            run(exchange, mine, got)
            assert torch.equal(got, torch.cat([block[part] for block in blocks]))
            for gather in gathers:
                got.zero_()
                run(gather, mine[part].clone(), got)
                own = [blocks[r][r * count : (r + 1) * count] for r in range(size)]
                assert torch.equal(got, torch.cat(own))
            total = torch.zeros(count, dtype=torch.int64)
            run(scatter, mine, total)
            assert torch.equal(total, torch.stack(blocks).sum(0)[part])
            for program in (in_place, ring):
                run(program, mine, total.zero_())
                assert torch.equal(total, torch.stack(blocks).sum(0)[part])
                assert torch.equal(mine, blocks[rank.rank])
            for program in (in_place, ring, scatter):
                whole = mine.clone()
                run(program, whole, whole[part])
                mine[part] = total
                assert torch.equal(whole, mine)
                mine.copy_(blocks[rank.rank])


@pytest.mark.parametrize("size", [2, 4])
def test_other_collectives(ranks: MakeRanks, size: int) -> None:
    ranks(size).run(others)


def without_promise(rank: Rank) -> None:
    """SendRecv in place and not, and buffers of two and three chunks."""
    with group_of(rank) as group:
        run = Runner(group)
        collectives = [SendRecv(2, 2, False), SendRecv(2, 2, True), TestCollective(2, 2, 3)]
        for collective in collectives:
            for instances in (1, 2):
                algorithm = compiled("send_reversed", collective=collective, instances=instances)
                for count in (0, instances, 33 * instances, 50_002):
                    mine = torch.arange(2 * count, dtype=torch.float32) + 1000 * rank.rank
                    turned = torch.cat([mine[count:], mine[:count]]) - 1000
                    chunks = collective.output_chunks
                    result = mine if collective.inplace else torch.full((chunks * count,), -1.0)
                    wanted = result.clone()
                    if rank.rank == 1:
                        wanted[: 2 * count] = turned
                    for _ in range(3):
                        kept = mine.clone()
                        run(algorithm, mine, result)
                        assert result.equal(wanted)
                        assert collective.inplace or mine.equal(kept)
        with pytest.raises(ValueError, match="has 4 and 6 chunks of them"):
            run(algorithm, torch.ones(4), torch.ones(4))
        whole = torch.ones(10)
        with pytest.raises(ValueError, match="overlaps the output"):
            run(algorithm, whole[:4], whole[3:9])


def test_programs_that_promise_no_result_are_executed(ranks: MakeRanks) -> None:
    ranks(2).run(without_promise)


def named_without_promise(rank: Rank) -> None:
    comm = rank.comm("ctran")
    group = mscclpp.CommGroup.from_comm(comm)
    run, algorithm = Runner(group), compiled("send_reversed")
    run(algorithm, torch.ones(4), torch.ones(4))
    hints = {"ctran::algorithm": algorithm.explain(group.communicator, 16, DataType.float32)}
    assert hints["ctran::algorithm"].startswith("plan:send_reversed-")
    mine = torch.ones(4)
    with pytest.raises(Exception, match="promises no result: it serves no calls"):
        comm.all_reduce(mine, torchcomms.ReduceOp.SUM, async_op=False, hints=hints)
    comm.all_reduce(mine, torchcomms.ReduceOp.SUM, async_op=False)
    assert mine.tolist() == [2.0] * 4
    run(algorithm, torch.ones(4), mine)


def test_hints_take_no_program_that_promises_no_result(ranks: MakeRanks) -> None:
    ranks(2).run(named_without_promise)


def many(rank: Rank, instances: int) -> None:
    with group_of(rank) as group:
        settings = {"ranks": rank.size, "instances": instances}
        run, algorithm = Runner(group), compiled("all_reduce_two_shot", **settings)
        everyone = [torch.arange(1001.0) * (r + 1) for r in range(rank.size)]
        for _ in range(3):
            mine = everyone[rank.rank].clone()
            run(algorithm, mine, mine)
            assert torch.equal(mine, torch.stack(everyone).sum(0))
        served = algorithm.explain(group.communicator, 4096, DataType.float32)
        assert served.startswith("plan:two_shot-")


def test_more_than_eight_ranks(ranks: MakeRanks) -> None:
    """More than one operation of MSCCL++'s executor has channels for."""
    ranks(11).run(many, 1)


def test_many_thread_blocks(ranks: MakeRanks) -> None:
    """More than could each signal each other."""
    ranks(2).run(many, 64)


def unaligned(rank: Rank) -> None:
    """Input and output begin anywhere, and not at the same place of a line."""
    with group_of(rank) as group:
        run = Runner(group)
        algorithms = [compiled("all_reduce_two_shot", ranks=2), compiled("all_reduce_packets")]
        for kind in (torch.uint8, torch.float16, torch.float64):
            for algorithm in algorithms:
                for start, end in ((1, 3), (5, 0), (7, 7)):
                    count = 1000 + start
                    mine = ((torch.arange(2000) + rank.rank) % 9).to(kind)[start : start + count]
                    result = torch.full((2000,), 7).to(kind)[end : end + count]
                    wanted = sum(((torch.arange(2000) + r) % 9)[start:][:count] for r in range(2))
                    run(algorithm, mine, result)
                    assert torch.equal(result, wanted.to(kind)), (algorithm, kind, start, end)
                    run(algorithm, mine, mine)
                    assert torch.equal(mine, wanted.to(kind)), (algorithm, kind, start, end)


def test_unaligned_views(ranks: MakeRanks) -> None:
    ranks(2).run(unaligned)


def large(rank: Rank) -> None:
    """Places of more than 32 bits: a byte in 4096 is looked at, and the ends."""
    count = (1 << 32) + 70_001
    with group_of(rank) as group:
        run = Runner(group)
        for name in ("all_reduce_two_shot", "all_reduce_packets"):
            mine = torch.full((count,), rank.rank + 1, dtype=torch.uint8)
            looked = mine[rank.rank :: 4096]
            looked.copy_(torch.arange(len(looked)) % 101)
            run(compiled(name, **({"ranks": 2} if "two" in name else {})), mine, mine)
            for other in range(2):
                looked = mine[other::4096]
                wanted = (torch.arange(len(looked)) % 101 + 2 - other).to(torch.uint8)
                assert torch.equal(looked, wanted), name
            assert mine[2::4096].eq(3).all()
            assert mine[-70_000:].sum() >= 3 * 60_000


@pytest.mark.full
def test_messages_of_more_than_4_gib(ranks: MakeRanks) -> None:
    ranks(2).run(large)


def partial(name: str, ranks: int) -> CollectiveProgram:
    """Two by two, then with the other two: sums of sums."""
    assert ranks == 4
    with CollectiveProgram(
        name, AllReduce(4, 1, True), 4, protocol="LL", use_double_scratch_buffer=True
    ) as program:
        scratch = [Buffer(rank, 8) for rank in range(4)]
        for me in range(4):
            data = RankOf(me).get_input_buffer()[0:4]
            for step in range(2):
                peer, slot = me ^ (1 << step), slice(4 * step, 4 * step + 4)
                MemoryChannel(peer, me).put_packets(scratch[peer][slot], data, tb=0)
                RankOf(me).reduce(data, [scratch[me][slot]], tb=0, packet=True)
    return program


def in_parts(rank: Rank) -> None:
    with group_of(rank) as group:
        run, algorithm = Runner(group), mscclpp.compile(partial("partial", rank.size))
        assert algorithm.report is not None
        assert not algorithm.report.flat
        kinds = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
        for kind in kinds:
            torch.manual_seed(5)
            everyone = [torch.randn(1001).to(kind) for _ in range(rank.size)]
            stack = torch.stack([one.float() for one in everyone])
            for op, wanted in ((ReduceOp.MIN, stack.amin(0)), (ReduceOp.MAX, stack.amax(0))):
                mine = everyone[rank.rank].clone()
                run(algorithm, mine, mine, op)
                assert torch.equal(mine.float(), wanted), (kind, op)
            mine = everyone[rank.rank].clone()
            run(algorithm, mine, mine)  # the engine's own algorithm rounds once
            total = everyone[0].float()
            for one in everyone[1:]:
                total = total + one.float()
            assert torch.equal(mine.float(), total.to(kind).float()), kind


def test_minima_of_small_floats_in_parts(ranks: MakeRanks) -> None:
    ranks(4).run(in_parts)


def reduced(name: str, kind: ReduceOperationType) -> CollectiveProgram:
    """Each of two ranks gets its half from the other's input and puts the result there."""
    with CollectiveProgram(name, AllReduce(2, 1, True), 2) as program:
        channels = {(peer, me): MemoryChannel(peer, me) for peer, me in ((0, 1), (1, 0))}

        def exchange() -> None:
            for channel in channels.values():
                channel.signal(tb=0)
            for channel in channels.values():
                channel.wait(tb=0)

        exchange()
        for peer, me in channels:
            mine = RankOf(me).get_input_buffer()[me : me + 1]
            there = RankOf(peer).get_input_buffer()[me : me + 1]
            channels[peer, me].reduce(mine, [there], tb=0, reduce_op=kind)
            channels[peer, me].put(there, mine, tb=0)
        exchange()
    return program


def smallest(rank: Rank) -> None:
    with group_of(rank) as group:
        run, algorithm = Runner(group), mscclpp.compile(reduced("least", ReduceOperationType.min))
        mine = torch.tensor([3.0, 1.0]) if rank.rank == 0 else torch.tensor([2.0, 5.0])
        run(algorithm, mine, mine)
        assert mine.tolist() == [2.0, 1.0]
        run(algorithm, mine, mine, ReduceOp.MIN)
        with pytest.raises(ValueError, match="is written as MIN, so it cannot be executed as SUM"):
            run(algorithm, mine, mine, ReduceOp.SUM)


def test_the_reduction_that_the_program_names_is_executed(ranks: MakeRanks) -> None:
    ranks(2).run(smallest)


def of_one_name(rank: Rank) -> None:
    with group_of(rank) as group:
        run = Runner(group)
        total = mscclpp.compile(reduced("same", ReduceOperationType.sum))
        least = mscclpp.compile(reduced("same", ReduceOperationType.min))
        other = compiled("all_reduce_two_shot", ranks=2)
        other.name = "same"
        for _ in range(2):
            for algorithm, wanted in ((total, 3.0), (least, 1.0), (other, 3.0)):
                mine = torch.full((10,), 1.0 + rank.rank)
                run(algorithm, mine, mine)
                assert mine.tolist() == [wanted] * 10


def test_two_programs_of_one_name_are_two(ranks: MakeRanks) -> None:
    ranks(2).run(of_one_name)


def plans_of(algorithm: mscclpp.Algorithm, group: mscclpp.CommGroup) -> int:
    """How many plans of this communicator the engine knows."""
    operation = algorithm._operations[id(group.communicator)]
    alternatives = json.loads(operation.explain(4096, DataType.float32))["alternatives"]
    return sum(one["algorithm"].startswith("plan:") for one in alternatives)


def come_and_go(rank: Rank) -> None:
    with group_of(rank) as group:
        run, packet = Runner(group), next(iter(DEFAULTS))
        mine = torch.ones(10)
        run(packet, mine, mine)
        before = plans_of(packet, group)
        algorithms = [compiled("all_reduce_two_shot", ranks=2) for _ in range(5)]
        for algorithm in algorithms:
            run(algorithm, mine, mine)
        assert plans_of(packet, group) == before + 5
        algorithms[0].reset()
        assert plans_of(packet, group) == before + 4
        run(algorithms[0], mine, mine)
        assert plans_of(packet, group) == before + 5
        del algorithm, algorithms
        assert plans_of(packet, group) == before
        assert mine.eq(2**7).all()


def test_programs_that_are_dropped_leave_nothing(ranks: MakeRanks) -> None:
    ranks(2).run(come_and_go)


def from_a_file(rank: Rank, path: str) -> None:
    with group_of(rank) as group:
        plan = mscclpp.ExecutionPlan(path, rank.rank)
        assert (plan.name(), plan.collective()) == ("two_shot", "allreduce")
        assert (plan.min_message_size(), plan.max_message_size()) == (0, 2**64 - 1)
        executor = mscclpp.Executor(group.communicator)
        mine = torch.arange(1001.0) + rank.rank
        result = torch.zeros_like(mine)
        size = mine.nbytes
        assert not plan.is_in_place() or mine is not result
        executor.execute(
            rank.rank, mine.data_ptr(), result.data_ptr(), size, size, DataType.float32, plan
        )
        assert torch.equal(result, 2 * torch.arange(1001.0) + 1)
        with pytest.raises(ValueError, match=f"this is rank {rank.rank}, not 7"):
            executor.execute(7, mine.data_ptr(), 0, size, size, DataType.float32, plan)


def test_plans_from_files_are_executed(ranks: MakeRanks, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(compiled("all_reduce_two_shot", ranks=2).to_json())
    ranks(2).run(from_a_file, str(path))
    with pytest.raises(ValueError, match="there is no rank 2: the plan has 2"):
        mscclpp.ExecutionPlan(str(path), 2)


@pytest.mark.parametrize("verify", [True, False])
def test_plans_of_unknown_collectives_are_refused(tmp_path: Path, verify: bool) -> None:
    with CollectiveProgram("alone", AllReduce(1, 1, True), 1) as program:
        pass
    path = tmp_path / "plan.json"
    path.write_text(program.to_json().replace('"allreduce"', '"dance"'))
    plan = mscclpp.ExecutionPlan(path, 0, verify=verify)
    mine = torch.ones(4)
    with mscclpp.CommGroup() as group, pytest.raises(ValueError, match="<dance 'alone'> cannot"):
        mscclpp.Executor(group.communicator).execute(
            0, mine.data_ptr(), mine.data_ptr(), 16, 16, DataType.float32, plan
        )


def wrongly(rank: Rank) -> None:
    with group_of(rank) as group:
        mine = torch.ones(4)
        algorithm = compiled("all_reduce_two_shot", ranks=2)
        arguments = (mine.data_ptr(), mine.data_ptr(), 16, 16, DataType.float32)
        with pytest.raises(ValueError, match=r"pass executor=mscclpp.Executor\(comm\)"):
            algorithm.execute(group.communicator, *arguments)
        with mscclpp.CommGroup(store=rank.store("x"), rank=rank.rank, size=rank.size) as other:
            executor = mscclpp.Executor(other.communicator)
            with pytest.raises(ValueError, match="of the same communicator"):
                algorithm.execute(group.communicator, *arguments, executor=executor)
        own = mscclpp.Executor(group.communicator)
        with pytest.raises(TypeError, match="symmetric_memory must be a bool, not str"):
            algorithm.execute(
                group.communicator,
                *arguments,
                executor=own,
                symmetric_memory="yes",  # type: ignore[arg-type]
            )
        larger = compiled("all_reduce_two_shot", ranks=3)
        with pytest.raises(ValueError, match="'two_shot' is for 3 ranks, and the communicator has"):
            larger.execute(group.communicator, *arguments, executor=executor)
        with pytest.raises(TypeError, match="an Executor takes a Communicator"):
            mscclpp.Executor(group)  # type: ignore[arg-type]


def test_what_makes_no_sense_is_named(ranks: MakeRanks) -> None:
    ranks(2).run(wrongly)
