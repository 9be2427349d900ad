"""All-gather, all-to-all and broadcast by copy engines: what they give, and how they end."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from harness import Rank
from harness.failing import error_of

import torchcomms
from gpu_ranks import BACKEND, Make, case

Issue = Callable[[timedelta], Any]  # with a timeout; returns a work

SOON = timedelta(seconds=1)
HINTS = {"ctran::algorithm": "copy_engine"}
SLOT = 1 << 16
# Bytes of a block: one, odd, more chunks than slots.
COUNTS = (1, 1001, SLOT, 5 * SLOT + 3)


def _made(rank: Rank, name: str, **options: Any) -> torchcomms.TorchComm:
    os.environ["CTRAN_GPU_COPY_BYTES"] = str(SLOT)
    comm = rank.new_comm(BACKEND, name, hints=HINTS, **options)
    del os.environ["CTRAN_GPU_COPY_BYTES"]
    told = comm.explain("all_gather", 1 << 20)
    assert (told.algorithm, told.why) == ("copy_engine", "the hint ctran::algorithm")
    assert comm.explain("all_reduce", 1 << 20).algorithm == "lines"
    return comm


def _bytes(rank: int, count: int, round_: int) -> torch.Tensor:
    return (torch.arange(count) * 7 + 31 * rank + round_).remainder_(251).to(torch.uint8)


def _check(rank: Rank, found: torch.Tensor, wanted: torch.Tensor) -> None:
    rank.synchronize(BACKEND)
    assert torch.equal(found.cpu(), wanted)


def _exact(rank: Rank) -> None:
    comm = _made(rank, "exact")
    device = rank.device(BACKEND)
    for count in COUNTS:
        for turn in range(3):
            own = _bytes(rank.rank, count, turn).to(device)
            everyone = [_bytes(r, count, turn) for r in range(rank.size)]
            whole = torch.zeros(rank.size * count, dtype=torch.uint8, device=device)
            comm.all_gather_single(whole, own, async_op=turn == 0).wait()
            _check(rank, whole, torch.cat(everyone))
            place = whole[rank.rank * count : (rank.rank + 1) * count]
            whole.fill_(255)
            place.copy_(own)
            rank.synchronize(BACKEND)
            comm.all_gather_single(whole, place, async_op=False)  # in place
            _check(rank, whole, torch.cat(everyone))
            apart = [torch.zeros(count, dtype=torch.uint8, device=device) for _ in everyone]
            comm.all_gather(apart, own, async_op=False)
            for got, wanted in zip(apart, everyone, strict=True):
                _check(rank, got, wanted)
            # Block r of rank s is s's bytes of round r.
            sent = torch.cat([_bytes(rank.rank, count, r) for r in range(rank.size)]).to(device)
            wanted = torch.cat([_bytes(s, count, rank.rank) for s in range(rank.size)])
            got = torch.zeros_like(sent)
            comm.all_to_all_single(got, sent, async_op=turn == 1).wait()
            _check(rank, got, wanted)
            comm.all_to_all_single(sent, sent, async_op=False)  # in place
            _check(rank, sent, wanted)
            for root in range(rank.size):
                told = _bytes(root, count, turn)
                heard = told.to(device) if rank.rank == root else torch.zeros_like(own)
                comm.broadcast(heard, root, async_op=turn == 0).wait()
                _check(rank, heard, told)
    comm.finalize()


@case(world=2)
def copy_engines_gather_and_exchange(make: Make) -> None:
    make(2).run(_exact)


@case(world=4)
def copy_engines_of_four(make: Make) -> None:
    make(4).run(_exact)


def _captured(rank: Rank) -> None:
    """Set up within the capture, then replayed, with kernels and eager copies between."""
    comm = _made(rank, "captured")
    device = rank.device(BACKEND)
    count = 3 * SLOT + 5
    own = torch.zeros(count, dtype=torch.uint8, device=device)
    whole = torch.zeros(rank.size * count, dtype=torch.uint8, device=device)
    back = torch.zeros_like(whole)
    told = torch.zeros_like(own)

    def step() -> None:
        comm.broadcast(told, 1, async_op=True)
        comm.all_gather_single(whole, own, async_op=True)
        comm.all_to_all_single(back, whole, async_op=True).wait()
        comm.barrier(async_op=False)

    replay = rank.gpu().capture(step)
    for number in range(20):
        own.copy_(_bytes(rank.rank, count, number))
        told.copy_(_bytes(rank.rank, count, number + 1))
        back.fill_(255)
        rank.synchronize(BACKEND)
        replay()
        _check(rank, whole, torch.cat([_bytes(r, count, number) for r in range(rank.size)]))
        _check(rank, told, _bytes(1, count, number + 1))
        # Everybody has the same: rank s sends what rank r has gathered from r.
        _check(rank, back, torch.cat([_bytes(rank.rank, count, number)] * rank.size))
        if number % 5 == 0:
            other = torch.zeros_like(whole)
            comm.all_gather_single(other, own, async_op=False)
            _check(rank, other, whole.cpu())
    comm.finalize()


@case(world=2)
def copy_engines_are_captured(make: Make) -> None:
    make(2).run(_captured)


def given_up(rank: Rank, comm: torchcomms.TorchComm, start: Issue, aborts: bool) -> Any:
    """Whom rank 0 names when rank 1 does not come, or aborts while rank 0 waits."""
    if rank.rank == 1:
        rank.listen()
        if aborts:
            comm.abort()
        return [1]
    kind = torchcomms.AbortedError if aborts else torchcomms.CommTimeoutError
    work = start(timedelta(seconds=30) if aborts else SOON)
    if aborts:
        rank.say("waiting")
    error = error_of(work.wait_blocking, kind)
    rank.synchronize(BACKEND)  # the streams are free again
    if not aborts:
        rank.say("gave up")
    return error.ranks


def expect_given_up(make: Make, late: Callable[[Rank, bool], Any]) -> None:
    """`late` returns what `given_up` does."""
    for aborts in (False, True):
        job = make(2).start(late, aborts)
        job.hear(0)
        job.say(1)
        assert job.results() == [[1], [1]], aborts


def _late(rank: Rank, aborts: bool) -> Any:
    comm = _made(rank, "late")
    device = rank.device(BACKEND)
    own = torch.ones(4 * SLOT, dtype=torch.uint8, device=device)
    whole = torch.zeros(rank.size * 4 * SLOT, dtype=torch.uint8, device=device)
    comm.all_gather_single(whole, own, async_op=False)
    rank.synchronize(BACKEND)
    return given_up(
        rank, comm, lambda limit: comm.all_gather_single(whole, own, True, timeout=limit), aborts
    )


@case(world=2, breaks=True)
def copy_engines_end_in_time(make: Make) -> None:
    expect_given_up(make, _late)
