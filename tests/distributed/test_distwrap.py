"""distwrap: torch.distributed's functions on communicators of torchcomms, and on torch's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed
from harness import Rank, Ranks
from harness.worker import TIMEOUT
from torch import Tensor

import torchcomms
import torchcomms.functional

MakeRanks = Callable[[int], Ranks]
SIZE = 3
_numbers = itertools.count()


@contextmanager
def started(rank: Rank, backend: str, use_torchcomms: bool) -> Iterator[None]:
    from torchcomms import distwrap as dist

    dist.init_process_group(
        backend,
        store=rank.store(f"distwrap/{next(_numbers)}"),
        rank=rank.rank,
        world_size=rank.size,
        timeout=TIMEOUT,
        use_torchcomms=use_torchcomms,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def of(rank: int, *shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).float().view(shape) + 100.0 * (rank + 1)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def everything(rank: Rank, backend: str, use_torchcomms: bool) -> None:
    from torchcomms import distwrap as dist

    me = rank.rank
    with started(rank, backend, use_torchcomms):
        assert dist.torchcomms_is_enabled() == use_torchcomms
        assert dist.get_backend() == backend
        assert (dist.get_rank(), dist.get_world_size()) == (me, SIZE)
        if use_torchcomms:
            assert dist.get_comm().get_backend() == backend.rpartition(":")[2]
        else:
            with pytest.raises(RuntimeError, match="use_torchcomms=True"):
                dist.get_comm()

        total = sum((of(r, 4) for r in range(SIZE)), torch.zeros(4))
        value = of(me, 4)
        work = dist.all_reduce(value, async_op=True)
        work.wait()
        same(value, total)
        value = of(me, 4)
        dist.reduce(value, dst=2)
        same(value, total) if me == 2 else None
        value = of(me, 4)
        dist.broadcast(value, group_src=1)
        same(value, of(1, 4))

        for sizes in ([2] * SIZE, [r + 1 for r in range(SIZE)]):
            outputs = [torch.zeros(size) for size in sizes]
            dist.all_gather(outputs, of(me, sizes[me]))
            for r, output in enumerate(outputs):
                same(output, of(r, sizes[r]))
            for async_op in (False, True):
                output = torch.zeros(sizes[me])
                work = dist.reduce_scatter(
                    output, [of(me, size) for size in sizes], async_op=async_op
                )
                assert (work is not None) == async_op
                if work is not None:
                    work.wait()
                same(output, sum((of(r, sizes[me]) for r in range(SIZE)), torch.zeros(sizes[me])))
        output = torch.zeros(SIZE * 2)
        dist.all_gather_into_tensor(output, of(me, 2))
        same(output, torch.cat([of(r, 2) for r in range(SIZE)]))
        output = torch.zeros(2)
        dist.reduce_scatter_tensor(output, of(me, 2 * SIZE))
        summed = sum((of(r, 2 * SIZE) for r in range(SIZE)), torch.zeros(2 * SIZE))
        same(output, summed.chunk(SIZE)[me])

        outputs = [torch.zeros(me + 1) for _ in range(SIZE)]
        dist.all_to_all(outputs, [of(10 * me + r, r + 1) for r in range(SIZE)])
        for r, output in enumerate(outputs):
            same(output, of(10 * r + me, me + 1))
        output = torch.zeros(SIZE * (me + 1))
        dist.all_to_all_single(
            output, of(me, 6), output_split_sizes=[me + 1] * SIZE, input_split_sizes=[1, 2, 3]
        )
        same(output, torch.cat([of(r, 6).split([1, 2, 3])[me] for r in range(SIZE)]))
        output = torch.zeros(3)
        dist.scatter(output, [of(r, 3) for r in range(SIZE)] if me == 0 else None, src=0)
        same(output, of(me, 3))
        outputs = [torch.zeros(3) for _ in range(SIZE)]
        dist.gather(of(me, 3), outputs if me == 1 else None, dst=1)
        if me == 1:
            same(torch.stack(outputs), torch.stack([of(r, 3) for r in range(SIZE)]))

        objects: list[object] = [None] * SIZE
        dist.all_gather_object(objects, {"rank": me})
        assert objects == [{"rank": r} for r in range(SIZE)]
        got: list[object] = [None]
        dist.scatter_object_list(got, [str(r) for r in range(SIZE)] if me == 0 else None, src=0)
        assert got == [str(me)]
        told = [me]
        dist.broadcast_object_list(told, src=2)
        assert told == [2]
        objects = [None] * SIZE
        dist.gather_object(me, objects if me == 0 else None, dst=0)
        assert me != 0 or objects == list(range(SIZE))
        dist.barrier()


def ends(rank: Rank, backend: str, use_torchcomms: bool) -> None:
    from torchcomms import distwrap as dist

    with started(rank, backend, use_torchcomms):
        output = torch.zeros(2)
        work = dist.reduce_scatter(output, [torch.ones(2) for _ in range(SIZE)], async_op=True)
        while not work.is_completed():
            pass
        assert output.tolist() == [SIZE, SIZE]
        parts = [torch.zeros(1) for _ in range(SIZE)]
        with pytest.warns(UserWarning, match="does not belong to|not part of"):
            dist.all_gather(parts, torch.ones(1), group=dist.GroupMember.NON_GROUP_MEMBER)


def messages(rank: Rank, backend: str, use_torchcomms: bool) -> None:
    from torchcomms import distwrap as dist

    after, before = (rank.rank + 1) % SIZE, (rank.rank - 1) % SIZE
    with started(rank, backend, use_torchcomms):
        # All send first, more than is buffered: only a group of operations gets through.
        large = torch.zeros(1 << 20)
        ops = [
            dist.P2POp(dist.isend, torch.full((1 << 20,), float(rank.rank)), after, tag=1),
            dist.P2POp(dist.isend, of(rank.rank, 3), after, tag=2),
            dist.P2POp(dist.irecv, small := torch.zeros(3), before, tag=2),
            dist.P2POp(dist.irecv, large, before, tag=1),
        ]
        works = dist.batch_isend_irecv(ops)
        assert len(works) == (1 if use_torchcomms else 4)
        for work in works:
            work.wait()
        same(large, torch.full((1 << 20,), float(before)))
        same(small, of(before, 3))
        sends = [dist.isend(of(tag, 3), after, tag=tag) for tag in (5, 6)]
        box = torch.zeros(3)
        for tag in (6, 5):
            assert dist.recv(box, before, tag=tag) == before
            same(box, of(tag, 3))
        for send in sends:
            send.wait()


def groups(rank: Rank, backend: str, use_torchcomms: bool) -> None:
    from torchcomms import distwrap as dist

    with started(rank, backend, use_torchcomms):
        pair = dist.new_group([0, 2])
        if rank.rank != 1:
            value = torch.ones(1)
            dist.all_reduce(value, group=pair)
            assert value.item() == 2
            dist.destroy_process_group(pair)
        part = dist.split_group(split_ranks=[[0, 1], [2]])
        value = torch.ones(1)
        dist.all_reduce(value, group=part)
        assert value.item() == (1 if rank.rank == 2 else 2)
        # Ranks that are in none of the groups stay in step with the others.
        dist.split_group(split_ranks=[[0, 1]])
        dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1, 2]))
        turned = dist.split_group(split_ranks=[[2, 0], [1]])
        assert dist.get_rank(turned) == {0: 1, 1: 0, 2: 0}[rank.rank]
        whole = dist.split_group()
        assert dist.get_process_group_ranks(whole) == list(range(SIZE))
        dist.all_reduce(value, group=whole)
        assert value.item() == 5
        if not use_torchcomms:
            return
        assert dist.get_comm(part).get_size() == part.size()
        leaf = torch.ones(2, requires_grad=True)
        torchcomms.functional.all_reduce(
            dist.get_comm(), leaf, torchcomms.ReduceOp.SUM
        ).sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [SIZE, SIZE]
        nested = dist.split_group(part, [[1]] if rank.rank < 2 else [[0]])
        assert (nested == dist.GroupMember.NON_GROUP_MEMBER) == (rank.rank == 0)
        with pytest.raises(ValueError, match="each once"):
            dist.split_group(split_ranks=[[0], [0, 1]])
        if backend.endswith("ctran"):
            assert isinstance(dist.new_window(), torchcomms.TorchCommWindow)
        with pytest.raises(NotImplementedError, match="reduce_scatter_quantized"):
            dist.reduce_scatter_quantized(torch.zeros(1), torch.zeros(SIZE))


KINDS = [("ctran", True), ("cpu:ctran", True), ("gloo", True), ("gloo", False)]


@pytest.mark.parametrize(("backend", "use_torchcomms"), KINDS)
@pytest.mark.parametrize("case", [everything, ends, messages, groups], ids=lambda f: f.__name__)
def test_on_all_ranks(
    ranks: MakeRanks,
    case: Callable[[Rank, str, bool], None],
    backend: str,
    use_torchcomms: bool,
) -> None:
    if backend == "gloo" and not torchcomms.is_backend_built("gloo"):
        pytest.skip("built with USE_GLOO=0")
    ranks(SIZE).run(case, backend, use_torchcomms)


def miscounts(rank: Rank, backend: str, use_torchcomms: bool) -> None:
    """On all ranks; the group is as before."""
    from torchcomms import distwrap as dist

    counts = [2, 4, 6]
    own = counts[rank.rank]
    parts = [of(rank.rank, count) for count in counts]
    outputs = [torch.zeros(count) for count in counts]
    with started(rank, backend, use_torchcomms):
        # A copy would spread the one element.
        wrong: list[tuple[str, Callable[[], object]]] = [
            ("all_gather", lambda: dist.all_gather(outputs, torch.ones(1))),
            ("all_gather", lambda: dist.all_gather(outputs[:2], torch.ones(own))),
            ("all_to_all", lambda: dist.all_to_all(outputs, [torch.ones(1)] * SIZE)),
            ("all_to_all", lambda: dist.all_to_all(outputs, parts[:2])),
            ("reduce_scatter", lambda: dist.reduce_scatter(torch.zeros(1), parts)),
            ("reduce_scatter", lambda: dist.reduce_scatter(torch.zeros(own), parts[:2])),
        ]
        for operation, call in wrong:
            with pytest.raises((ValueError, torchcomms.CommError), match=operation):
                call()
        # As many elements in another shape are as good.
        flat = [torch.zeros(count // 2, 2) for count in counts]
        dist.all_gather(flat, of(rank.rank, own))
        for r, part in enumerate(flat):
            same(part, of(r, counts[r] // 2, 2))
        reduced = torch.zeros(own // 2, 2)
        dist.reduce_scatter(reduced, parts)
        same(reduced, sum(of(r, own // 2, 2) for r in range(SIZE)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("backend", "use_torchcomms"), [("ctran", True), ("gloo", False)])
def test_parts_that_do_not_fit_are_refused(
    ranks: MakeRanks, backend: str, use_torchcomms: bool
) -> None:
    ranks(SIZE).run(miscounts, backend, use_torchcomms)


def test_what_is_wrong_is_said() -> None:
    from torchcomms import distwrap as dist

    with pytest.raises(ValueError, match="backend must be specified"):
        dist.init_process_group()
    with pytest.raises(ValueError, match=r"no backend 'pigeon' here; it has .*ctran"):
        dist.init_process_group("pigeon", use_torchcomms=True)
    assert dist.ReduceOp is torch.distributed.ReduceOp
    with pytest.raises(AttributeError, match="distwrap"):
        _ = dist.no_such_thing
