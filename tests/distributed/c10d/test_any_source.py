"""dist.recv without a source: whoever is first to send a message of the tag."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import Died, Rank, Ranks, Returned
from harness.groups import OVER_GLOO, process_group

import torchcomms

MakeRanks = Callable[[int], Ranks]
SIZE = 4


@pytest.fixture(params=["ctran", OVER_GLOO])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == OVER_GLOO and not torchcomms.is_backend_built("gloo"):
        pytest.skip("built with USE_GLOO=0")
    return str(request.param)


def says_who(rank: Rank, backend: str) -> None:
    with process_group(rank, backend):
        for count in (0, 3, 100_000):
            if count == 0 and backend == OVER_GLOO:
                if rank.rank == 0:
                    with pytest.raises(torchcomms.CommError, match="does not receive empty"):
                        dist.recv(torch.zeros(0))
                continue
            for tag in (0, 5):
                dist.barrier()  # or a rank that is ahead would be heard twice
                if rank.rank != 0:
                    dist.send(torch.full((count,), float(rank.rank)), 0, tag=tag)
                    continue
                senders = []
                for _ in range(1, SIZE):
                    box = torch.zeros(count)
                    senders.append(dist.recv(box, tag=tag))
                    assert torch.equal(box, torch.full((count,), float(senders[-1])))
                assert sorted(senders) == [1, 2, 3]
        dist.barrier()


def keeps_the_order(rank: Rank, backend: str) -> None:
    """Messages of one sender and tag come in order, whatever others send meanwhile."""
    messages = 50
    with process_group(rank, backend):
        if rank.rank != 0:
            for i in range(messages):
                dist.send(torch.tensor([rank.rank, i]), 0, tag=1)
        else:
            heard = [0] * SIZE
            box = torch.zeros(2, dtype=torch.int64)
            for _ in range(messages * (SIZE - 1)):
                sender = dist.recv(box, tag=1)
                assert box.tolist() == [sender, heard[sender]]
                heard[sender] += 1
        dist.barrier()


def shares_with_others(rank: Rank) -> None:
    """Receives that name their sender, and of other tags, go on beside one that does not."""
    with process_group(rank, "ctran"):
        box = torch.zeros(2)
        if rank.rank == 0:
            listener = dist.group.WORLD.recv_anysource([torch.zeros(2)], 9)
            for sender in (3, 1, 2):
                dist.recv(box, sender)
                assert box[0] == sender
            assert not listener.is_completed()
            dist.send(box, 3, tag=2)
            listener.wait()
            assert listener._source_rank() == 3
            with pytest.raises(torchcomms.CommError, match="takes one tensor, got 2"):
                dist.group.WORLD.recv_anysource([box, box], 9)
            with pytest.raises(torchcomms.CommError, match="contiguous"):
                dist.group.WORLD.recv_anysource([torch.zeros(4)[::2]], 9)
        else:
            dist.send(torch.full((2,), float(rank.rank)), 0)
        if rank.rank == 3:
            dist.recv(box, 0, tag=2)
            dist.send(box, 0, tag=9)
        dist.barrier()
        # In a group with other numbers; dist tells the rank in the world.
        pair = dist.new_group([3, 1])
        if rank.rank == 1:
            assert dist.recv(box, group=pair) == 3
        elif rank.rank == 3:
            dist.send(box, 1, group=pair)
        dist.barrier()


def ends_in_time(rank: Rank) -> None:
    with process_group(rank, "ctran"):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        if rank.rank == 0:
            backend.get_comm().set_timeout(timedelta(milliseconds=100))
            with pytest.raises(torchcomms.CommTimeoutError, match="no rank has sent it") as raised:
                dist.recv(torch.zeros(2), tag=4)
            assert raised.value.ranks == [1]
        else:  # until the group is broken
            with pytest.raises(torchcomms.CommTimeoutError, match="from any rank, tag 4"):
                dist.recv(torch.zeros(2), 0)


def hears_of_a_death(rank: Rank) -> None:
    with process_group(rank, "ctran"):
        work = dist.group.WORLD.recv_anysource([torch.zeros(2)], 0)
        rank.say("waits")
        with pytest.raises(torchcomms.PeerLostError) as raised:
            work.wait()
        assert raised.value.ranks == [1]


def test_the_sender_is_told(ranks: MakeRanks, backend: str) -> None:
    ranks(SIZE).run(says_who, backend)


def test_nothing_is_lost(ranks: MakeRanks, backend: str) -> None:
    ranks(SIZE).run(keeps_the_order, backend)


def test_other_receives_go_on(ranks: MakeRanks) -> None:
    ranks(SIZE).run(shares_with_others)


def test_deadlines(ranks: MakeRanks) -> None:
    ranks(2).run(ends_in_time)


def test_death(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(3)
    job = ranks.start(hears_of_a_death)
    assert [job.hear(r) for r in range(3)] == ["waits"] * 3
    ranks.processes[1].signal(signal.SIGKILL)
    assert job.outcomes() == [Returned(None), Died(-signal.SIGKILL), Returned(None)]
