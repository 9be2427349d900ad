"""Persistent operations: prepared once, carried out again and again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from harness import Rank, Ranks

import torchcomms

MakeRanks = Callable[[int], Ranks]


def gathers_again_and_again(rank: Rank, backend: str) -> list[list[float]]:
    comm = rank.comm(backend)
    output = torch.full((2 * rank.size,), -1.0)
    handle = comm.all_gather_p_init(output)
    seen = []
    for step in range(3):
        part = torch.full((2,), 10.0 * step + rank.rank)
        comm.all_gather_p_exec(handle, part, async_op=step == 1).wait()
        seen.append(output[::2].tolist())
    comm.all_gather_p_free(handle)
    assert handle.output is None
    return seen


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_it_gathers_again_and_again(ranks: MakeRanks, backend: str) -> None:
    expected = [[10.0 * step + r for r in range(3)] for step in range(3)]
    assert ranks(3).run(gathers_again_and_again, backend) == [expected] * 3


def exchanges_again_and_again(rank: Rank, backend: str, per_host: int, count: int) -> None:
    """Position p of the part that rank a has for rank b in step k: 1000 a + 100 b + 10 k + p % 7."""
    hints = {"ctran::host": f"host{rank.rank // per_host}"} if per_host else {}
    comm = rank.new_comm(backend, f"persistent{per_host}", hints=hints)
    position = (torch.arange(count) % 7).float()

    def part(source: int, target: int, step: int) -> torch.Tensor:
        return position + (1000 * source + 100 * target + 10 * step)

    def sent(step: int) -> torch.Tensor:
        return torch.cat([part(rank.rank, r, step) for r in range(rank.size)])

    def expected(step: int) -> torch.Tensor:
        return torch.cat([part(r, rank.rank, step) for r in range(rank.size)])

    outputs = [torch.full((count * rank.size,), -1.0) for _ in range(2)]
    handles = [comm.all_to_all_p_init(output) for output in outputs]
    for step in range(4):  # one after another
        work = comm.all_to_all_p_exec(handles[0], sent(step), async_op=step % 2 == 1)
        assert work.wait()
        assert torch.equal(outputs[0], expected(step))
    for step in range(0, 6, 2):  # two in flight, each into its own
        works = [comm.all_to_all_p_exec(handles[i], sent(step + i), async_op=True) for i in (0, 1)]
        for i, work in enumerate(works):
            assert work.wait()
            assert torch.equal(outputs[i], expected(step + i))
    for handle in handles:
        comm.all_to_all_p_free(handle)
        assert handle.output is None
    comm.finalize()


@pytest.mark.parametrize(
    ("backend", "per_host", "size"),
    [("ctran", 0, 3), ("ctran", 1, 3), ("ctran", 2, 4), ("gloo", 0, 2)],
)
def test_it_exchanges_again_and_again(
    ranks: MakeRanks, backend: str, per_host: int, size: int
) -> None:
    for count in (0, 3, 50_000):
        ranks(size).run(exchanges_again_and_again, backend, per_host, count)


def is_misused(rank: Rank, kind: str) -> None:
    comm, other = rank.comm(), rank.new_comm("ctran", "other")
    init, execute, free = (getattr(comm, f"{kind}_p_{what}") for what in ("init", "exec", "free"))
    right = 2 if kind == "all_gather" else 4
    for wrong in (torch.ones(3), torch.ones(4, 4).t()):
        with pytest.raises(torchcomms.CommError, match="output"):
            init(wrong)
    handle = init(torch.ones(4))
    with pytest.raises(torchcomms.CommError, match="another communicator"):
        getattr(other, f"{kind}_p_exec")(handle, torch.ones(right), async_op=False)
    with pytest.raises(torchcomms.CommError, match=r"input_size|same size"):
        execute(handle, torch.ones(3), async_op=False)
    free(handle)
    with pytest.raises(torchcomms.CommError, match="freed"):
        execute(handle, torch.ones(right), async_op=False)
    with pytest.raises(torchcomms.CommError, match="freed"):
        free(handle)


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all"])
def test_misuse_is_told(ranks: MakeRanks, kind: str) -> None:
    ranks(2).run(is_misused, kind)
