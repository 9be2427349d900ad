"""What torch.distributed can ask of a communicator of ours, on contiguous and other tensors."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Died, Rank, Ranks, Returned
from harness.groups import OVER_GLOO, process_group
from harness.worker import TIMEOUT
from torch import Tensor

import torchcomms

MakeRanks = Callable[[int], Ranks]
SIZE = 3


@pytest.fixture(params=["ctran", OVER_GLOO])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == OVER_GLOO and not torchcomms.is_backend_built("gloo"):
        pytest.skip("built with USE_GLOO=0")
    return str(request.param)


def of(rank: int, *shape: int) -> Tensor:
    """What `rank` contributes: every element tells where it is from."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) + 100 * (rank + 1)).view(shape)


def total(*shape: int) -> Tensor:
    return sum((of(r, *shape) for r in range(SIZE)), torch.zeros(shape))


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def strided(tensor: Tensor) -> Tensor:
    """The same values in memory that is not contiguous."""
    wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), -1.0)
    view = wide[..., ::2]
    view.copy_(tensor)
    return view


def reductions(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        for make in (lambda t: t.clone(), strided):
            value = make(of(rank.rank, 4, 5))
            dist.all_reduce(value)
            same(value, total(4, 5))
            value = make(of(rank.rank, 4, 5))
            dist.reduce(value, dst=1)
            same(value, total(4, 5) if rank.rank == 1 else of(rank.rank, 4, 5))
            output = make(torch.zeros(2, 3))
            dist.reduce_scatter_tensor(output, make(of(rank.rank, 2 * SIZE, 3)))
            same(output, total(2 * SIZE, 3).chunk(SIZE)[rank.rank])
            dist.reduce_scatter(output, [make(of(rank.rank + r, 2, 3)) for r in range(SIZE)])
            same(output, total(2, 3) + 100 * SIZE * rank.rank)
        for op, expected in [
            (dist.ReduceOp.MAX, of(SIZE - 1, 4)),
            (dist.ReduceOp.MIN, of(0, 4)),
            (dist.ReduceOp.AVG, total(4) / SIZE),
            (dist.ReduceOp.PRODUCT, of(0, 4) * of(1, 4) * of(2, 4)),
            (dist._make_nccl_premul_sum(0.5), total(4) * 0.5),
            (dist._make_nccl_premul_sum(torch.tensor([2.0])), total(4) * 2),
        ]:
            value = of(rank.rank, 4)
            dist.all_reduce(value, op)
            torch.testing.assert_close(value, expected)
        for op, number in [("BAND", 0), ("BOR", 7), ("BXOR", 7)]:
            bits = torch.tensor([1 << rank.rank])
            dist.all_reduce(bits, getattr(dist.ReduceOp, op))
            assert bits.item() == number
        parts = [of(rank.rank, 1 + r) for r in range(SIZE)]
        output = torch.zeros(1 + rank.rank)
        dist.reduce_scatter(output, parts)
        same(output, total(1 + rank.rank))


def movements(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        for make in (lambda t: t.clone(), strided):
            value = make(of(rank.rank, 3, 4))
            dist.broadcast(value, src=2)
            same(value, of(2, 3, 4))
            outputs = [make(torch.zeros(3, 4)) for _ in range(SIZE)]
            dist.all_gather(outputs, make(of(rank.rank, 3, 4)))
            for r, output in enumerate(outputs):
                same(output, of(r, 3, 4))
            output = make(torch.zeros(SIZE * 2, 4))
            dist.all_gather_into_tensor(output, make(of(rank.rank, 2, 4)))
            same(output, torch.cat([of(r, 2, 4) for r in range(SIZE)]))
            outputs = [make(torch.zeros(3, 4)) for _ in range(SIZE)]
            dist.gather(of(rank.rank, 3, 4), outputs if rank.rank == 1 else None, dst=1)
            for r, output in enumerate(outputs):
                same(output, of(r, 3, 4) if rank.rank == 1 else torch.zeros(3, 4))
            output = make(torch.zeros(3, 4))
            dist.scatter(output, [of(r, 3, 4) for r in range(SIZE)] if rank.rank == 0 else None)
            same(output, of(rank.rank, 3, 4))
            outputs = [make(torch.zeros(1 + rank.rank, 2)) for r in range(SIZE)]
            dist.all_to_all(outputs, [of(10 * rank.rank + r, 1 + r, 2) for r in range(SIZE)])
            for r, output in enumerate(outputs):
                same(output, of(10 * r + rank.rank, 1 + rank.rank, 2))
            output = make(torch.zeros(SIZE, 2))
            dist.all_to_all_single(output, make(of(rank.rank, SIZE, 2)))
            same(output, torch.stack([of(r, SIZE, 2)[rank.rank] for r in range(SIZE)]))
            rows = [r + 1 for r in range(SIZE)]
            output = make(torch.zeros(SIZE * (rank.rank + 1), 2))
            dist.all_to_all_single(
                output, make(of(rank.rank, sum(rows), 2)), [rank.rank + 1] * SIZE, rows
            )
            parts = [of(r, sum(rows), 2).split(rows)[rank.rank] for r in range(SIZE)]
            same(output, torch.cat(parts))
        uneven = [torch.zeros(1 + r) for r in range(SIZE)]
        dist.all_gather(uneven, of(rank.rank, 1 + rank.rank))
        for r, output in enumerate(uneven):
            same(output, of(r, 1 + r))
        if hasattr(dist, "gather_single"):
            output = torch.zeros(SIZE * 2)
            dist.gather_single(of(rank.rank, 2), output if rank.rank == 0 else None, dst=0)
            if rank.rank == 0:
                same(output, torch.cat([of(r, 2) for r in range(SIZE)]))
        objects = [None] * SIZE
        dist.all_gather_object(objects, {"rank": rank.rank})
        assert objects == [{"rank": r} for r in range(SIZE)]
        dist.barrier()


def aliased(rank: Rank, backend: str) -> None:
    """Where outputs share memory the last one's value stays, as with PyTorch's Gloo."""
    with process_group(rank, backend):
        last = SIZE - 1
        for asynchronous in (False, True):
            buffer = torch.zeros(4)
            work = dist.all_gather([buffer] * SIZE, of(rank.rank, 4), async_op=asynchronous)
            if work is not None:
                work.wait()
            same(buffer, of(last, 4))
        buffer = of(rank.rank, 4)
        dist.all_gather([buffer] * SIZE, buffer)
        same(buffer, of(last, 4))
        buffer, expected = torch.zeros(4 + last), torch.zeros(4 + last)
        dist.all_gather([buffer[r : r + 4] for r in range(SIZE)], of(rank.rank, 4))
        for r in range(SIZE):
            expected[r : r + 4] = of(r, 4)
        same(buffer, expected)
        buffer = torch.zeros(SIZE)
        dist.all_gather([buffer[: r + 1] for r in range(SIZE)], of(rank.rank, 1 + rank.rank))
        same(buffer, of(last, SIZE))
        buffer = torch.zeros(4)
        dist.gather(of(rank.rank, 4), [buffer] * SIZE if rank.rank == 1 else None, dst=1)
        same(buffer, of(last, 4) if rank.rank == 1 else torch.zeros(4))
        dist.all_to_all([buffer] * SIZE, [of(10 * rank.rank + r, 4) for r in range(SIZE)])
        same(buffer, of(10 * last + rank.rank, 4))


def goes_on_alone(rank: Rank, backend: str) -> None:
    """With tensors that are not contiguous: the call returns before others call too."""
    with process_group(rank, backend):
        last = SIZE - 1

        def after_call(begin: Callable[[], dist.Work | None]) -> dist.Work:
            # The last rank begins when it has a message that the others send after their calls.
            token = torch.zeros(1)
            if rank.rank == last:
                for r in range(last):
                    dist.recv(token, src=r)
            work = begin()
            assert work is not None
            if rank.rank != last:
                assert not work.is_completed()
                dist.send(token, dst=last)
            return work

        value = strided(of(rank.rank, 4, 5))
        after_call(lambda: dist.all_reduce(value, async_op=True)).wait()
        same(value, total(4, 5))
        value = strided(of(rank.rank, 4, 5))
        work = after_call(lambda: dist.all_reduce(value, async_op=True))
        same(work.get_future().wait()[0], total(4, 5))
        assert work.is_completed()
        same(value, total(4, 5))
        # What follows on the same memory sees the result before.
        value = strided(of(rank.rank, 4, 5))
        copy = torch.zeros(SIZE * 4, 5)
        after_call(lambda: dist.all_reduce(value, async_op=True))
        dist.all_reduce(value, async_op=True)
        dist.all_gather_into_tensor(copy, value)
        same(copy, torch.cat([total(4, 5) * SIZE] * SIZE))
        # Outputs that share memory, and a work that nobody keeps.
        buffer = torch.zeros(4)
        outputs = [buffer] * SIZE
        after_call(lambda: dist.all_gather(outputs, of(rank.rank, 4), async_op=True)).wait()
        same(buffer, of(last, 4))
        value = strided(of(rank.rank, 4, 5))
        done = threading.Event()
        work = after_call(lambda: dist.all_reduce(value, async_op=True))
        work.get_future().then(lambda _: done.set())
        del work
        assert done.wait(TIMEOUT.total_seconds())
        same(value, total(4, 5))
        # Two elements in one place cannot both get their result.
        with pytest.raises(RuntimeError, match="single memory location"):
            dist.all_reduce(torch.zeros(1).expand(4), async_op=True)
        dist.barrier()


def several_at_once(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        world = dist.group.WORLD
        assert world is not None
        shapes = [(3,), (2, 5), (4000,)]
        values = [of(rank.rank, *shape) for shape in shapes]
        work = world.allreduce_coalesced(values)
        assert work.wait()
        for value, shape in zip(values, shapes, strict=True):
            same(value, total(*shape))
        values = [of(rank.rank, *shape) for shape in shapes]
        world.broadcast(values, dist.BroadcastOptions()).wait()
        for value, shape in zip(values, shapes, strict=True):
            same(value, of(0, *shape))
        lists = [[torch.zeros(shape) for shape in shapes] for _ in range(SIZE)]
        inputs = [of(rank.rank, *shape) for shape in shapes]
        world.allgather_coalesced(lists, inputs).wait()
        for r in range(SIZE):
            for value, shape in zip(lists[r], shapes, strict=True):
                same(value, of(r, *shape))
        with dist._coalescing_manager(async_ops=True) as coalesced:
            gathered = [torch.zeros(SIZE * 2), torch.zeros(SIZE * 5)]
            for output in gathered:
                dist.all_gather_into_tensor(output, of(rank.rank, output.numel() // SIZE))
        coalesced.wait()
        for output in gathered:
            count = output.numel() // SIZE
            same(output, torch.cat([of(r, count) for r in range(SIZE)]))
        with dist._coalescing_manager():
            scattered = [torch.zeros(2), torch.zeros(5)]
            for output in scattered:
                dist.reduce_scatter_tensor(output, of(rank.rank, output.numel() * SIZE))
        for output in scattered:
            same(output, total(output.numel() * SIZE).chunk(SIZE)[rank.rank])
        # What has no coalesced form: everything between start and end, with one work.
        cpu = torch.device("cpu")
        value, message = of(rank.rank, 7), torch.zeros(4)
        with dist._coalescing_manager(device=cpu, async_ops=True) as coalesced:
            dist.broadcast(value, src=1, async_op=True)
            dist.isend(of(rank.rank, 4), (rank.rank + 1) % SIZE)
            early = dist.irecv(message, (rank.rank - 1) % SIZE)
            assert early is not None
            assert not early.is_completed()
            with pytest.raises(torchcomms.CommError, match="not been issued yet"):
                early.wait()
        coalesced.wait()
        early.wait()
        same(value, of(1, 7))
        same(message, of((rank.rank - 1) % SIZE, 4))


def messages(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        after, before = (rank.rank + 1) % SIZE, (rank.rank - 1) % SIZE
        # A ring of messages larger than what is buffered anywhere.
        received = torch.zeros(1 << 20)
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.full((1 << 20,), float(rank.rank)), after),
                dist.P2POp(dist.irecv, received, before),
            ]
        ):
            work.wait()
        same(received, torch.full((1 << 20,), float(before)))
        # Tags choose, in whatever order.
        sends = [dist.isend(of(tag, 3), after, tag=tag) for tag in (5, 6, 7, 6)]
        received = torch.zeros(3)
        for tag in (7, 6, 5, 6):
            dist.recv(received, before, tag=tag)
            same(received, of(tag, 3))
        for send in sends:
            assert send is not None
            send.wait()
        same_ops = [dist.P2POp(dist.isend, of(10 + tag, 3), after, tag=tag) for tag in (1, 2)]
        outputs = {tag: torch.zeros(3) for tag in (2, 1)}
        same_ops += [dist.P2POp(dist.irecv, outputs[tag], before, tag=tag) for tag in (2, 1)]
        for work in dist.batch_isend_irecv(same_ops):
            work.wait()
        for tag, output in outputs.items():
            same(output, of(10 + tag, 3))
        objects = [{"from": rank.rank}]
        if rank.rank == 0:
            dist.send_object_list(objects, dst=1)
        elif rank.rank == 1:
            dist.recv_object_list(objects, src=0)
            assert objects == [{"from": 0}]


def works(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        value = of(rank.rank, 4)
        work = dist.all_reduce(value, async_op=True)
        assert work is not None
        future = work.get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        same(doubled.wait(), total(4) * 2)
        assert work.wait(timedelta(seconds=20))
        assert work.is_completed()
        assert work.is_success()
        same(work.result()[0], total(4))
        same(future.wait()[0], total(4))
        assert work.get_future_result().wait() == 0  # type: ignore[attr-defined]
        # A wait that is too short leaves the operation alone.
        if rank.rank == 0:
            work = dist.irecv(value, src=1)
            assert work is not None
            with pytest.raises(torchcomms.CommTimeoutError, match=r"recv .*50 ms.* goes on"):
                work.wait(timedelta(milliseconds=50))
        dist.barrier()
        if rank.rank == 1:
            dist.send(of(8, 4), dst=0)
        if rank.rank == 0:
            work.wait()
            same(value, of(8, 4))


def awaits_in_callbacks(rank: Rank, backend: str) -> None:
    """As PowerSGD does: what a callback waits for ends although it blocks."""
    with process_group(rank, backend):

        def again(done: torch.futures.Future[list[torch.Tensor]]) -> list[torch.Tensor]:
            work = dist.all_reduce(done.value()[0], async_op=True)
            assert work is not None
            return work.get_future().wait()

        works = [dist.all_reduce(torch.ones(1 << 18), async_op=True) for _ in range(8)]
        futures = [work.get_future() for work in works if work is not None]
        ends = [future.then(again).then(again) for future in futures]
        for end in ends:
            same(end.wait()[0], torch.full((1 << 18,), float(rank.size**3)))
        # A future that was there before the callback that waits for it.
        first = dist.all_reduce(of(rank.rank, 4), async_op=True)
        last = dist.all_reduce(of(rank.rank, 4), async_op=True)
        assert first is not None
        assert last is not None
        later = last.get_future()
        same(first.get_future().then(lambda _: later.wait()).wait()[0], total(4))


def counts(rank: Rank, backend: str) -> bool:
    """False if torch has no numbers for backends that are not its own."""
    with process_group(rank, backend):
        world = dist.group.WORLD
        assert world is not None
        try:
            before = world._get_sequence_number_for_group()  # type: ignore[attr-defined]
        except RuntimeError as error:
            if "custom does not yet support sequence numbers" in str(error):
                return False
            raise
        dist.barrier()
        assert world._get_sequence_number_for_group() == before + 1  # type: ignore[attr-defined]
        return True


def exceptions(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        work = dist.all_reduce(of(rank.rank, 4), async_op=True)
        assert work is not None
        work.wait()
        assert work.exception() is None


def splits(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        part = dist.split_group(split_ranks=[[2, 0]])
        if rank.rank == 1:
            assert part == dist.GroupMember.NON_GROUP_MEMBER
        else:
            assert isinstance(part, dist.ProcessGroup)
            value = torch.full((2,), float(rank.rank))
            dist.broadcast(value, group=part, group_src=0)
            assert dist.get_group_rank(part, rank.rank) == part.rank()
            dist.monitored_barrier(part)


def groups(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        world = dist.group.WORLD
        assert world is not None
        pair = dist.new_group([0, 2])
        if rank.rank != 1:
            value = torch.ones(2)
            dist.all_reduce(value, group=pair)
            assert value[0] == 2
            dist.destroy_process_group(pair)
        wrapper = world._get_backend(torch.device("cpu"))
        assert isinstance(wrapper, torchcomms._comms._BackendWrapper)
        assert wrapper.get_comm().get_size() == SIZE
        assert wrapper.get_comm() is wrapper.get_comm()
        assert wrapper.supports_splitting
        assert wrapper.name() == ("gloo" if backend == OVER_GLOO else "ctran")
        assert wrapper.options._timeout == wrapper.get_comm().get_options().timeout


@pytest.mark.parametrize(
    "case",
    [
        reductions,
        movements,
        aliased,
        goes_on_alone,
        several_at_once,
        messages,
        works,
        awaits_in_callbacks,
        groups,
    ],
    ids=lambda f: f.__name__,
)
def test_on_all_ranks(ranks: MakeRanks, backend: str, case: Callable[[Rank, str], None]) -> None:
    ranks(SIZE).run(case, backend)


def test_sequence_numbers(ranks: MakeRanks, backend: str) -> None:
    counted = ranks(SIZE).run(counts, backend)
    if torch.__version__ < "2.15" and not any(counted):
        pytest.skip("this torch counts operations of its own backends alone")
    assert all(counted)


@pytest.mark.skipif(
    "exception_ptr" in (dist.Work.exception.__doc__ or ""),
    reason="Work.exception() of this torch returns what Python has no type for",
)
def test_exceptions(ranks: MakeRanks, backend: str) -> None:
    ranks(SIZE).run(exceptions, backend)


@pytest.mark.skipif(
    "No device associated" in inspect.getsource(dist.split_group),
    reason="split_group() of this torch splits groups of GPUs alone",
)
def test_split_group(ranks: MakeRanks, backend: str) -> None:
    ranks(SIZE).run(splits, backend)


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta = TIMEOUT,
    wait_all_ranks: bool = False,
) -> None:
    """As that of torch.distributed, which is for groups of "gloo" alone in some versions."""
    group = group or dist.group.WORLD
    assert group is not None
    if "only implemented for GLOO" in inspect.getsource(dist.monitored_barrier):
        group.monitored_barrier(timeout, wait_all_ranks)  # type: ignore[attr-defined]
    else:
        dist.monitored_barrier(group, timeout, wait_all_ranks)


def late_for_a_barrier(rank: Rank) -> None:
    with process_group(rank):
        for everybody in (False, True):
            monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=everybody)
        for everybody, missing in ((False, "Rank 1"), (True, "Ranks 1, 2")):
            said = f"{missing} failed to pass monitoredBarrier in 100 ms"
            if rank.rank == 0:
                with pytest.raises(torchcomms.CommTimeoutError, match=said) as raised:
                    monitored_barrier(None, timedelta(milliseconds=100), everybody)
                assert 1 in raised.value.ranks
            dist.barrier()  # the group is as good as before
            if rank.rank != 0:
                late = f"Rank {rank.rank} reached monitoredBarrier too late: .*{said}"
                with pytest.raises(torchcomms.CommTimeoutError, match=late):
                    monitored_barrier(None, timedelta(seconds=20), everybody)
        monitored_barrier()


def waits_at_a_barrier(rank: Rank) -> None:
    with process_group(rank):
        missing = "Rank 1 failed to pass monitoredBarrier in 200 ms"
        came = "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for"
        if rank.rank != 1:
            said = missing if rank.rank == 0 else f"{came} send/recv from rank 0: .*{missing}"
            with pytest.raises(torchcomms.CommTimeoutError, match=said):
                monitored_barrier(timeout=timedelta(milliseconds=200))
        dist.barrier()
        if rank.rank == 1:
            with pytest.raises(torchcomms.CommTimeoutError, match="too late"):
                monitored_barrier()
        monitored_barrier()
        if rank.rank == 2:
            alone = f"{came} send/recv from rank 0: Rank 0 failed to pass"
            with pytest.raises(torchcomms.CommTimeoutError, match=alone):
                monitored_barrier(timeout=timedelta(milliseconds=100))


def has_no_time_for_a_barrier(rank: Rank) -> None:
    with process_group(rank):
        if rank.rank == 0:
            said = "Rank 0 timed out in monitoredBarrier after 0 ms: .*Rank 1 failed to pass"
            with pytest.raises(torchcomms.CommTimeoutError, match=said):
                dist.group.WORLD.monitored_barrier(timedelta(0))  # type: ignore[union-attr]


def test_monitored_barrier_names_who_is_missing(ranks: MakeRanks) -> None:
    ranks(SIZE).run(late_for_a_barrier)


def test_monitored_barrier_tells_who_came(ranks: MakeRanks) -> None:
    ranks(SIZE).run(waits_at_a_barrier)


def test_monitored_barrier_without_time(ranks: MakeRanks) -> None:
    ranks(SIZE).run(has_no_time_for_a_barrier)


def waits_for_ever(rank: Rank) -> None:
    """For longer than clocks can count."""
    ever = timedelta(days=200_000)
    with process_group(rank):
        world = dist.group.WORLD
        assert world is not None
        if rank.rank == 0:
            told = torch.zeros(1)
            telling = dist.irecv(told, 1)
            dist.send(torch.ones(1), 1)
            assert telling is not None
            assert telling.wait(ever)
            assert told.item() == 2
        elif rank.rank == 1:
            dist.recv(torch.zeros(1), 0)
            dist.send(torch.full((1,), 2.0), 0)
        monitored_barrier(timeout=ever)
        dist.distributed_c10d._set_pg_timeout(ever, world)
        dist.barrier()


def test_timeouts_may_be_longer_than_clocks_count(ranks: MakeRanks) -> None:
    ranks(SIZE).run(waits_for_ever)


def refused(rank: Rank) -> None:
    with process_group(rank):
        world = dist.group.WORLD
        assert world is not None
        for message, call in [
            ("as many outputs as inputs", lambda: world.allgather([], [torch.ones(1)])),
            ("one tensor, got 2", lambda: world.send([torch.ones(1), torch.ones(1)], 0, 0)),
            ("must be in range", lambda: world.send([torch.ones(1)], 7, 0)),
            (
                "must not be negative",
                lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [-1, 2, 2], [1, 1, 1]),
            ),
            (
                "COO tensors can be summed",
                lambda: dist.all_reduce(torch.eye(2).to_sparse(), dist.ReduceOp.MAX),
            ),
            ("without startCoalescing", lambda: world._end_coalescing(torch.device("cpu"))),
        ]:
            with pytest.raises(torchcomms.CommError, match=message):
                call()
        with pytest.raises(TypeError):
            torchcomms._comms._BackendWrapper(None)  # type: ignore[arg-type]
        value = torch.ones(1)
        dist.all_reduce(value)
        assert value.item() == rank.size


def test_wrong_calls_leave_the_group_usable(ranks: MakeRanks) -> None:
    ranks(SIZE).run(refused)


def sparse(rank: Rank) -> None:
    with process_group(rank):
        own = torch.zeros(5, 2)
        own[rank.rank] = rank.rank + 1.0
        own[4] = 1.0
        expected = torch.zeros(5, 2)
        for r in range(SIZE):
            expected[r] += r + 1.0
            expected[4] += 1.0
        value = own.to_sparse(1)
        dist.all_reduce(value)
        same(value.to_dense(), expected)
        nothing = torch.zeros(5, 2).to_sparse(1)
        dist.all_reduce(nothing)
        assert nothing._nnz() == 0


def test_sparse_tensors(ranks: MakeRanks) -> None:
    ranks(SIZE).run(sparse)


def aborts(rank: Rank) -> None:
    # PyTorch's dump comes first, which takes long on a slow machine.
    os.environ["TORCHCOMM_ERROR_GRACE_SECONDS"] = "200"
    with process_group(rank):
        world = dist.group.WORLD
        assert world is not None
        work = dist.irecv(torch.zeros(1), src=(rank.rank + 1) % SIZE)
        assert work is not None
        value = strided(of(rank.rank, 4, 5))
        copied = None if rank.rank == 0 else dist.all_reduce(value, async_op=True)
        rank.say("waiting")
        if rank.rank == 0:
            rank.listen()
            world.abort()
        with pytest.raises(torchcomms.AbortedError, match="aborted by rank 0"):
            work.wait()
        if copied is not None:
            with pytest.raises(torchcomms.AbortedError):
                copied.get_future().wait()
            with pytest.raises(torchcomms.AbortedError):
                copied.wait()
            assert copied.is_completed()
            assert not copied.is_success()
            same(value, of(rank.rank, 4, 5))
        with pytest.raises(torchcomms.AbortedError):
            dist.barrier()


def test_abort_ends_what_waits(fresh_ranks: MakeRanks) -> None:
    world = fresh_ranks(SIZE)
    job = world.start(aborts)
    for r in range(SIZE):
        job.hear(r)
    job.say(0)
    job.results()


def mixed(rank: Rank) -> None:
    config = dist.distributed_c10d.BackendConfig("cpu:ctran,cuda:nccl")  # type: ignore[arg-type]
    assert config.get_device_backend_map() == {"cpu": "ctran", "cuda": "nccl"}
    with process_group(rank, "cpu:ctran,cuda:gloo"):
        world = dist.group.WORLD
        assert world is not None
        assert world._get_backend(torch.device("cpu")).name() == "ctran"
        assert world._get_backend(torch.device("cuda")).name() == "gloo"
        value = torch.ones(3)
        dist.all_reduce(value)
        dist.barrier()
        assert value[0] == rank.size
        gathered = [None] * rank.size
        dist.all_gather_object(gathered, rank.rank)
        assert gathered == list(range(rank.size))


def test_the_device_of_a_backend_counts() -> None:
    """Not that of the backend's first device, which would refuse all tensors of a GPU later."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    options: dict[str, Any] = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    refusal = r"no device of type cuda|no support for|libcuda|libnccl"
    for backend in ("cuda:ctran", "cpu:gloo,cuda:ctran", "cpu:gloo,cuda:ncclx"):
        with pytest.raises(torchcomms.CommError, match=refusal):
            dist.init_process_group(backend, **options)


def test_one_backend_of_several(ranks: MakeRanks) -> None:
    ranks(2).run(mixed)


def hints(rank: Rank) -> None:
    with process_group(rank, pg_options={"color": 3}):
        world = dist.group.WORLD
        assert world is not None
        wrapper = world._get_backend(torch.device("cpu"))
        assert wrapper.get_comm().get_options().hints == {"color": "3"}  # type: ignore[attr-defined]


def test_hints_come_as_options_of_the_group(ranks: MakeRanks) -> None:
    ranks(2).run(hints)


def loses_a_peer(rank: Rank) -> None:
    with process_group(rank):
        value = torch.ones(1)
        dist.all_reduce(value)
        if rank.rank == 1:
            rank.say("here")
            rank.listen()
        with pytest.raises(torchcomms.PeerLostError, match="rank 1") as raised:
            dist.all_reduce(value)
        assert raised.value.ranks == [1]
        with pytest.raises(torchcomms.PeerLostError):
            dist.barrier()


def test_a_dead_rank_is_named(fresh_ranks: MakeRanks) -> None:
    world = fresh_ranks(SIZE)
    job = world.start(loses_a_peer)
    job.hear(1)
    world.processes[1].signal(signal.SIGKILL)
    outcomes = job.outcomes()
    assert isinstance(outcomes[0], Returned), outcomes[0]
    assert isinstance(outcomes[1], Died)
    assert isinstance(outcomes[2], Returned), outcomes[2]


def from_two_threads(rank: Rank, backend: str) -> None:
    """A receive that waits in one thread does not hold up the send of another."""
    with process_group(rank, backend):
        received = torch.zeros(3)
        receiver = threading.Thread(target=dist.recv, args=(received, (rank.rank - 1) % SIZE))
        receiver.start()
        value = of(rank.rank, 3)
        dist.all_reduce(value)
        dist.send(of(rank.rank, 3), (rank.rank + 1) % SIZE)
        receiver.join()
        same(value, total(3))
        same(received, of((rank.rank - 1) % SIZE, 3))


def test_several_threads_may_use_a_group(ranks: MakeRanks, backend: str) -> None:
    ranks(SIZE).run(from_two_threads, backend)
