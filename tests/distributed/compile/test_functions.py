"""Functions with communication, whole: as programs are written, and as torch rewrites them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
from compile_ranks import compiled, run
from harness import Rank, Ranks
from torch import Tensor

from torchcomms import (
    AllReduceOptions,
    BatchP2POptions,
    BatchSendRecv,
    BroadcastOptions,
    CommError,
    OpName,
    RedOpType,
    ReduceOp,
    Timeout,
    TorchComm,
    functional,
)

MakeRanks = Callable[[int], Ranks]


class Layer(torch.nn.Module):
    """Half of a linear layer's inputs on each of two ranks."""

    def __init__(self, comm: TorchComm) -> None:
        super().__init__()
        self.comm = comm
        torch.manual_seed(comm.get_rank())
        self.weight = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight
        result: Tensor = functional.all_reduce(self.comm, y, ReduceOp.SUM)
        return result.relu()


def trains(rank: Rank, backend: str) -> None:
    comm = rank.comm("ctran")
    results = []
    ways: list[Callable[[Any], Any]] = [lambda f: f, lambda f: compiled(f, backend)[0]]
    for how in ways:
        layer = Layer(comm)
        step = how(lambda x, layer=layer: (layer(x) ** 2).sum())
        for _ in range(2):
            step(torch.ones(2, 4, dtype=torch.float64)).backward()
            assert layer.weight.grad is not None
            with torch.no_grad():
                layer.weight.sub_(0.01 * layer.weight.grad)
            layer.weight.grad = None
        results.append(layer.weight.detach().clone())
    torch.testing.assert_close(*results)


def keeps_everything_in_order(rank: Rank, backend: str) -> None:
    """Unused results, messages and barriers stay, in order; buffers in flight are left alone."""
    comm = rank.comm("ctran")
    peer = 1 - rank.rank

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        unused = x * 3
        comm.all_reduce(unused, ReduceOp.SUM, False)
        comm.barrier(False)
        y = x.sin()
        first = comm.all_reduce(y, ReduceOp.SUM, True)
        sent = x.cos()
        message = comm.send(sent, peer, True)
        got = torch.empty_like(x)
        other = comm.recv(got, peer, True)
        noise = (x + 1).exp() * (x + 2).exp()  # wants buffers, as those in flight
        other.wait()
        message.wait()
        first.wait()
        out = torch.empty(2 * x.numel(), dtype=x.dtype)
        comm.all_gather_single(out, got + y, False)
        return out, noise

    seen: list[OpName] = []
    hook = comm.register_pre_hook(lambda name, _, __: seen.append(name))
    x = torch.arange(1000, dtype=torch.float64) / 1000 + rank.rank
    expected = function(x)
    eager, seen[:] = list(seen), []
    traced, _ = compiled(function, backend)
    for _ in range(3):
        for got, wanted in zip(traced(x), expected, strict=True):
            torch.testing.assert_close(got, wanted)
        assert seen == eager
        seen.clear()
    hook.remove()


def works_leave_the_graph(rank: Rank) -> None:
    comm = rank.comm("ctran")

    def start(x: Tensor) -> tuple[Tensor, object, object]:
        y = x * 2
        return y, comm.all_reduce(y, ReduceOp.SUM, True), functional.broadcast(comm, x, 0, True)

    traced, _ = compiled(start)
    y, work, later = traced(torch.full((5,), rank.rank + 1.0))
    assert work.wait(timedelta(seconds=30))
    assert work.wait()
    assert work.is_completed()
    torch.testing.assert_close(y, torch.full((5,), 6.0))
    torch.testing.assert_close(torch.add(later, 1), torch.full((5,), 2.0))
    torch.testing.assert_close(later.wait(), torch.full((5,), 1.0))


