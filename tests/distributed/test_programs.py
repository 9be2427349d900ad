"""Programs of mscclpp that serve the calls of communicators."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks

import mscclpp
from torchcomms import ReduceOp, TorchComm

MakeRanks = Callable[[int], Ranks]
PROGRAMS = Path(__file__).parents[1] / "mscclpp" / "programs"
COUNTS = (1, 7, 1000, 70_001)


def compiled(name: str, **settings: object) -> mscclpp.DslAlgorithm:
    return mscclpp.compile(runpy.run_path(str(PROGRAMS / f"{name}.py"))["program"], **settings)


def all_reduces(rank: Rank, name: str, settings: dict[str, object], hosts: int) -> None:
    comm = rank.comm("ctran", hosts)
    ranks = {} if name == "all_reduce_packets" else {"ranks": rank.size}
    algorithm = compiled(name, **ranks, **settings)
    served = f"plan:{algorithm.name}"
    with algorithm.register(comm.get_name(), prefer=True):
        for count in COUNTS:
            for kind, reduction in ((torch.int32, ReduceOp.SUM), (torch.float32, ReduceOp.MAX)):
                everyone = [torch.arange(count).to(kind) * (r + 1) - r for r in range(rank.size)]
                mine = everyone[rank.rank].clone()
                for _ in range(3):
                    mine.copy_(everyone[rank.rank])
                    comm.all_reduce(mine, reduction, async_op=False)
                stack = torch.stack(everyone)
                wanted = stack.sum(0).to(kind) if reduction == ReduceOp.SUM else stack.amax(0)
                assert torch.equal(mine, wanted), (count, kind)
        assert comm.explain("all_reduce", 4096, torch.float32).algorithm == served
    assert comm.explain("all_reduce", 4096, torch.float32).algorithm != served


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "name", ["all_reduce_two_shot", "all_reduce_switch", "all_reduce_one_shot"]
)
@pytest.mark.parametrize("settings", [{}, {"instances": 2}], ids=["one", "two"])
def test_all_reduces_serve(
    ranks: MakeRanks, size: int, name: str, settings: dict[str, object]
) -> None:
    ranks(size).run(all_reduces, name, settings, 1)


def test_packets_serve(ranks: MakeRanks) -> None:
    ranks(2).run(all_reduces, "all_reduce_packets", {}, 1)
    ranks(4).run(all_reduces, "all_reduce_exchange", {}, 1)


def test_a_program_that_is_right_with_puts_serves_between_hosts(ranks: MakeRanks) -> None:
    ranks(4).run(all_reduces, "all_reduce_two_shot", {}, 2)


def others(rank: Rank, gather: str) -> None:
    comm, size = rank.comm("ctran"), rank.size
    with (
        compiled("all_to_all_group", ranks=size).register(prefer=True),
        compiled(gather, ranks=size).register(prefer=True),
    ):
        for count in COUNTS:
            mine = torch.arange(size * count) + 1000 * rank.rank
            got = torch.zeros_like(mine)
            comm.all_to_all_single(got, mine, async_op=False)
            blocks = [torch.arange(size * count) + 1000 * r for r in range(size)]
            part = slice(rank.rank * count, (rank.rank + 1) * count)
            assert torch.equal(got, torch.cat([block[part] for block in blocks])), count
            comm.all_gather_single(got, mine[part], async_op=False)
            own = [blocks[r][r * count : (r + 1) * count] for r in range(size)]
            assert torch.equal(got, torch.cat(own)), count
            total = torch.zeros(count, dtype=mine.dtype)
            comm.reduce_scatter_single(total, mine, ReduceOp.SUM, async_op=False)
            assert torch.equal(total, torch.stack(blocks).sum(0)[part]), count


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("gather", ["all_gather_port", "all_gather_semaphores"])
def test_groups_ports_loops_and_semaphores_serve(ranks: MakeRanks, size: int, gather: str) -> None:
    ranks(size).run(others, gather)


def served(comm: TorchComm, size: int) -> bool:
    return comm.explain("all_reduce", size, torch.float32).algorithm == "plan:two_shot"


def in_range(rank: Rank) -> list[bool]:
    comm = rank.comm("ctran")
    algorithm = compiled("all_reduce_two_shot", ranks=2)
    algorithm.set_message_size_range(1024, 4096)
    with algorithm.register(comm.get_name(), prefer=True):
        sizes = (512, 1024, 4096, 8192)
        return [served(comm, size) for size in sizes]


def test_messages_of_other_sizes_are_served_by_others(ranks: MakeRanks) -> None:
    assert ranks(2).run(in_range) == [[False, True, True, False]] * 2
