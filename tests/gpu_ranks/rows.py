"""all_to_all_v whose split sizes stand in device memory: the host never learns them."""

from __future__ import annotations

from typing import Any

import torch
from harness import Rank
from harness.failing import error_of
from harness.row_exchanges import listed
from torch import Tensor

import torchcomms
from gpu_ranks import BACKEND, Make, case

POISON = -7.0
# Elements of a row, and the most rows that a rank sends another: none or a few, and many steps.
SHAPES = ((3, 5), (1000, 40), (4096, 150))


def _counts(size: int, seed: int, most: int) -> Tensor:
    """[from][to] rows."""
    random = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, most + 1, (size, size), generator=random)
    if seed % 3 == 0:
        counts[seed % size] = 0  # sends nothing
    return counts


def _sent(sender: int, rows: int, row: int, seed: int, dtype: torch.dtype) -> Tensor:
    place = torch.arange(rows * row).reshape(rows, row)
    return ((place * 7 + sender * 31 + seed) % 120).to(dtype)


class Exchange:
    """One rank's tensors, of fixed addresses, and what they have to become."""

    def __init__(self, rank: Rank, backend: str, row: int, most: int, dtype: torch.dtype) -> None:
        self.rank, self.row, self.most, self.dtype = rank, row, most, dtype
        device = rank.device(backend)
        room = rank.size * most + 1
        self.input = torch.zeros(room, row, dtype=dtype, device=device)
        self.output = torch.zeros(room, row, dtype=dtype, device=device)
        self.sends = torch.zeros(rank.size, dtype=torch.int64, device=device)
        self.receives = torch.zeros(rank.size, dtype=torch.int64, device=device)
        self.expected = torch.zeros(0)

    def fill(self, seed: int, learns: bool) -> None:
        rank = self.rank
        self.counts = _counts(rank.size, seed, self.most)
        parts = []
        for sender in range(rank.size):
            rows = _sent(sender, int(self.counts[sender].sum()), self.row, seed, self.dtype)
            parts.append(rows.split(self.counts[sender].tolist())[rank.rank])
            if sender == rank.rank:
                self.input[: len(rows)].copy_(rows)
        self.expected = torch.cat(parts)
        self.sends.copy_(self.counts[rank.rank])
        self.receives.copy_(torch.full((rank.size,), -1) if learns else self.counts[:, rank.rank])
        self.output.fill_(POISON)

    def check(self) -> None:
        found = self.output.cpu()
        assert torch.equal(found[: len(self.expected)], self.expected)
        assert (found[len(self.expected) :] == POISON).all(), "rows too many"
        assert torch.equal(self.receives.cpu(), self.counts[:, self.rank.rank])


def _exchanges(rank: Rank, backend: str) -> None:
    comm = rank.new_comm(backend, f"rows of {backend}")
    for seed, (row, most) in enumerate(SHAPES):
        for dtype in (torch.float32, torch.bfloat16, torch.int8):
            one = Exchange(rank, backend, row, most, dtype)
            arguments = (one.output, one.input, one.receives, one.sends)
            for async_op in (False, True):
                one.fill(seed, learns=True)
                rank.synchronize(backend)
                comm.all_to_all_v_dynamic(*arguments, async_op).wait()
                rank.synchronize(backend)
                one.check()
                one.fill(seed + 10, learns=False)
                rank.synchronize(backend)
                comm.device_alltoallv_single(*arguments, async_op).wait()
                rank.synchronize(backend)
                one.check()
    comm.finalize()


@case(world=2)
def rows_go_where_the_device_says(make: Make) -> None:
    make(2).run(_exchanges, BACKEND)
    make(2).run(_exchanges, "ncclx")


@case(world=4)
def rows_of_four_go_where_the_device_says(make: Make) -> None:
    make(4).run(_exchanges, BACKEND)


def _replays(rank: Rank, replays: int) -> None:
    """The sizes change between replays, by what other kernels have written."""
    comm = rank.new_comm(BACKEND, "rows replayed")
    small, large = (
        Exchange(rank, BACKEND, row, most, torch.float32) for row, most in (SHAPES[0], SHAPES[2])
    )
    total = torch.zeros(1, device=rank.device(BACKEND))

    def step() -> None:
        for one in (small, large):
            comm.all_to_all_v_dynamic(one.output, one.input, one.receives, one.sends, True).wait()
        comm.all_reduce(total, torchcomms.ReduceOp.SUM, async_op=False)

    for one in (small, large):
        one.fill(0, learns=True)
    rank.synchronize(BACKEND)
    step()
    rank.synchronize(BACKEND)
    replay = rank.gpu().capture(step)
    for number in range(replays):
        small.fill(number, learns=True)
        large.fill(number + 1000, learns=True)
        total.fill_(1.0)
        rank.synchronize(BACKEND)
        replay()
        rank.synchronize(BACKEND)
        small.check()
        large.check()
        assert total.item() == rank.size
    comm.finalize()


@case(world=2)
def rows_are_replayed_with_other_sizes(make: Make) -> None:
    make(2).run(_replays, 30)


