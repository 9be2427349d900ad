"""Sends and receives, one by one and in batches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def _sum(comm: torchcomms.TorchComm) -> float:
    tensor = torch.full((3,), comm.get_rank() + 1.0)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    return tensor[0].item()


def exchanges(rank: Rank) -> None:
    """Everybody sends first: with blocking sends of this size that would be a deadlock."""
    comm = rank.comm(BACKEND)
    count = 3_000_000
    after, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    batch = comm.batch_op_create()
    outgoing = torch.full((count,), float(rank.rank))
    incoming = torch.zeros(count)
    batch.send(outgoing, dst=after)
    batch.recv(incoming, src=before)
    batch.issue(async_op=False)
    assert (incoming == before).all()
    incoming.zero_()
    options = torchcomms.BatchP2POptions(timeout=timedelta(seconds=25), hints={"a": "b"})
    batch.issue(True, options).wait()  # the list is kept
    assert (incoming == before).all()
    assert [op.peer for op in batch.ops] == [after, before]
    assert batch.ops[0].type == torchcomms.P2POpType.SEND
    batch.ops = [torchcomms.P2POp(torchcomms.P2POpType.RECV, incoming, before)]
    sends = comm.send(torch.ones(count), after, async_op=True)
    batch.issue(False)
    sends.wait()
    assert (incoming == 1).all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_symmetric_exchange(ranks: MakeRanks, size: int) -> None:
    ranks(size).run(exchanges)


def batches_in_part(rank: Rank) -> float:
    """Batches among some ranks leave the order of everything else alone."""
    comm = rank.comm(BACKEND)
    received = torch.zeros(1)
    for low in range(rank.size - 1):
        if rank.rank in (low, low + 1):
            batch = comm.batch_op_create()
            batch.send(torch.ones(1) * rank.rank, 2 * low + 1 - rank.rank)
            batch.recv(received, 2 * low + 1 - rank.rank)
            batch.issue(False)
            assert received.item() == 2 * low + 1 - rank.rank
    return _sum(comm)


def test_batches_of_some_ranks(ranks: MakeRanks) -> None:
    assert ranks(4).run(batches_in_part) == [10.0] * 4


def sends_many(rank: Rank) -> list[float]:
    """Messages of a pair arrive in the order of the calls, whatever waits first."""
    comm = rank.comm(BACKEND)
    if rank.rank == 0:
        works = [comm.send(torch.full((9,), float(i)), 1, async_op=True) for i in range(50)]
        for work in works:
            work.wait()
        return []
    boxes = [torch.zeros(9) for _ in range(50)]
    works = [comm.recv(box, 0, async_op=True) for box in boxes]
    for work in reversed(works):
        work.wait()
    return [box[0].item() for box in boxes]


def test_messages_keep_their_order(ranks: MakeRanks) -> None:
    assert ranks(2).run(sends_many)[1] == [float(i) for i in range(50)]


def receives_by_tag(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    large = 1 << 20  # more than is buffered between two ranks
    sizes = {1: 5, 2: large, 3: 0, 4: 7}
    if rank.rank == 0:
        works = [
            comm.send(
                torch.full((size,), float(10 * tag + i)),
                1,
                async_op=True,
                options=torchcomms.SendOptions(tag=tag),
            )
            for i in range(2)
            for tag, size in sizes.items()
        ]
        batch = comm.batch_op_create()
        batch.send(torch.ones(3) * 5, 1, tag=5)
        batch.send(torch.ones(3) * 6, 1, tag=6)
        batch.issue(async_op=False)
        for work in works:
            work.wait()
        return
    for tag, number in [(4, 0), (2, 0), (4, 1), (3, 0), (1, 0), (1, 1), (3, 1), (2, 1)]:
        box = torch.zeros(sizes[tag])
        comm.recv(box, 0, async_op=False, options=torchcomms.RecvOptions(tag=tag))
        assert torch.equal(box, torch.full((sizes[tag],), float(10 * tag + number)))
    boxes = [torch.zeros(3), torch.zeros(3)]
    batch = comm.batch_op_create()
    batch.recv(boxes[1], 0, tag=6)
    batch.recv(boxes[0], 0, tag=5)
    batch.issue(async_op=False)
    assert [box[0].item() for box in boxes] == [5.0, 6.0]


def test_a_receive_takes_messages_of_its_tag(ranks: MakeRanks) -> None:
    ranks(2).run(receives_by_tag, BACKEND)


def waits_for_another_tag(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    tags = list(range(40))  # more than gloo keeps threads for
    boxes = [torch.full((3,), float(tag)) for tag in tags]
    if rank.rank == 0:
        for tag in reversed(tags):
            comm.send(boxes[tag], 1, async_op=False, options=torchcomms.SendOptions(tag=tag))
            if tag == 38:
                comm.recv(torch.zeros(1), 1, async_op=False)
        return
    for box in boxes:
        box.zero_()
    works = [
        comm.recv(boxes[tag], 0, async_op=True, options=torchcomms.RecvOptions(tag=tag))
        for tag in tags[:38]
    ]
    for tag in (39, 38):
        comm.recv(boxes[tag], 0, async_op=False, options=torchcomms.RecvOptions(tag=tag))
    assert not any(work.is_completed() for work in works)
    comm.send(torch.zeros(1), 0, async_op=False)
    for work in works:
        work.wait()
    assert [box[0].item() for box in boxes] == [float(tag) for tag in tags]


@pytest.mark.parametrize("backend", [BACKEND, "gloo"])
def test_a_receive_does_not_hold_up_those_of_other_tags(ranks: MakeRanks, backend: str) -> None:
    ranks(2).run(waits_for_another_tag, backend)


def mistakes_a_tagged_message(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "tagged")
    if rank.rank == 0:
        for tag in (1, 2):
            comm.send(torch.ones(4), 1, async_op=False, options=torchcomms.SendOptions(tag=tag))
        return
    box = torch.zeros(4)
    comm.recv(box, 0, async_op=False, options=torchcomms.RecvOptions(tag=2))
    with pytest.raises(torchcomms.MismatchError, match="4 elements, to rank 1, tag 1"):
        comm.recv(box[:3], 0, async_op=False, options=torchcomms.RecvOptions(tag=1))


def test_a_tagged_message_of_another_size_is_a_mismatch(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(mistakes_a_tagged_message)