def options_and_constants(rank: Rank) -> None:
    comm = rank.comm("ctran")
    limit = timedelta(seconds=7)
    options = AllReduceOptions(timeout=timedelta(seconds=9))
    seen: list[timedelta] = []
    hook = comm.register_pre_hook(lambda _, __, args: seen.append(args.timeout))
    factor = torch.tensor(3.0)

    def function(x: Tensor, scale: Tensor) -> Tensor:
        x = x + comm.get_rank() + 10 * comm.get_size()
        comm.all_reduce(x, ReduceOp.SUM, False, timeout=limit)
        comm.all_reduce(x, op=ReduceOp.PREMUL_SUM(0.5), async_op=False, options=options)
        comm.all_reduce(x, ReduceOp.PREMUL_SUM(scale), False)
        comm.all_reduce(x, scaled, False)
        return x

    scaled = ReduceOp.PREMUL_SUM(factor)
    expected = function(torch.zeros(2), torch.tensor(2.0))
    seen.clear()
    traced, graphs = compiled(function)
    torch.testing.assert_close(traced(torch.zeros(2), torch.tensor(2.0)), expected)
    assert seen[:2] == [limit, timedelta(seconds=9)]
    assert seen[2] == seen[3] == comm.get_options().timeout
    hook.remove()
    assert len(graphs.code) == 1


def another_communicator(rank: Rank) -> None:
    comm = rank.comm("ctran")
    alone = comm.split([rank.rank], "same name")
    other = comm.split([0, 1], "same name")
    assert alone is not None
    assert other is not None
    assert functional.register(alone) == functional.register(alone)
    assert functional.register(alone) != functional.register(other)

    def function(c: TorchComm, x: Tensor) -> Tensor:
        x = x.clone()
        c.all_reduce(x, ReduceOp.SUM, False)
        return x

    traced, graphs = compiled(function)
    for _ in range(2):
        assert traced(alone, torch.ones(1)).item() == 1.0
        assert traced(other, torch.ones(1)).item() == 2.0
    assert len(graphs.code) == 2
    name = functional.register(other)
    other.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        torch.ops.torchcomms.torchcomm_all_reduce(name, torch.ones(2), "SUM")
    alone.finalize()


def errors_are_those_of_methods(rank: Rank) -> None:
    comm = rank.comm("ctran")
    traced, _ = compiled(lambda x: functional.broadcast(comm, x, 7))
    with pytest.raises(RuntimeError, match=r"root must be in range \[0, 2\)"):
        traced(torch.ones(2))
    breaks = torch.compile(lambda x: comm.all_reduce(x, ReduceOp.SUM), backend="eager")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="async_op"):
        breaks(torch.ones(2))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.full)])
