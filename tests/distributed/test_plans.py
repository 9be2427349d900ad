"""Plans that serve the calls of communicators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import Rank, Ranks
from harness.programs import forks_of_launcher, run_forks

import torchcomms
from torchcomms import ReduceOp, plan

MakeRanks = Callable[[int], Ranks]
EXAMPLE = Path(__file__).parents[2] / "examples" / "plan.py"


def test_the_example_runs(tmp_path: Path) -> None:
    source = f"import runpy; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    ranks = run_forks({"example": forks_of_launcher(source, 3)}, tmp_path)["example"]
    for rank, ended in enumerate(ranks):
        assert ended.code == 0, ended.err
        assert f"[rank {rank}] served by my_ring" in ended.out
    assert (tmp_path / "my_ring.svg").read_text().startswith("<svg")


def is_measured(rank: Rank, hosts: int, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTRAN_TUNING_DIR", str(folder))
        _is_measured(rank, hosts)


def _is_measured(rank: Rank, hosts: int) -> None:
    hints = {"ctran::host": f"host{rank.rank % hosts}"}
    comm = rank.new_comm("ctran", f"measured-{hosts}", hints=hints)
    mine = plan.make("all_reduce.ring", rank.size)

    def alternatives() -> dict[str, float | None]:
        explained = comm.explain("all_reduce", 4096, torch.float32)
        return {one.algorithm: one.measured_us for one in explained.alternatives}

    with mine.register(comm.get_name()):
        assert alternatives()["plan:all_reduce.ring"] is None
        assert comm.explain("all_reduce", 4096).algorithm != "plan:all_reduce.ring"
        for _ in range(5):  # a busy machine takes longer
            comm.tune(2)
            timed = alternatives()
            if timed["plan:all_reduce.ring"] is not None:
                break
        assert timed["plan:all_reduce.ring"] is not None
        fastest = min((us, name) for name, us in timed.items() if us is not None)
        assert comm.explain("all_reduce", 4096, torch.float32).algorithm == fastest[1]
    assert "plan:all_reduce.ring" not in alternatives()
    comm.finalize()


@pytest.mark.parametrize("hosts", [1, 2])
def test_plans_are_tuned_like_other_algorithms(
    ranks: MakeRanks, tmp_path: Path, hosts: int
) -> None:
    ranks(2).run(is_measured, hosts, tmp_path)


# Sums of these depend on the order: who reduces tells by what comes out.
CANCELLING = (1e8, 1.0, -1e8)


def sums(rank: Rank, name: str | None, hosts: int = 1) -> list[float]:
    comm = rank.comm("ctran", hosts)
    tensor = torch.full((48,), CANCELLING[rank.rank])
    if name is None:
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        return [float(value) for value in tensor]
    with plan.make(name, 3).register(comm.get_name(), prefer=True):
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()
    return [float(value) for value in tensor]


def test_the_plan_serves_and_keeps_its_order(ranks: MakeRanks) -> None:
    assert ranks(3).run(sums, None) == [[0.0] * 48] * 3
    assert ranks(3).run(sums, "all_reduce.two_shot_pull") == [[0.0] * 48] * 3
    # Around the ring, the second piece is (-1e8 + 1e8) + 1.
    expected = [0.0] * 16 + [1.0] * 16 + [0.0] * 16
    assert ranks(3).run(sums, "all_reduce.ring") == [expected] * 3
    assert ranks(3).run(sums, "all_reduce.ring", 2) == [expected] * 3
    assert ranks(3).run(sums, None) == [[0.0] * 48] * 3


def every_collective(rank: Rank, names: list[str], hosts: int) -> None:
    comm, size = rank.comm("ctran", hosts), 4
    for name in names:
        with plan.make(name, size, ranks_per_host=2).register(prefer=True):
            for count in (1, 1001, 70_001):
                mine = torch.arange(count, dtype=torch.int32) + 1000 * rank.rank
                everyone = [torch.arange(count, dtype=torch.int32) + 1000 * r for r in range(size)]
                kind = name.split(".")[0]
                if kind == "all_reduce":
                    comm.all_reduce(mine, ReduceOp.SUM, async_op=False)
                    got, wanted = mine, torch.stack(everyone).sum(0).to(torch.int32)
                elif kind == "all_gather":
                    got = torch.zeros(size * count, dtype=torch.int32)
                    comm.all_gather_single(got, mine, async_op=False)
                    wanted = torch.cat(everyone)
                elif kind == "reduce_scatter":
                    got = torch.zeros(count, dtype=torch.int32)
                    comm.reduce_scatter_single(
                        got, torch.cat([mine] * size), ReduceOp.SUM, async_op=False
                    )
                    wanted = torch.stack(everyone).sum(0).to(torch.int32)
                elif kind == "all_to_all":
                    got = torch.zeros(size * count, dtype=torch.int32)
                    blocks = torch.cat([mine + block for block in range(size)])
                    comm.all_to_all_single(got, blocks, async_op=False)
                    wanted = torch.cat([block + rank.rank for block in everyone])
                else:
                    for root in (0, 3):
                        got = mine.clone()
                        comm.broadcast(got, root, async_op=False)
                        assert torch.equal(got, everyone[root]), (name, count, root)
                    continue
                assert torch.equal(got, wanted), (name, count)


@pytest.mark.parametrize("hosts", [1, 2])
def test_every_plan_of_the_library_serves(ranks: MakeRanks, hosts: int) -> None:
    ranks(4).run(every_collective, list(plan.library()), hosts)


def disagrees(rank: Rank) -> str:
    comm = rank.comm("ctran")
    names = ("all_reduce.ring", "all_reduce.one_shot")
    with (
        plan.make(names[rank.rank], 2).register(prefer=True),
        pytest.raises(torchcomms.MismatchError) as raised,
    ):
        comm.all_reduce(torch.ones(10), ReduceOp.SUM, async_op=False)
    return str(raised.value)


def test_ranks_with_other_plans_are_told(fresh_ranks: Any) -> None:
    for message in fresh_ranks(2).run(disagrees):
        assert "by another plan" in message
