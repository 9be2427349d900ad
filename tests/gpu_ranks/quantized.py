"""reduce_scatter_quantized: fp32 in and out, bf16 on the wire, rounded at random."""

from __future__ import annotations

import math

import torch
from harness import Rank
from harness.failing import error_of
from torch import Tensor

import torchcomms
from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp, TorchComm

# One element, one flow, all flows; none of them a multiple of what a thread takes.
COUNTS = (1, 12_345, 700_003)
STEP = 2.0**-7  # between one bf16 and the next, relative


def _seed(rank: Rank, backend: str, value: int) -> Tensor:
    return torch.tensor([value], device=rank.device(backend))


def _inputs(rank: Rank, count: int) -> list[Tensor]:
    """Of all ranks."""
    inputs = []
    for r in range(rank.size):
        random = torch.Generator().manual_seed(r + 1)
        inputs.append(torch.randn(rank.size * count, generator=random) * 100)
    return inputs


def _reduced(
    rank: Rank, comm: TorchComm, given: Tensor, seed: Tensor | None, op: ReduceOp, backend: str
) -> Tensor:
    device = rank.device(backend)
    output = torch.full((given.numel() // rank.size,), math.nan, device=device)
    on_device = given.to(device)
    rank.synchronize(backend)
    seeds = () if seed is None else (seed,)
    comm.reduce_scatter_quantized(output, on_device, op, *seeds, async_op=seed is None).wait()
    rank.synchronize(backend)
    return output.cpu()


def near_and_repeat(rank: Rank, comm: TorchComm, backend: str, count: int) -> None:
    inputs = _inputs(rank, count)
    own = [whole.chunk(rank.size)[rank.rank] for whole in inputs]
    sent = [part for r, part in enumerate(own) if r != rank.rank]
    seed = _seed(rank, backend, count)
    for op, divisor in ((ReduceOp.SUM, 1), (ReduceOp.AVG, rank.size)):
        found = _reduced(rank, comm, inputs[rank.rank], seed, op, backend)
        limit = (sum(part.abs() for part in sent) * STEP + 1e-3) / divisor
        assert ((found - sum(own) / divisor).abs() <= limit).all()
        again = _reduced(rank, comm, inputs[rank.rank], seed, op, backend)
        assert torch.equal(found, again), "the same seed, other bits"
    found = _reduced(rank, comm, inputs[rank.rank], seed, ReduceOp.SUM, backend)
    other = _reduced(rank, comm, inputs[rank.rank], seed + 1, ReduceOp.SUM, backend)
    assert count == 1 or not torch.equal(found, other), "another seed, the same bits"
    # What bf16 holds arrives as it is.
    exact = torch.arange(rank.size * count).remainder(100).float()
    found = _reduced(rank, comm, exact - rank.rank, seed, ReduceOp.SUM, backend)
    total = exact * rank.size - rank.size * (rank.size - 1) / 2
    assert torch.equal(found, total.chunk(rank.size)[rank.rank])


def _near(rank: Rank, backend: str) -> None:
    comm = rank.new_comm(backend, f"near {backend}")
    for count in COUNTS:
        near_and_repeat(rank, comm, backend, count)
    # Drawn from torch's generator.
    given = _inputs(rank, 1000)[rank.rank]
    drawn = []
    for number in (3, 3, 4):
        torch.manual_seed(number + rank.rank)
        drawn.append(_reduced(rank, comm, given, None, ReduceOp.SUM, backend))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    comm.finalize()


@case(world=2)
def quantized_sums_are_near_and_repeat(make: Make) -> None:
    make(2).run(_near, BACKEND)
    make(2).run(_near, "ncclx")


@case(world=4)
def quantized_sums_of_four_are_near_and_repeat(make: Make) -> None:
    make(4).run(_near, BACKEND)


def _unbiased(rank: Rank) -> None:
    """Numbers between two of bf16: how many are rounded up is what their distance says."""
    comm = rank.comm(BACKEND)
    count = 1 << 18
    for value in (1.0, 1.0 + STEP / 4, -3.0 - STEP / 2, 1e-3, -1.7e38, 2.0**-133):
        given = torch.full((rank.size * count,), value)
        found = _reduced(
            rank, comm, given, _seed(rank, BACKEND, 17 + rank.rank), ReduceOp.SUM, BACKEND
        )
        errors = found.double() - given[:count].double() * rank.size
        low = given[:1].view(torch.int32) & -65536
        gap = abs((low + 65536).view(torch.float32) - low.view(torch.float32)).item()
        others = rank.size - 1
        assert errors.abs().max() <= others * gap
        # Each error has a deviation of at most half a gap. Seeds are fixed: this never flickers.
        deviation = gap / 2 * math.sqrt(others / count)
        assert abs(errors.mean().item()) <= 4 * deviation, (value, errors.mean(), deviation)
        if value == 1.0 + STEP / 4:
            up = (errors > 0).double().mean().item()
            assert abs(up - 0.25) < 0.01, up
            # Neighbours do not go together.
            a, b = errors[:-1] - errors.mean(), errors[1:] - errors.mean()
            assert abs((a * b).mean() / errors.var()) < 0.02
    special = torch.tensor([math.inf, -math.inf, math.nan, 3.4028235e38, -0.0, 0.0, 1.0, -2.0])
    given = special.repeat(rank.size)
    found = _reduced(rank, comm, given, _seed(rank, BACKEND, 1), ReduceOp.AVG, BACKEND)
    assert found[0] == math.inf
    assert found[1] == -math.inf
    assert found[2].isnan()
    assert torch.equal(found[4:], special[4:])


@case(world=2)
def quantized_sums_are_unbiased(make: Make) -> None:
    make(2).run(_unbiased)


def _replayed(rank: Rank) -> None:
    """In place, with a seed that other kernels change."""
    comm = rank.comm(BACKEND)
    count = 100_000
    whole = torch.zeros(rank.size * count, device=rank.device(BACKEND))
    seed = _seed(rank, BACKEND, 0)
    output = whole.chunk(rank.size)[rank.rank]
    given = _inputs(rank, count)[rank.rank]

    def step() -> None:
        work = comm.reduce_scatter_quantized(output, whole, ReduceOp.SUM, seed, async_op=True)
        work.wait()  # in the capture it does nothing

    step()  # compiled, and of zeros
    rank.synchronize(BACKEND)
    assert not output.any()
    replay = rank.gpu().capture(step)
    found = []
    for number in (5, 6, 5):
        seed.fill_(number)
        whole.copy_(given)
        rank.synchronize(BACKEND)
        replay()
        rank.synchronize(BACKEND)
        found.append(output.cpu().clone())
        eager = _reduced(rank, comm, given, seed, ReduceOp.SUM, BACKEND)
        assert torch.equal(found[-1], eager)
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


@case(world=2)
def quantized_sums_are_replayed_with_other_seeds(make: Make) -> None:
    make(2).run(_replayed)


def _refused(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    device = rank.device(BACKEND)
    output, given = torch.zeros(4, device=device), torch.zeros(4 * rank.size, device=device)
    seed = _seed(rank, BACKEND, 0)
    half = output.half()
    wrong: list[tuple[str, tuple[Tensor, Tensor, ReduceOp, Tensor]]] = [
        ("float32", (half, given, ReduceOp.SUM, seed)),
        ("SUM or AVG", (output, given, ReduceOp.MAX, seed)),
        ("comm_size", (output, given[:4], ReduceOp.SUM, seed)),
        ("int64", (output, given, ReduceOp.SUM, seed.int())),
    ]
    for text, arguments in wrong:
        error = str(
            error_of(
                lambda arguments=arguments: comm.reduce_scatter_quantized(*arguments, False),
                torchcomms.CommError,
            )
        )
        assert text in error, error
    assert torch.equal(_reduced(rank, comm, given, seed, ReduceOp.SUM, BACKEND), torch.zeros(4))


@case(world=2)
def quantized_sums_of_other_things_are_refused(make: Make) -> None:
    make(2).run(_refused)