def test_training(ranks: MakeRanks, backend: str) -> None:
    run(ranks(2), trains, backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_order(ranks: MakeRanks, backend: str) -> None:
    run(ranks(2), keeps_everything_in_order, backend)


def test_works_outside(ranks: MakeRanks) -> None:
    run(ranks(2), works_leave_the_graph)


def test_options(ranks: MakeRanks) -> None:
    run(ranks(2), options_and_constants)


def test_several_communicators(ranks: MakeRanks) -> None:
    run(ranks(2), another_communicator)


def tells_operations_things(rank: Rank) -> None:
    """Objects that compiled code makes, or finds."""
    comm = rank.comm("ctran")
    outside = BatchP2POptions(timeout=Timeout(seconds=31))
    seen: list[timedelta] = []
    handle = comm.register_pre_hook(lambda _, __, args: seen.append(args.timeout))  # type: ignore[union-attr]
    peer = 1 - rank.rank

    def step(x: Tensor, y: Tensor) -> Tensor:
        timeout = Timeout(seconds=32)
        comm.all_reduce(x, ReduceOp(RedOpType.SUM), False, timeout=timeout)
        comm.broadcast(x, 0, False, options=BroadcastOptions(timeout=Timeout(minutes=1)))
        for options in (outside, BatchP2POptions(hints={"a": "b"}, timeout=timeout)):
            batch = comm.batch_op_create()
            batch.send(x, peer)
            batch.recv(y, peer)
            batch.issue(True, options).wait()
        return functional.all_reduce(comm, y, ReduceOp.MAX, timeout=timeout)

    traced, _ = compiled(step)
    result = traced(torch.full((2,), rank.rank + 1.0), torch.zeros(2))
    handle.remove()
    assert result.tolist() == [3.0, 3.0]
    assert [limit.total_seconds() for limit in seen] == [32, 60, 31, 32, 32]


def uses_batches_of_others(rank: Rank, backend: str) -> None:
    comm = rank.comm("ctran")
    peer = 1 - rank.rank

    def step(batch: BatchSendRecv, x: Tensor, y: Tensor) -> Tensor:
        batch.send(x, peer)
        batch.recv(y, src=peer, tag=0)
        batch.issue(True).wait()
        return y * 2

    def ready(batch: BatchSendRecv, y: Tensor) -> Tensor:
        batch.issue(False)
        return y * 2

    traced, graphs = compiled(step, backend)
    for function in (step, traced):
        for value in range(3):  # each with a batch of its own
            batch, y = comm.batch_op_create(), torch.zeros(2)
            x = torch.full((2,), 10.0 * value + rank.rank)
            assert function(batch, x, y).tolist() == [20.0 * value + 2 * peer] * 2
            assert y.tolist() == [10.0 * value + peer] * 2
            # What has been added inside is there outside, where it can be issued again.
            assert [(op.type.name, op.peer) for op in batch.ops] == [
                ("SEND", peer),
                ("RECV", peer),
            ]
            x += 1
            batch.issue(False)
            assert y.tolist() == [10.0 * value + peer + 1] * 2
    assert len(graphs.code) == 1
    traced, graphs = compiled(ready, backend)
    for function in (ready, traced):
        for value in range(3):  # and what has been added outside is there inside
            batch, y = comm.batch_op_create(), torch.zeros(2)
            batch.send(torch.full((2,), 10.0 * value + rank.rank), peer)
            batch.recv(y, peer)
            assert function(batch, y).tolist() == [20.0 * value + 2 * peer] * 2
    assert len(graphs.code) == 1


def breaks_graphs(rank: Rank) -> None:
    """What has been made is there behind a break, too."""
    comm = rank.comm("ctran")

    def step(x: Tensor) -> Tensor:
        options, op = AllReduceOptions(timeout=Timeout(seconds=20)), ReduceOp.PREMUL_SUM(2.0)
        torch._dynamo.graph_break()
        comm.all_reduce(x, op, False, options=options)
        return x

    torch._dynamo.reset()
    assert torch.compile(step, backend="aot_eager")(torch.ones(2)).tolist() == [4.0, 4.0]


def test_objects_that_operations_are_told(ranks: MakeRanks) -> None:
    run(ranks(2), tells_operations_things)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_batches_made_outside(ranks: MakeRanks, backend: str) -> None:
    run(ranks(2), uses_batches_of_others, backend)


def test_objects_behind_a_break(ranks: MakeRanks) -> None:
    run(ranks(2), breaks_graphs)


def test_errors(ranks: MakeRanks) -> None:
    run(ranks(2), errors_are_those_of_methods)


@pytest.mark.parametrize(("value", "taught"), [("1", True), ("0", False)])
def test_dynamo_is_taught_when_it_comes(value: str, taught: bool) -> None:
    program = (
        "import sys, torchcomms\n"
        "assert 'torchcomms.functional' not in sys.modules\n"
        "import torch._dynamo.variables.builder as b\n"
        f"assert (b.VariableBuilder._wrap.__module__ == 'torchcomms._compile') == {taught}\n"
        "import torchcomms.functional\n"
        "assert torchcomms.functional.all_reduce\n"
    )
    environment = {**os.environ, "TORCHCOMMS_PATCH_FOR_COMPILE": value}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=120)


