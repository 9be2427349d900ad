"""The harness notices what it is there to notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import torch
from harness import Rank, Ranks, RanksFailed
from harness.data import Guarded, same_bits, values
from harness.failing import until
from harness.matrix import DTYPES, Case, _equality, all_cases, pairwise
from harness.operations import OPERATIONS, Call
from harness.ranks import state_of

import torchcomms

MakeRanks = Callable[[int], Ranks]


def _problems_without_an_operation(case: Case) -> list[str]:
    """Of all ranks, when the backend does nothing."""
    problems = []
    for rank in range(case.world):
        options = torchcomms.CommOptions()
        options.rank, options.size = rank, case.world
        comm = torchcomms.new_comm("fake", torch.device("cpu"), options=options)
        call = Call(rank, case.world, case.arguments(), case.backend)
        OPERATIONS[case.operation].prepare(comm, call)
        call.issue(case.async_op)
        problems += call.problems(_equality(case))
    return problems


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_does_nothing_is_noticed(operation: str) -> None:
    cases = list(all_cases("fake", operation=operation, size="1009", world=3, async_op=False))
    assert cases
    for case in cases:
        assert _problems_without_an_operation(case), case


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_is_noticed(dtype: str) -> None:
    content = values(1, 9, DTYPES[dtype])
    for bit in range(8):
        changed = content.clone()
        changed.view(torch.uint8)[-1] ^= 1 << bit
        assert not same_bits(changed, content)
    buffer = Guarded(9, DTYPES[dtype])
    buffer.tensor.copy_(content)
    assert buffer.is_intact()
    room = buffer.tensor.untyped_storage()
    for at in (0, len(room) - 1):
        room[at] ^= 1
        assert not buffer.is_intact()
        room[at] ^= 1


def test_data_differ_by_rank_and_position() -> None:
    for name in set(DTYPES) - {"bool"}:
        seen = [values(rank, 500, DTYPES[name], salt) for rank in range(8) for salt in range(3)]
        for i, one in enumerate(seen):
            assert not any(same_bits(one, other) for other in seen[:i]), name
            assert not same_bits(one[1:], one[:-1])


def test_every_case_of_the_covering_set_has_a_name_of_its_own() -> None:
    cases = pairwise("ctran")
    assert len({str(case) for case in cases}) == len(cases)


def raises_on_one(rank: Rank) -> None:
    if rank.rank == 1:
        raise LookupError("on purpose")


def test_an_exception_is_reported_with_its_traceback(fresh_ranks: MakeRanks) -> None:
    with pytest.raises(RanksFailed, match=r"rank 1 (?s:.*)raises_on_one(?s:.*)on purpose"):
        fresh_ranks(2).run(raises_on_one)


def dies_on_one(rank: Rank) -> None:
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)


def test_a_death_is_reported_with_its_stack(fresh_ranks: MakeRanks) -> None:
    with pytest.raises(RanksFailed, match=r"Died\(code=-11\)(?s:.*)dies_on_one"):
        fresh_ranks(2).run(dies_on_one)


def hangs_on_one(rank: Rank) -> None:
    if rank.rank == 1:
        signal.pause()


def test_a_hang_is_ended_and_reported_with_its_stack(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(hangs_on_one)
    with pytest.raises(RanksFailed, match=r"rank 1 (?s:.*)still running(?s:.*)hangs_on_one"):
        job.results(guard=1.0)


def own_pid(rank: Rank) -> int:
    return os.getpid()


def forks(rank: Rank) -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


def _is_running(pid: int) -> bool:
    return state_of(pid) not in "ZX"


def test_processes_stay_and_are_replaced_when_one_is_gone(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(2)
    pool = ranks.pool
    first = ranks.run(own_pid)
    assert pool.ranks(2).run(own_pid) == first
    assert pool.ranks(3).run(own_pid)[:2] == first
    child = pool.ranks(1).run(forks)[0]
    assert _is_running(child)
    os.kill(first[1], signal.SIGKILL)
    until(lambda: not _is_running(first[1]), "it is dead")
    second = pool.ranks(2).run(own_pid)
    assert not set(first) & set(second)
    until(lambda: not any(_is_running(pid) for pid in [*first, child]), "all are gone")