def _refused(rank: Rank, wrong: str, captured: bool) -> tuple[str, list[int]]:
    """Rank 1 sends too much: nobody writes, everybody is told the same."""
    comm = rank.new_comm(BACKEND, "refused")
    one = Exchange(rank, BACKEND, 1000, 40, torch.float32)
    one.fill(1, learns=False)
    arguments: Any = (one.output, one.input, one.receives, one.sends)
    rank.synchronize(BACKEND)

    def exchange() -> Any:
        if wrong == "expected":
            return comm.device_alltoallv_single(*arguments, async_op=True)
        return comm.all_to_all_v_dynamic(*arguments, async_op=True)

    replay = rank.gpu().capture(exchange) if captured else None
    if wrong == "room":
        one.counts[1, 0] = 41
        one.counts[0, 0] = 41
    elif wrong == "expected":
        one.counts[1, 0] += 1
    else:
        one.counts[1, 0] = -3
    one.sends.copy_(one.counts[rank.rank])
    rank.synchronize(BACKEND)
    if replay is not None:
        replay()
        rank.synchronize(BACKEND)
        error = error_of(lambda: comm.barrier(async_op=False), torchcomms.CommError)
    else:
        error = error_of(exchange().wait_blocking, torchcomms.CommError)
    rank.synchronize(BACKEND)
    assert (one.output.cpu() == POISON).all()
    again = error_of(lambda: comm.barrier(async_op=False), torchcomms.CommError)
    assert again.ranks == error.ranks
    return str(error), error.ranks


@case(world=2, breaks=True)
def rows_without_room_are_refused(make: Make) -> None:
    for captured in (False, True):
        told = make(2).run(_refused, "room", captured)
        for text, ranks in told:
            assert "rank 1 sends rank 0 41 rows, which has room for 40 more" in text, text
            assert ranks == [1, 0]


@case(world=2, breaks=True)
def rows_that_make_no_sense_are_refused(make: Make) -> None:
    for text, ranks in make(2).run(_refused, "expected", False):
        assert "which expects" in text, text
        assert ranks == [1, 0]
    for text, ranks in make(2).run(_refused, "negative", False):
        assert "rank 1 sends rank 0 -3 rows, but its input has" in text, text
        assert ranks == [1]


def _persistent(rank: Rank, backend: str) -> None:
    """What is initialised once is executed again and again, and captured."""
    comm = rank.new_comm(backend, "persistent")
    device = rank.device(backend)
    for count in (100, 300_000):
        whole = torch.zeros(rank.size * count, device=device)
        turned = torch.zeros(rank.size * count, device=device)
        gather, exchange = comm.all_gather_p_init(whole), comm.all_to_all_p_init(turned)
        part = torch.zeros(count, device=device)

        def step(gather: Any = gather, exchange: Any = exchange, part: Tensor = part) -> None:
            comm.all_gather_p_exec(gather, part, async_op=False)
            comm.all_to_all_p_exec(exchange, gather.output, async_op=True).wait()

        def check(number: int, whole: Tensor = whole, turned: Tensor = turned) -> None:
            gathered, exchanged = whole.cpu().chunk(rank.size), turned.cpu().chunk(rank.size)
            for r in range(rank.size):
                assert (gathered[r] == number + r).all()
                assert (exchanged[r] == number + rank.rank).all()

        for number in range(3):
            part.fill_(float(number + rank.rank))
            rank.synchronize(backend)
            step()
            rank.synchronize(backend)
            check(number)
        replay = rank.gpu().capture(step)
        for number in range(5):
            part.fill_(float(10 * number + rank.rank))
            rank.synchronize(backend)
            replay()
            rank.synchronize(backend)
            check(10 * number)
        comm.all_gather_p_free(gather)
        comm.all_to_all_p_free(exchange)
        freed = str(error_of(lambda step=step: step(), torchcomms.CommError))
        assert "freed" in freed, freed
    comm.finalize()


@case(world=2)
def persistent_operations_are_executed_again(make: Make) -> None:
    make(2).run(_persistent, BACKEND)
    make(2).run(_persistent, "ncclx")


def _listed(rank: Rank, backend: str) -> None:
    """What is listed goes through the host's memory."""
    comm = rank.new_comm(backend, f"listed on {backend}")
    for seed, most in enumerate((0, 3, 40, 400)):
        listed(comm, seed, most, async_op=seed % 2 == 1)
    # Numbers that an operation has written which nobody has waited for.
    device = rank.device(backend)
    counts = torch.zeros(rank.size, dtype=torch.int64, device=device)
    told = torch.ones(rank.size, dtype=torch.int64, device=device)
    rank.synchronize(backend)
    comm.all_to_all_single(counts, told, async_op=True)
    rows = torch.full((rank.size, 3), float(rank.rank), device=device)
    came, sizes = torch.full_like(rows, POISON), torch.zeros_like(told)
    indices = torch.arange(rank.size, device=device)
    comm.all_to_all_v_dedup(came, rows, sizes, indices, counts, async_op=False)
    assert came[:, 0].tolist() == [float(r) for r in range(rank.size)]
    assert sizes.tolist() == [1] * rank.size
    # An index that does not exist is refused, and nothing is broken.
    refusal = str(
        error_of(
            lambda: comm.all_to_all_v_dedup(came, rows, sizes, indices + rank.size, counts, False)
        )
    )
    assert "index" in refusal, refusal
    # Not in a capture.
    refused: list[str] = []

    def step() -> None:
        call = lambda: comm.all_to_all_v_dedup(came, rows, sizes, indices, counts, False)  # noqa: E731
        refused.append(str(error_of(call)))
        comm.barrier(async_op=False)

    replay = rank.gpu().capture(step)
    assert "cannot be captured" in refused[0], refused
    replay()
    rank.synchronize(backend)
    comm.finalize()


@case(world=2)
def listed_rows_go_through_the_host(make: Make) -> None:
    make(2).run(_listed, BACKEND)
    make(2).run(_listed, "ncclx")


@case(world=4)
def listed_rows_of_four_go_through_the_host(make: Make) -> None:
    make(4).run(_listed, BACKEND)
