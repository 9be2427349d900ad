"""Batches: their messages run at the same time, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
from harness import Rank

from gpu_ranks import BACKEND, Make, case
from torchcomms import TorchComm

# Floats: of nothing, of one step, of more steps than a flow holds.
COUNTS = (8, 0, 5, 20_001, 70_000, 600_000)
MANY = 40
LIMIT = timedelta(seconds=60)


def _part(source: int, target: int, k: int, lap: int, count: int) -> torch.Tensor:
    return torch.arange(count) % 1009 + 1000.0 * source + 100 * target + 10 * k + lap


class Messages:
    """Of some sizes, from one rank to another; all ranks make them alike."""

    def __init__(self, rank: Rank, source: int, target: int, counts: Sequence[int]) -> None:
        self._rank, self.source, self.target = rank, source, target
        self.tensors = [torch.zeros(count).to(rank.device(BACKEND)) for count in counts]

    def fill(self, lap: int) -> None:
        """What is sent, at its source; poison at its target."""
        for k, tensor in enumerate(self.tensors):
            tensor.fill_(-1.0)
            if self._rank.rank == self.source:
                tensor.copy_(_part(self.source, self.target, k, lap, tensor.numel()))

    def check(self, lap: int) -> None:
        if self._rank.rank != self.target:
            return
        for k, tensor in enumerate(self.tensors):
            wanted = _part(self.source, self.target, k, lap, tensor.numel())
            assert torch.equal(tensor.cpu(), wanted), (self.source, k, lap)

    def one_by_one(self, comm: TorchComm) -> None:
        for tensor in self.tensors:
            if self._rank.rank == self.source:
                comm.send(tensor, self.target, async_op=False)
            else:
                comm.recv(tensor, self.source, async_op=False)


def _together(rank: Rank, comm: TorchComm, groups: Sequence[Messages]) -> None:
    """The messages of this rank in one batch."""
    batch = comm.batch_op_create()
    for group in groups:
        for tensor in group.tensors:
            if group.source == rank.rank:
                batch.send(tensor, group.target)
            elif group.target == rank.rank:
                batch.recv(tensor, group.source)
    batch.issue(async_op=False)


def _laps(rank: Rank, groups: Sequence[Messages], step: Callable[[], None]) -> None:
    """Eagerly, then as replays, with eager calls between."""
    replay = step
    for lap in range(6):
        for group in groups:
            group.fill(lap)
        rank.synchronize(BACKEND)
        if lap == 2:
            replay = rank.gpu().capture(step)
        (step if lap == 4 else replay)()
        rank.synchronize(BACKEND)
        for group in groups:
            group.check(lap)


def _one_by_one(rank: Rank, counts: Sequence[int]) -> None:
    """Rank 0 has in a batch what rank 1 does one after another: last, it answers."""
    comm = rank.new_comm(BACKEND, f"one-by-one-{len(counts)}", timeout=LIMIT)
    there, back = Messages(rank, 0, 1, counts), Messages(rank, 1, 0, counts[:1])

    def step() -> None:
        if rank.rank == 0:
            _together(rank, comm, (there, back))
        else:
            there.one_by_one(comm)
            back.one_by_one(comm)

    _laps(rank, (there, back), step)
    comm.finalize()


@case(world=2, breaks=True)
def messages_of_a_batch_run_at_the_same_time(make: Make) -> None:
    for counts in ((8, 8), COUNTS, [17 * k for k in range(MANY)]):
        make(2).run(_one_by_one, counts)


def _around(rank: Rank) -> None:
    """Rank 0 sends to both others; rank 1 listens to it when it has heard from rank 2, which has
    all of its own by then.
    """
    comm = rank.new_comm(BACKEND, "around", timeout=LIMIT)
    counts = [11 * k for k in range(MANY)]
    to_1, to_2 = (Messages(rank, 0, r, counts) for r in (1, 2))
    between = Messages(rank, 2, 1, COUNTS[:1])

    def step() -> None:
        if rank.rank == 0:
            _together(rank, comm, (to_1, to_2))
        elif rank.rank == 1:
            between.one_by_one(comm)
            _together(rank, comm, (to_1,))
        else:
            to_2.one_by_one(comm)
            between.one_by_one(comm)

    _laps(rank, (to_1, to_2, between), step)
    comm.finalize()


@case(world=3, breaks=True)
def messages_of_a_batch_do_not_wait_for_other_ranks(make: Make) -> None:
    make(3).run(_around)


def _in_place(rank: Rank) -> None:
    """Several messages each way, and to oneself; the second ones change places."""
    comm = rank.new_comm(BACKEND, "in-place", timeout=LIMIT)
    device, peer = rank.device(BACKEND), 1 - rank.rank
    for count in COUNTS:
        sent = [_part(rank.rank, peer, k, 0, count).to(device) for k in range(3)]
        got = [torch.full_like(sent[0], -1.0), sent[1], torch.full_like(sent[0], -1.0)]
        own = [torch.full_like(sent[0], -1.0) for _ in range(2)]
        rank.synchronize(BACKEND)
        batch = comm.batch_op_create()
        for k in range(3):
            batch.send(sent[k], peer)
            batch.recv(got[k], peer)
        for k in range(2):
            batch.send(sent[2 * k], rank.rank)
            batch.recv(own[k], rank.rank)
        batch.issue(async_op=False)
        rank.synchronize(BACKEND)
        for k in range(3):
            assert torch.equal(got[k].cpu(), _part(peer, rank.rank, k, 0, count)), (count, k)
        for k in range(2):
            wanted = _part(rank.rank, peer, 2 * k, 0, count)
            assert torch.equal(own[k].cpu(), wanted), (count, k)
    comm.finalize()


@case(world=2)
def several_messages_change_places_in_a_batch(make: Make) -> None:
    make(2).run(_in_place)