def waits(rank: Rank, backend: str) -> None:
    comm = rank.comm("ctran")
    name = functional.register(comm)
    operations = torch.ops.torchcomms

    def f(x: Tensor) -> Tensor:
        first = operations.torchcomm_all_reduce(name, x, "SUM", True)
        second = operations.torchcomm_all_reduce(name, x * 2, "SUM", True)
        (total,) = operations.torchcomm_wait_tensors([first])
        (twice,) = operations.torchcomm_wait_tensors_([second])
        return total + twice  # type: ignore[no-any-return]

    want = torch.full((3,), 3.0 * sum(range(1, rank.size + 1)))
    for how in (f, compiled(f, backend)[0]):
        assert torch.equal(how(torch.full((3,), rank.rank + 1.0)), want)
    pending = operations.torchcomm_all_reduce(name, torch.ones(3), "SUM", True)
    assert operations.torchcomm_wait_tensors_([pending])[0] is pending
    assert functional.is_torch_compile_supported_and_enabled()
    assert functional.async_tensor.TorchCommsAsyncTensor is functional.AsyncTensor


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_tensors_are_waited_for_by_themselves(ranks: MakeRanks, backend: str) -> None:
    ranks(2).run(waits, backend)


def writes_what_does_not_fit(rank: Rank, backend: str) -> None:
    """As without a compiler: an error, not an output that nobody has written."""
    comm = rank.comm("ctran")
    x = torch.ones(4)
    calls: dict[str, Callable[[Tensor], None]] = {
        "all_gather_single": lambda out: comm.all_gather_single(out, x * 2, False),
        "reduce_scatter_single": lambda out: comm.reduce_scatter_single(
            out, x * 2, ReduceOp.SUM, False
        ),
        "asynchronous": lambda out: comm.all_gather_single(out, x * 2, True).wait(),  # type: ignore[func-returns-value]
    }
    right = {"reduce_scatter_single": 4 // rank.size}
    for name, call in calls.items():
        size = right.get(name, 4 * rank.size)
        for bad in (torch.zeros(size + 1), torch.zeros(size, dtype=torch.int64)):
            with pytest.raises(RuntimeError):
                call(bad)
            with pytest.raises(Exception, match=r"got .* to write instead of"):
                compiled(call, backend)[0](bad)
            assert not bad.any()
        good = torch.zeros(size)
        compiled(call, backend)[0](good)
        assert good.all()


def test_outputs_that_do_not_fit_are_refused(ranks: MakeRanks) -> None:
    ranks(2).run(writes_what_does_not_fit, "aot_eager")


def fails_to_wait(rank: Rank) -> None:
    """Each wait for what has failed fails, and what was not waited for is still there."""
    comm = rank.comm("ctran")
    name = functional.register(comm)
    operations = torch.ops.torchcomms
    peer = 1 - rank.rank
    if rank.rank == 0:
        both = torch.zeros(4)
        for tag in (0, 1):
            part = both[2 * tag : 2 * tag + 2]
            operations.torchcomm_recv_(name, part, peer, True, None, 0, tag)
        comm.barrier(False)
        operations.torchcomm_wait_tensors_([both[:2]])
        assert both.tolist()[:2] == [5, 5]
        comm.barrier(False)
        operations.torchcomm_wait_tensors_([both[2:]])
        assert both.tolist() == [5, 5, 6, 6]
        never = functional.recv(comm, torch.zeros(3), peer, True, timeout=timedelta(seconds=1))
        for _ in range(2):
            with pytest.raises(CommError):
                never.wait()
    else:
        functional.send(comm, torch.full((2,), 5.0), peer, tag=0)
        comm.barrier(False)
        comm.barrier(False)
        functional.send(comm, torch.full((2,), 6.0), peer, tag=1)


def test_waits_that_fail_fail_again(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(fails_to_wait)


def test_what_is_pending_has_the_operators_of_a_tensor(ranks: MakeRanks) -> None:
    ranks(1).run(operates)


def operates(rank: Rank) -> None:
    comm = rank.comm("ctran")
    pending = functional.all_reduce(
        comm, torch.tensor([3, 4]), ReduceOp.SUM, True, timeout=timedelta.max
    )
    assert (pending == torch.tensor([3, 5])).tolist() == [True, False]
    assert (pending % 2).tolist() == [1, 0]
    assert (7 // pending).tolist() == [2, 1]
    assert (pending & 1).tolist() == [1, 0]
    assert len({pending}) == 1
