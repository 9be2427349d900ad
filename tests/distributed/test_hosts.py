"""Ranks that count as on several hosts: the torch face does not know the difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks
from harness.ports import free_port
from harness.programs import AS_COMMAND, Fork, run_forks

import torchcomms
from torchcomms import ReduceOp


def works_across_hosts(rank: Rank) -> None:
    host = f"host{rank.rank // 2}"
    comm = rank.new_comm("ctran", "hosts", hints={"ctran::host": host})
    total = sum(range(1, rank.size + 1))
    for count in (1, 300_000):
        for async_op in (False, True):
            tensor = torch.full((count,), rank.rank + 1.0)
            work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=async_op)
            if async_op:
                work.wait()
            assert (tensor == total).all()
    gathered = [torch.zeros(7) for _ in range(rank.size)]
    comm.all_gather(gathered, torch.full((7,), float(rank.rank)), async_op=False)
    assert all((part == r).all() for r, part in enumerate(gathered))
    after, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    sent = comm.send(torch.full((200_000,), float(rank.rank)), after, async_op=True)
    got = torch.zeros(200_000)
    comm.recv(got, before, async_op=False)
    sent.wait()
    assert (got == before).all()
    # Whoever shares a host finds that out, and moves data through shared memory.
    first = rank.rank // 2 * 2
    local = comm.split([first, first + 1], "local")
    assert local is not None
    tensor = torch.ones(5)
    local.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    assert (tensor == 2).all()
    local.finalize()
    comm.finalize()


def test_operations_across_hosts(ranks: Callable[[int], Ranks]) -> None:
    ranks(4).run(works_across_hosts)


def explains_and_tunes_across_hosts(rank: Rank, directory: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTRAN_TUNING_DIR", directory)
        _explain_and_tune(rank)


def _explain_and_tune(rank: Rank) -> None:
    comm = rank.new_comm("ctran", "explained", hints={"ctran::host": f"host{rank.rank // 2}"})
    told = comm.explain("all_reduce", 1 << 20, torch.float32)
    assert told.algorithm == "group"
    assert "cost model" in told.why
    names = [one.algorithm for one in told.alternatives]
    assert names[0] == "group"
    assert {"direct", "two_phase", "ring", "halving_doubling", "double_binary_tree"} < set(names)
    assert all(one.predicted_us > 0 and one.measured_us is None for one in told.alternatives)
    # Sums of partial sums are too short for it, but for those of the hosts' ranks that are named.
    whys = {
        one.algorithm: one.why_not for one in comm.explain("reduce", 8, torch.half).alternatives
    }
    assert "few digits" in whys["group"]
    assert whys["direct"] == ""
    path = comm.tune(0.5)
    assert path.name.endswith("-2x2.json")
    told = comm.explain("broadcast", 256)
    assert "tuned" in told.why
    measured = {one.algorithm: one.measured_us for one in told.alternatives}
    assert measured[told.algorithm] == min(us for us in measured.values() if us is not None)
    tensor = torch.full((64,), float(rank.rank))
    comm.broadcast(tensor, 3, async_op=False)
    assert (tensor == 3).all()
    comm.finalize()


def test_explain_and_tune_across_hosts(ranks: Callable[[int], Ranks], tmp_path: Path) -> None:
    ranks(4).run(explains_and_tunes_across_hosts, str(tmp_path))
    assert [path.name[-9:] for path in tmp_path.iterdir()] == ["-2x2.json"]


def test_tune_as_ranks_of_a_launcher(tmp_path: Path) -> None:
    tuned = tmp_path / "tuned"
    launched = {"CTRAN_TUNING_DIR": str(tuned), "WORLD_SIZE": "2"}
    launched |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    tune, explain = ["tune", "--seconds", "0.2"], ["explain", "broadcast", "256", "-n1"]
    jobs = {
        "tune": [
            Fork(AS_COMMAND, tune, {**launched, "RANK": str(rank), "CTRAN_HOST": f"host{rank}"})
            for rank in range(2)
        ],
        "explain": [Fork(AS_COMMAND, [*explain, "--hosts=2"], launched)],
    }
    ended = run_forks(jobs, tmp_path)
    assert [rank.code for rank in ended["tune"]] == [0, 0], ended
    assert ended["tune"][1].out == ""
    assert ended["tune"][0].out.strip().endswith("-2x1.json")
    assert ended["explain"][0].code == 0, ended
    assert "when this machine was tuned" in ended["explain"][0].out


def tells_mismatch_across_hosts(rank: Rank) -> None:
    comm = rank.new_comm("ctran", "mismatch", hints={"ctran::host": f"host{rank.rank}"})
    with pytest.raises(torchcomms.CommError, match="differs"):
        comm.all_reduce(torch.ones(3 + rank.rank // 2), ReduceOp.SUM, async_op=False)


def test_mismatch_across_hosts(ranks: Callable[[int], Ranks]) -> None:
    ranks(3).run(tells_mismatch_across_hosts)
