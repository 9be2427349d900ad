"""Persistent all-gather and all-to-all into symmetric memory: copy engines write the outputs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Any

import torch
from harness import Died, Rank, Returned
from harness.failing import error_of

import torchcomms
from gpu_ranks import BACKEND, Make, case
from gpu_ranks.copies import HINTS, SOON, expect_given_up, given_up
from gpu_ranks.symmetric import Memory
from torchcomms import ReduceOp, TorchComm

# Bytes of a block.
COUNTS = (0, 1, 1001, 1 << 16, 300_003)
COUNT = 70_001
LEAST = 16 << 20  # from here on by default
MOST = 128  # at a time


def _straight(comm: TorchComm) -> int:
    """How many calls of this rank have gone straight into the outputs of all."""
    found = re.search(r"copy engines alone, (\d+) so far", comm.explain("all_gather", 1 << 20).why)
    return int(found[1]) if found else 0


def _part(source: int, target: int, count: int, lap: int) -> torch.Tensor:
    """What a rank sends another one."""
    period = (torch.arange(251) * 7 + 31 * source + 57 * target + lap).remainder_(251).byte()
    return period.repeat(count // 251 + 1)[:count]


def _sent(rank: Rank, count: int, lap: int) -> torch.Tensor:
    parts = [_part(rank.rank, r, count, lap) for r in range(rank.size)]
    return torch.cat(parts).to(rank.device(BACKEND))


def _exchanged(rank: Rank, count: int, lap: int) -> torch.Tensor:
    return torch.cat([_part(r, rank.rank, count, lap) for r in range(rank.size)])


def _gathered(rank: Rank, count: int, lap: int) -> torch.Tensor:
    return torch.cat([_part(r, 0, count, lap) for r in range(rank.size)])


def _own(rank: Rank, count: int, lap: int) -> torch.Tensor:
    return _part(rank.rank, 0, count, lap).to(rank.device(BACKEND))


def _check(rank: Rank, found: torch.Tensor, wanted: torch.Tensor, what: str = "") -> None:
    rank.synchronize(BACKEND)
    assert torch.equal(found.cpu(), wanted), what


def _output(rank: Rank, memory: Memory, count: int) -> torch.Tensor:
    """Collective. For blocks of so many bytes."""
    nbytes = rank.size * count
    return memory.take(max(nbytes + 3, 4) // 4).view(torch.uint8)[:nbytes]


@contextmanager
def _outputs(
    rank: Rank, comm: TorchComm, count: int, many: int = 1, symmetric: bool = True
) -> Iterator[list[torch.Tensor]]:
    """Collective. `many` of them, given back at the end."""
    memory = Memory(rank, comm, symmetric)
    yield [_output(rank, memory, count) for _ in range(many)]
    memory.give_back()


def _exact(rank: Rank, backend: str) -> None:
    comm = rank.new_comm(backend, f"exact-{backend}", hints=HINTS)
    for count in COUNTS:
        with _outputs(rank, comm, count, many=2) as (whole, back):
            gathers, exchanges = comm.all_gather_p_init(whole), comm.all_to_all_p_init(back)
            place = whole[rank.rank * count : (rank.rank + 1) * count]
            for lap in range(3):
                whole.fill_(255)
                back.fill_(255)
                own, sent = _own(rank, count, lap), _sent(rank, count, lap)
                rank.synchronize(BACKEND)
                comm.all_gather_p_exec(gathers, own, async_op=lap == 0).wait()
                comm.all_to_all_p_exec(exchanges, sent, async_op=lap == 1).wait()
                _check(rank, whole, _gathered(rank, count, lap), f"all_gather of {count}")
                _check(rank, back, _exchanged(rank, count, lap), f"all_to_all of {count}")
                whole.fill_(255)
                place.copy_(own)
                back.copy_(sent)
                rank.synchronize(BACKEND)
                comm.all_gather_p_exec(gathers, place, async_op=False)  # in place
                comm.all_to_all_p_exec(exchanges, back, async_op=False)  # on all ranks
                _check(rank, whole, _gathered(rank, count, lap), "all_gather in place")
                _check(rank, back, _exchanged(rank, count, lap), "all_to_all in place")
                mixed = back if rank.rank == 0 else sent
                mixed.copy_(sent)
                rank.synchronize(BACKEND)
                comm.all_to_all_p_exec(exchanges, mixed, async_op=False)  # on one of them
                _check(rank, back, _exchanged(rank, count, lap), "all_to_all half in place")
            comm.all_gather_p_free(gathers)
            comm.all_to_all_p_free(exchanges)
            del whole, back, place, mixed
    if backend == BACKEND:
        assert _straight(comm) == 3 * 5 * (len(COUNTS) - 1)
    comm.finalize()


@case(world=2)
def persistent_copies_are_exact(make: Make) -> None:
    make(2).run(_exact, BACKEND)


@case(world=4)
def persistent_copies_of_four(make: Make) -> None:
    make(4).run(_exact, BACKEND)


@case(world=2)
def persistent_copies_of_ncclx(make: Make) -> None:
    make(2).run(_exact, "ncclx")


def _chosen(rank: Rank) -> None:
    """By default for large blocks on symmetric memory, and never against a hint."""
    for hints, count, symmetric, straight in (
        ({}, LEAST, True, True),
        ({}, LEAST - 1, True, False),
        ({}, LEAST, rank.rank == 0, False),
        (HINTS, 1000, rank.rank == 0, False),
        ({"ctran::algorithm": "direct"}, LEAST, True, False),
        ({"ctran::algorithm": "all_to_all=copy_engine"}, 1000, True, False),
        ({"ctran::algorithm": "all_gather=copy_engine"}, 1000, True, True),
    ):
        comm = rank.new_comm(BACKEND, "chosen", hints=hints)
        with _outputs(rank, comm, count, symmetric=symmetric) as (whole,):
            handle = comm.all_gather_p_init(whole)
            for lap in range(2):
                comm.all_gather_p_exec(handle, _own(rank, count, lap), async_op=False)
                _check(rank, whole, _gathered(rank, count, lap), str(hints))
            comm.all_gather_p_free(handle)
            del whole
        assert _straight(comm) == (2 if straight else 0), (hints, count, symmetric)
        comm.finalize()


@case(world=2)
def persistent_copies_serve_where_they_should(make: Make) -> None:
    make(2).run(_chosen)


def _captured(rank: Rank) -> None:
    """Two handles in a graph, replayed with kernels and eager calls between."""
    comm = rank.new_comm(BACKEND, "captured", hints=HINTS)
    with _outputs(rank, comm, COUNT, many=2) as (whole, back):
        gathers, exchanges = comm.all_gather_p_init(whole), comm.all_to_all_p_init(back)
        own, sent = torch.zeros_like(_own(rank, COUNT, 0)), torch.zeros_like(_sent(rank, COUNT, 0))

        def step() -> None:
            comm.all_gather_p_exec(gathers, own, async_op=True)
            comm.all_to_all_p_exec(exchanges, sent, async_op=True).wait()
            comm.all_gather_p_exec(gathers, own, async_op=False)

        replay = rank.gpu().capture(step)
        total = torch.ones(1000, device=rank.device(BACKEND))
        other = torch.zeros_like(whole)
        for lap in range(20):
            own.copy_(_own(rank, COUNT, lap))
            sent.copy_(_sent(rank, COUNT, lap))
            back.fill_(255)
            whole.fill_(255)
            total.fill_(1.0)
            rank.synchronize(BACKEND)
            replay()
            if lap % 3 == 0:  # right behind it
                comm.all_to_all_p_exec(exchanges, sent, async_op=False)
            if lap % 4 == 0:
                comm.all_gather_single(other, own, async_op=True).wait()
                _check(rank, other, _gathered(rank, COUNT, lap), "slots")
            comm.all_reduce(total, ReduceOp.SUM, async_op=False)
            _check(rank, whole, _gathered(rank, COUNT, lap), f"replay {lap}")
            _check(rank, back, _exchanged(rank, COUNT, lap), f"replay {lap}")
            assert (total.cpu() == rank.size).all()
        # The graph has what it needs.
        comm.all_gather_p_free(gathers)
        comm.all_to_all_p_free(exchanges)
        own.copy_(_own(rank, COUNT, 99))
        rank.synchronize(BACKEND)
        replay()
        _check(rank, whole, _gathered(rank, COUNT, 99), "after p_free")
        del replay, step, whole, back
    comm.finalize()


@case(world=2)
def persistent_copies_are_captured(make: Make) -> None:
    make(2).run(_captured)


def _mixed(rank: Rank) -> None:
    """In random orders on several streams, among other operations, one rank late now and then."""
    comm = rank.new_comm(BACKEND, "mixed", hints=HINTS)
    draw, device = Random(20261122), rank.device(BACKEND)
    streams = [rank.gpu().new_stream() for _ in range(3)]
    with _outputs(rank, comm, COUNT, many=3) as (first, second, back):
        gathers = [comm.all_gather_p_init(output) for output in (first, second)]
        exchanges = comm.all_to_all_p_init(back)
        other, told = torch.zeros_like(first), torch.zeros_like(first[:COUNT])
        total = torch.ones(50_000, device=device)
        for lap in range(25):
            own = [_own(rank, COUNT, lap + k) for k in range(3)]
            sent = _sent(rank, COUNT, lap)
            told.copy_(own[0])
            for output in (first, second, back, other):
                output.fill_(255)
            total.fill_(1.0)
            rank.synchronize(BACKEND)
            calls: list[tuple[Callable[..., torchcomms.TorchWork], tuple[Any, ...]]] = [
                (comm.all_gather_p_exec, (gathers[0], own[0])),
                (comm.all_gather_p_exec, (gathers[1], own[1])),
                (comm.all_to_all_p_exec, (exchanges, sent)),
                (comm.all_gather_single, (other, own[2])),
                (comm.all_reduce, (total, ReduceOp.SUM)),
                (comm.broadcast, (told, 1)),
            ]
            draw.shuffle(calls)
            late = draw.randrange(8) == 0 and lap % rank.size == rank.rank
            works = []
            for call, arguments in calls:
                with rank.gpu().on(draw.choice(streams)):
                    rank.gpu().delay(late, 1_000_000)
                    works.append(call(*arguments, async_op=draw.random() < 0.5))
            for work in works:
                work.wait()
            _check(rank, first, _gathered(rank, COUNT, lap), f"first, {lap}")
            _check(rank, second, _gathered(rank, COUNT, lap + 1), f"second, {lap}")
            _check(rank, back, _exchanged(rank, COUNT, lap), f"all_to_all, {lap}")
            _check(rank, other, _gathered(rank, COUNT, lap + 2), f"all_gather, {lap}")
            _check(rank, told, _part(1, 0, COUNT, lap), f"broadcast, {lap}")
            assert (total.cpu() == rank.size).all()
        assert _straight(comm) == 75
        comm.all_gather_p_free(gathers[0])
        comm.all_gather_p_free(gathers[1])
        comm.all_to_all_p_free(exchanges)
        del first, second, back, output
    comm.finalize()


@case(world=2)
def persistent_copies_among_others(make: Make) -> None:
    make(2).run(_mixed)


@case(world=4)
def persistent_copies_of_four_among_others(make: Make) -> None:
    make(4).run(_mixed)


def _again(rank: Rank) -> None:
    """Handles come and go, with their memory, and there may be more than places for them."""
    comm = rank.new_comm(BACKEND, "again", hints=HINTS)
    for lap in range(5):
        with _outputs(rank, comm, COUNT) as (whole,):
            for _ in range(3):
                handle = comm.all_gather_p_init(whole)
                comm.all_gather_p_exec(handle, _own(rank, COUNT, lap), async_op=False)
                _check(rank, whole, _gathered(rank, COUNT, lap))
                comm.all_gather_p_free(handle)
            del whole
    assert _straight(comm) == 15
    with _outputs(rank, comm, COUNT) as (whole,):
        handles = [comm.all_gather_p_init(whole) for _ in range(MOST + 2)]
        for lap, handle in enumerate(handles):
            comm.all_gather_p_exec(handle, _own(rank, COUNT, lap), async_op=lap % 2 == 0).wait()
            if lap % 16 == 0 or lap >= MOST:
                _check(rank, whole, _gathered(rank, COUNT, lap))
        rank.synchronize(BACKEND)
        for handle in handles:
            comm.all_gather_p_free(handle)
        del whole
    assert _straight(comm) == 15 + MOST
    comm.finalize()


@case(world=2)
def persistent_copies_are_made_again(make: Make) -> None:
    make(2).run(_again)


def _stale(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "stale", hints=HINTS)
    with _outputs(rank, comm, COUNT, many=2) as (whole, other):
        own = _own(rank, COUNT, 0)
        handle, moved = comm.all_gather_p_init(whole), comm.all_gather_p_init(other)
        comm.all_gather_p_exec(handle, own, async_op=False)
        comm.all_gather_p_exec(moved, own, async_op=False)
        rank.synchronize(BACKEND)
        other.data = torch.zeros_like(other)
        told = str(error_of(lambda: comm.all_gather_p_exec(moved, own, async_op=False)))
        assert "not where" in told, told
        if rank.rank == 1:
            comm.all_gather_p_free(handle)
            rank.say("freed")
            error = error_of(lambda: comm.all_gather_p_exec(handle, own, async_op=False))
            assert "the handle is freed" in str(error), error
        else:
            rank.listen()
            error = error_of(lambda: comm.all_gather_p_exec(handle, own, async_op=False))
            assert "rank 1 has freed" in str(error), error
            assert error.ranks == [1]
        # Nothing has been broken.
        again = comm.all_gather_p_init(whole)
        comm.all_gather_p_exec(again, own, async_op=False)
        _check(rank, whole, _gathered(rank, COUNT, 0))
        assert _straight(comm) == 3
        comm.barrier(async_op=False)
        rank.synchronize(BACKEND)
        del whole, other
    comm.finalize()


@case(world=2)
def stale_handles_are_refused(make: Make) -> None:
    job = make(2).start(_stale)
    assert job.hear(1) == "freed"
    job.say(0)
    job.results()


def _freed(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "freed", hints=HINTS)
    with _outputs(rank, comm, COUNT, many=1) as (whole,):
        handle = comm.all_gather_p_init(whole)
        if rank.rank == 1:
            rank.listen()
        comm.all_gather_p_exec(handle, _own(rank, COUNT, 0), async_op=False)
        comm.all_gather_p_free(handle)
        rank.say("freed")
        _check(rank, whole, _gathered(rank, COUNT, 0))
        comm.barrier(async_op=False)
        rank.synchronize(BACKEND)
        del whole
    comm.finalize()


@case(world=2)
def handles_may_be_freed_before_the_others_call(make: Make) -> None:
    job = make(2).start(_freed)
    assert job.hear(0) == "freed"
    job.say(1)
    assert job.hear(1) == "freed"
    job.results()


def _late(rank: Rank, aborts: bool) -> Any:
    comm = rank.new_comm(BACKEND, "late", hints=HINTS)
    memory = Memory(rank, comm, True)
    handle = comm.all_gather_p_init(_output(rank, memory, COUNT))
    comm.all_gather_p_exec(handle, _own(rank, COUNT, 0), async_op=False)
    rank.synchronize(BACKEND)
    return given_up(
        rank,
        comm,
        lambda limit: comm.all_gather_p_exec(handle, _own(rank, COUNT, 1), True, timeout=limit),
        aborts,
    )


@case(world=2, breaks=True)
def persistent_copies_end_in_time(make: Make) -> None:
    expect_given_up(make, _late)


def _fails(rank: Rank, exchanges: bool) -> None:
    """Rank 0 calls alone. Its own part may get into the outputs, nothing else does."""
    comm = rank.new_comm(BACKEND, "fails", hints=HINTS)
    memory = Memory(rank, comm, True)
    whole, beside = (_output(rank, memory, COUNT) for _ in range(2))
    handle = (comm.all_to_all_p_init if exchanges else comm.all_gather_p_init)(whole)
    sent = _sent(rank, COUNT, 0) if exchanges else _own(rank, COUNT, 0)
    whole.fill_(255)
    beside.fill_(255)
    rank.synchronize(BACKEND)
    if rank.rank == 0:
        call = comm.all_to_all_p_exec if exchanges else comm.all_gather_p_exec
        work = call(handle, sent, async_op=True, timeout=SOON)
        error_of(work.wait_blocking, torchcomms.CommTimeoutError)
        rank.synchronize(BACKEND)
        rank.say("has failed")
    rank.listen()
    part = _part(0, rank.rank if exchanges else 0, COUNT, 0)
    poison = torch.full_like(part, 255)
    found = whole.cpu().clone()  # rank 0's part may be on its way; on stand-ins cpu() is no copy
    assert ((found[:COUNT] == part) | (found[:COUNT] == poison)).all()
    assert torch.equal(found[COUNT:], poison.repeat(rank.size - 1))
    assert torch.equal(beside.cpu(), poison.repeat(rank.size))


@case(world=2, breaks=True)
def persistent_copies_that_fail_write_nothing_else(make: Make) -> None:
    for exchanges in (False, True):
        job = make(2).start(_fails, exchanges)
        assert job.hear(0) == "has failed"
        for r in range(2):
            job.say(r)
        job.results()


def _alone(rank: Rank) -> Any:
    """Nobody else prepares anything."""
    comm = rank.new_comm(BACKEND, "alone", hints=HINTS)
    whole = _output(rank, Memory(rank, comm, True), COUNT)
    if rank.rank == 1:
        rank.listen()
        return [1]
    error = error_of(
        lambda: comm.all_to_all_p_init(whole, timeout=SOON), torchcomms.CommTimeoutError
    )
    rank.say("gave up")
    return error.ranks


@case(world=2, breaks=True)
def who_does_not_prepare_persistent_copies_is_named(make: Make) -> None:
    job = make(2).start(_alone)
    job.hear(0)
    job.say(1)
    assert job.results() == [[1], [1]]


def _dies(rank: Rank, replayed: bool) -> Any:
    """Rank 0 waits for rank 1, eagerly or in a replay, when that dies."""
    comm = rank.new_comm(BACKEND, "dies", hints=HINTS, timeout=timedelta(seconds=60))
    memory = Memory(rank, comm, True)
    handle = comm.all_gather_p_init(_output(rank, memory, COUNT))
    own = _own(rank, COUNT, 0)

    def call() -> None:
        comm.all_gather_p_exec(handle, own, async_op=False)

    call()
    rank.synchronize(BACKEND)
    step = rank.gpu().capture(call) if replayed else call
    if rank.rank == 1:
        rank.listen()
        os.kill(os.getpid(), signal.SIGKILL)
    step()
    rank.say("waits")
    rank.synchronize(BACKEND)  # the kernels are ended
    error = error_of(lambda: comm.barrier(async_op=False).wait_blocking(), torchcomms.PeerLostError)
    return error.ranks


@case(world=2, breaks=True)
def persistent_copies_notice_a_dead_rank(make: Make) -> None:
    for replayed in (False, True):
        job = make(2).start(_dies, replayed)
        assert job.hear(0) == "waits"
        job.say(1)
        outcomes = job.outcomes()
        assert outcomes == [Returned([1]), Died(-signal.SIGKILL)], outcomes


def _disagrees(rank: Rank) -> str:
    comm = rank.new_comm(BACKEND, "disagree", hints=HINTS)
    memory = Memory(rank, comm, True)
    handles = [comm.all_gather_p_init(_output(rank, memory, COUNT)) for _ in range(2)]
    work = comm.all_gather_p_exec(handles[rank.rank], _own(rank, COUNT, 0), async_op=True)
    return str(error_of(work.wait_blocking, torchcomms.MismatchError))


@case(world=2, breaks=True)
def handles_that_differ_are_told(make: Make) -> None:
    for told in make(2).run(_disagrees):
        assert "rank 0" in told, told
        assert "rank 1" in told, told
