"""Gradients through operations, beside those of the same sums written in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compile_ranks import compiled, run
from harness import Rank, Ranks
from torch import Tensor
from torch.autograd import forward_ad

from torchcomms import ReduceOp, TorchComm, functional

MakeRanks = Callable[[int], Ranks]
ROWS = 2

# What all ranks' inputs become: the outputs of all ranks, in plain torch.
Reference = Callable[[list[Tensor]], list[Tensor]]
Operation = Callable[[TorchComm, Tensor], Any]


def _input(rank: int, size: int, seed: int) -> Tensor:
    """Small whole numbers: with ties, and zeros in some places of one rank, others of several."""
    generator = torch.Generator().manual_seed(10 * seed + rank)
    return torch.randint(0, 4, (size * ROWS, 3), generator=generator).double() - 1


def _weight(rank: int, shape: torch.Size) -> Tensor:
    return torch.arange(1.0, shape.numel() + 1).double().reshape(shape) * (rank + 1)


def _reduced(op: str, xs: list[Tensor]) -> Tensor:
    stacked = torch.stack(xs)
    if op == "SUM":
        return stacked.sum(0)
    if op == "AVG":
        return stacked.mean(0)
    if op == "PREMUL_SUM":
        return sum((x * (r + 2) for r, x in enumerate(xs)), torch.zeros_like(xs[0]))
    if op == "PRODUCT":
        return stacked.prod(0)
    # amax and amin share the gradient among equals, as torchcomms does.
    return stacked.amax(0) if op == "MAX" else stacked.amin(0)


def _op(name: str, comm: TorchComm) -> ReduceOp:
    if name == "PREMUL_SUM":
        return ReduceOp.PREMUL_SUM(comm.get_rank() + 2.0)
    found: ReduceOp = getattr(ReduceOp, name)
    return found


def _parts(x: Tensor, n: int) -> list[Tensor]:
    return list(x.chunk(n))


def _reductions(name: str) -> list[tuple[str, Operation, Reference]]:
    def all_reduce(c: TorchComm, x: Tensor) -> Any:
        return functional.all_reduce(c, x, _op(name, c))

    def reduce(c: TorchComm, x: Tensor) -> Any:
        return functional.reduce(c, x, 1, _op(name, c))

    def reduce_scatter_single(c: TorchComm, x: Tensor) -> Any:
        return functional.reduce_scatter_single(c, x, _op(name, c))

    def reduce_scatter(c: TorchComm, x: Tensor) -> Any:
        return functional.reduce_scatter(c, _parts(x, c.get_size()), _op(name, c))

    def reduced_at_root(xs: list[Tensor]) -> list[Tensor]:
        return [_reduced(name, xs) if r == 1 else x for r, x in enumerate(xs)]

    def scattered(xs: list[Tensor]) -> list[Tensor]:
        return _parts(_reduced(name, xs), len(xs))

    return [
        ("all_reduce", all_reduce, lambda xs: [_reduced(name, xs)] * len(xs)),
        ("reduce", reduce, reduced_at_root),
        ("reduce_scatter_single", reduce_scatter_single, scattered),
        ("reduce_scatter", reduce_scatter, scattered),
    ]


def _rows(comm: TorchComm) -> list[int]:
    return [r + 1 for r in range(comm.get_size())]


def _all_gather_v(c: TorchComm, x: Tensor) -> Any:
    own = x[: c.get_rank() + 1]
    return torch.cat(functional.all_gather_v(c, own, _rows(c)))


def _v_splits(rank: int, size: int) -> list[int]:
    """Rows to every rank; as many from it."""
    return [1 + (rank + r) % 2 for r in range(size)]


def _all_to_all_v(c: TorchComm, x: Tensor) -> Any:
    splits = _v_splits(c.get_rank(), c.get_size())
    return functional.all_to_all_v_single(c, x[: sum(splits)], splits, splits)


def _all_to_all_v_reference(xs: list[Tensor]) -> list[Tensor]:
    n = len(xs)
    parts = [torch.split(x[: sum(_v_splits(r, n))], _v_splits(r, n)) for r, x in enumerate(xs)]
    return [torch.cat([parts[s][r] for s in range(n)]) for r in range(n)]


def _all_to_all_reference(xs: list[Tensor]) -> list[Tensor]:
    n = len(xs)
    return [torch.cat([_parts(xs[s], n)[r] for s in range(n)]) for r in range(n)]


def _at_root(output: Callable[[list[Tensor]], Tensor]) -> Reference:
    return lambda xs: [output(xs) if r == 1 else torch.zeros(0).double() for r in range(len(xs))]


def _waited(c: TorchComm, x: Tensor) -> Any:
    on_its_way = functional.all_reduce(c, x * 2, ReduceOp.SUM, async_op=True)
    other = x.sin()
    result: Tensor = on_its_way.wait()
    return result * other


def _changed_in_place(c: TorchComm, x: Tensor) -> Any:
    y = x * 3
    torch.ops.torchcomms.torchcomm_all_reduce_(functional.register(c), y, "SUM")
    return y * y


MOVES: list[tuple[str, Operation, Reference]] = [
    ("broadcast", lambda c, x: functional.broadcast(c, x, 1), lambda xs: [xs[1]] * len(xs)),
    (
        "all_gather",
        lambda c, x: torch.stack(functional.all_gather(c, x)),
        lambda xs: [torch.stack(xs)] * len(xs),
    ),
    (
        "all_gather_v",
        _all_gather_v,
        lambda xs: [torch.cat([x[: r + 1] for r, x in enumerate(xs)])] * len(xs),
    ),
    (
        "all_gather_single",
        lambda c, x: functional.all_gather_single(c, x.t()),
        lambda xs: [torch.cat([x.t() for x in xs])] * len(xs),
    ),
    (
        "all_to_all_single",
        lambda c, x: functional.all_to_all_single(c, x),
        _all_to_all_reference,
    ),
    ("all_to_all_v_single", _all_to_all_v, _all_to_all_v_reference),
    (
        "all_to_all",
        lambda c, x: torch.cat(functional.all_to_all(c, _parts(x, c.get_size()))),
        _all_to_all_reference,
    ),
    (
        "scatter",
        lambda c, x: functional.scatter(c, x[:ROWS], _parts(x, c.get_size()), 1),
        lambda xs: _parts(xs[1], len(xs)),
    ),
    (
        "gather",
        lambda c, x: torch.cat([t.reshape(-1) for t in functional.gather(c, x, 1)]),
        _at_root(lambda xs: torch.cat([x.reshape(-1) for x in xs])),
    ),
    (
        "gather_single",
        lambda c, x: functional.gather_single(c, x, 1),
        _at_root(lambda xs: torch.cat(xs)),
    ),
    ("async", _waited, lambda xs: [2 * torch.stack(xs).sum(0) * x.sin() for x in xs]),
    ("in place", _changed_in_place, lambda xs: [(3 * torch.stack(xs).sum(0)) ** 2] * len(xs)),
]


def _losses(outputs: list[Tensor]) -> Tensor:
    total = torch.zeros(()).double()
    for rank, output in enumerate(outputs):
        total = total + (output * _weight(rank, output.shape)).sum()
    return total


def _check(
    rank: Rank, comm: TorchComm, operation: Operation, reference: Reference, how: Any
) -> None:
    inputs = [_input(r, rank.size, seed=3).requires_grad_() for r in range(rank.size)]
    outputs = reference(inputs)
    (expected,) = torch.autograd.grad(_losses(outputs), [inputs[rank.rank]], materialize_grads=True)

    def loss(x: Tensor) -> Tensor:
        y = operation(comm, x)
        return (y * _weight(rank.rank, y.shape)).sum()

    own = _input(rank.rank, rank.size, seed=3).requires_grad_()
    result = how(loss)(own)
    result.backward()
    wanted = (outputs[rank.rank] * _weight(rank.rank, outputs[rank.rank].shape)).sum()
    torch.testing.assert_close(result, wanted)
    grad = own.grad if own.grad is not None else torch.zeros_like(own)
    torch.testing.assert_close(grad, expected)


def gradients_of_reductions(rank: Rank, backend: str, op: str) -> None:
    comm = rank.comm(backend)
    for _, operation, reference in _reductions(op):
        _check(rank, comm, operation, reference, lambda f: f)


def gradients_of_moves(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    for _, operation, reference in MOVES:
        _check(rank, comm, operation, reference, lambda f: f)


def compiled_gradients(rank: Rank, backend: str, first: int) -> None:
    comm = rank.comm(backend)
    chosen = [case for op in ("PRODUCT", "PREMUL_SUM") for case in _reductions(op)[::2]]
    for name, operation, reference in [*chosen, *MOVES][first::3]:
        if name != "in place":  # register() is for the code around compiled functions
            _check(rank, comm, operation, reference, lambda f: compiled(f)[0])


@pytest.mark.parametrize("op", ["SUM", "AVG", "PREMUL_SUM", "PRODUCT", "MIN", "MAX"])
def test_reductions(ranks: MakeRanks, op: str) -> None:
    run(ranks(3), gradients_of_reductions, "ctran", op)


def test_moves(ranks: MakeRanks) -> None:
    run(ranks(3), gradients_of_moves, "ctran")


@pytest.mark.parametrize("first", [0, 1, 2])
def test_compiled(ranks: MakeRanks, first: int) -> None:
    run(ranks(2), compiled_gradients, "ctran", first)


def refuses_without_gradient(rank: Rank) -> None:
    comm = rank.comm("ctran")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no gradient with respect to its factor"):
        functional.all_reduce(comm, x, ReduceOp.PREMUL_SUM(x.sum()))
    name = functional.register(comm)
    with pytest.raises(ValueError, match="no reduction 'SUMM'"):
        torch.ops.torchcomms.torchcomm_all_reduce(name, torch.ones(2), "SUMM")
    with pytest.raises(RuntimeError, match="'nobody' is not known"):
        torch.ops.torchcomms.torchcomm_all_reduce("nobody", torch.ones(2), "SUM")


def test_errors(ranks: MakeRanks) -> None:
    run(ranks(2), refuses_without_gradient)


def refuses_tangents(rank: Rank) -> None:
    comm, x = rank.comm("ctran"), torch.arange(4.0)
    for operation in (
        lambda y: functional.all_reduce(comm, y, ReduceOp.SUM),
        lambda y: functional.broadcast(comm, y, 0),
        lambda y: functional.all_gather_single(comm, y),
    ):
        with pytest.raises(NotImplementedError, match="not in forward mode"):
            torch.func.jvp(operation, (x,), (torch.ones(4),))
        with forward_ad.dual_level(), pytest.raises(NotImplementedError):
            operation(forward_ad.make_dual(x, torch.ones(4)))
        operation(x)


def test_forward_mode_is_refused(ranks: MakeRanks) -> None:
    ranks(2).run(refuses_tangents)
