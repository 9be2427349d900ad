"""Backends that Python classes define, and the lazy ones, which are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks
from harness.groups import process_group

import torchcomms
from torchcomms import CommOptions, ReduceOp, TorchCommBackend, TorchWork

MakeRanks = Callable[[int], Ranks]
SIZE = 3


class OwnWork:
    def __init__(self, work: TorchWork) -> None:
        self._work = work

    def wait(self) -> None:
        self._work.wait()


class Delegating(TorchCommBackend):
    """Asks a communicator of the engine, and remembers what it was asked with."""

    def init(self, device: torch.device, name: str, options: CommOptions) -> None:
        self.inner = torchcomms.new_comm(
            "ctran", device, f"inner-{name}", options=options, store=options.store
        )
        self.seen: list[Any] = []

    def finalize(self) -> None:
        self.inner.finalize()

    def get_rank(self) -> int:
        return self.inner.get_rank()

    def get_size(self) -> int:
        return self.inner.get_size()

    def get_backend_name(self) -> str:
        return "delegating"

    def all_reduce(self, tensor: Any, op: Any, async_op: bool, *, options: Any) -> Any:
        self.seen.append((options.hints, options.timeout))
        return self.inner.all_reduce(tensor, op, async_op)

    def broadcast(self, tensor: Any, root: int, async_op: bool, hints: Any, timeout: Any) -> Any:
        self.seen.append((hints, timeout))
        return OwnWork(self.inner.broadcast(tensor, root, async_op))

    def barrier(self, async_op: bool) -> None:  # as upstream: no options
        self.inner.barrier(False)

    def send(self, tensor: Any, dst: int, async_op: bool, **rest: Any) -> Any:
        return self.inner.send(tensor, dst, async_op, **rest)

    def recv(self, tensor: Any, src: int, async_op: bool, **rest: Any) -> Any:
        return self.inner.recv(tensor, src, async_op, **rest)

    def gather(self, output_list: Any, input: Any, root: int, async_op: bool) -> Any:
        return self.inner.gather(output_list, input, root, async_op)

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> Any:
        raise KeyError("no such thing")

    def all_gather(self, tensor_list: Any, tensor: Any, async_op: bool) -> Any:
        return 5

    def split(self, ranks: list[int], name: str, options: CommOptions) -> Any:
        inner = self.inner.split(ranks, name)
        if inner is None:
            return None
        child = Delegating()
        child.inner, child.seen = inner, []
        return child


def _register() -> None:
    if not torchcomms._comms._is_backend_registered("delegating"):
        torchcomms.register_backend("delegating", Delegating)


def delegates(rank: Rank) -> None:
    _register()
    comm = rank.new_comm("delegating", "python")
    impl = comm.get_backend_impl()
    assert isinstance(impl, Delegating)
    assert (comm.get_rank(), comm.get_size()) == (rank.rank, SIZE)
    assert comm.get_backend() == "delegating"
    value = torch.full((4,), rank.rank + 1.0)
    limit = timedelta(seconds=7)
    work = comm.all_reduce(value, ReduceOp.SUM, True, hints={"a": "b"}, timeout=limit)
    work.wait()
    assert value[0] == 6
    work = comm.broadcast(value, 0, True, timeout=limit)
    assert not work.is_completed()  # it cannot tell before it is waited for
    work.wait()
    assert work.is_completed()
    assert impl.seen == [({"a": "b"}, limit), ({}, limit)]
    comm.barrier(False)

    after, before = (rank.rank + 1) % SIZE, (rank.rank - 1) % SIZE
    received = torch.zeros(1 << 18)
    batch = comm.batch_op_create()
    batch.send(torch.full((1 << 18,), float(rank.rank)), after)
    batch.recv(received, before)
    batch.issue(False)
    assert received[-1] == before
    output = torch.zeros(SIZE * 2)
    comm.gather_single(output, torch.full((2,), float(rank.rank)), 1, False)
    assert output.tolist() == ([0, 0, 1, 1, 2, 2] if rank.rank == 1 else [0] * 6)

    with pytest.raises(KeyError, match="no such thing"):
        comm.reduce(value, 0, ReduceOp.SUM, False)
    with pytest.raises(TypeError, match=r"all_gather\(\) .*got 5"):
        comm.all_gather([value.clone() for _ in range(SIZE)], value, False)
    with pytest.raises(torchcomms.CommError, match="scatter not supported by backend delegating"):
        comm.scatter(value, [value] * SIZE, rank.rank, False)
    with pytest.raises(torchcomms.CommError, match="dst must be in range"):
        comm.send(value, 9, False)
    assert not comm.is_abort_supported()

    part = comm.split([0, 2] if rank.rank != 1 else [], "part")
    if part is not None:
        ones = torch.ones(1)
        part.all_reduce(ones, ReduceOp.SUM, False)
        assert ones.item() == 2
    del impl
    comm.finalize()


def test_a_python_class_is_a_backend(ranks: MakeRanks) -> None:
    ranks(SIZE).run(delegates)


def in_torch_distributed(rank: Rank) -> None:
    from torchcomms import _c10d

    _register()
    if "PYDELEGATING" not in dist.Backend._plugins:
        _c10d.register_backend("pydelegating", ["cpu"], backend="delegating")
    with process_group(rank, "pydelegating"):
        value = torch.ones(2)
        work = dist.broadcast(value * rank.rank, src=1, async_op=True)
        assert work is not None
        assert work.get_future().wait()[0].tolist() == [1, 1]
        dist.all_reduce(value)
        assert value[0] == SIZE


def test_python_backends_serve_torch_distributed(ranks: MakeRanks) -> None:
    ranks(SIZE).run(in_torch_distributed)


def test_only_backends_are_registered() -> None:
    with pytest.raises(TypeError, match="subclass of TorchCommBackend"):
        torchcomms.register_backend("int", int)
    _register()
    with pytest.raises(ValueError, match="registered already"):
        torchcomms.register_backend("delegating", Delegating)


def lazily(rank: Rank, backend: str) -> None:
    comm = rank.new_comm(backend, "lazy")
    assert comm.get_backend() == backend
    # A ring of first messages: none waits for the communicator of another pair.
    after, before = (rank.rank + 1) % SIZE, (rank.rank - 1) % SIZE
    received = torch.zeros(1 << 18)
    sent = comm.send(torch.full((1 << 18,), float(rank.rank)), after, True)
    comm.recv(received, before, False)
    sent.wait()
    assert received[-1] == before
    # Some ranks alone.
    if rank.rank < 2:
        comm.send(torch.ones(1), 1 - rank.rank, True)
        box = torch.zeros(1)
        comm.recv(box, 1 - rank.rank, True).wait()
        assert box.item() == 1
    value = torch.ones(3)
    comm.all_reduce(value, ReduceOp.SUM, False)
    assert value[0] == SIZE
    batch = comm.batch_op_create()
    batch.send(value, after)
    batch.recv(value.clone(), before)
    batch.issue(False)
    part = comm.split([0, 1] if rank.rank < 2 else [], "part")
    if part is not None:
        part.all_reduce(value, ReduceOp.SUM, False)
        assert value[0] == 2 * SIZE
        part.finalize()
    comm.finalize()


@pytest.mark.parametrize("backend", ["ctran-lazy", "gloo-lazy"])
def test_lazy(ranks: MakeRanks, backend: str) -> None:
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"built without {backend}")
    ranks(SIZE).run(lazily, backend)


def test_lazy_of_nothing() -> None:
    assert torchcomms.is_backend_built("ctran-lazy")
    assert not torchcomms.is_backend_built("pigeon-lazy")
