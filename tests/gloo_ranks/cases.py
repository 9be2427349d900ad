"""What the processes run. The first arguments of a case are its rank and the number of ranks."""

from __future__ import annotations

import datetime
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist

import torchcomms
from gloo_ranks.reference import assert_same, factor, numbers, poison, reduced, tensor

_store: Any = None
_comms: dict[tuple[int, int], torchcomms.TorchComm] = {}

CPU = torch.device("cpu")


def connect(port: int) -> None:
    global _store
    _store = dist.TCPStore("127.0.0.1", port, is_master=False)


def new_comm(rank: int, size: int, name: str, **kwargs: Any) -> torchcomms.TorchComm:
    options = torchcomms.CommOptions()
    options.rank, options.size = rank, size
    options.store = dist.PrefixStore(name, _store)
    options.abort_process_on_timeout_or_error = False
    return torchcomms.new_comm("gloo", CPU, name, options=options, **kwargs)


def shared_comm(rank: int, size: int) -> torchcomms.TorchComm:
    """One per size, kept."""
    if (rank, size) not in _comms:
        _comms[rank, size] = new_comm(rank, size, f"shared{size}")
    return _comms[rank, size]


def reduce_op(name: str, rank: int) -> torchcomms.ReduceOp:
    if name == "PREMUL_SUM":
        # Both forms of a factor.
        made = factor(rank)
        return torchcomms.ReduceOp.PREMUL_SUM(torch.tensor([made]) if rank % 2 else made)
    return getattr(torchcomms.ReduceOp, name)


def finish(work: Any, async_op: bool) -> None:
    if async_op:
        work.wait()
    assert work.is_completed()
    assert work.exception() is None


class Inputs:
    """Tensors that must not change."""

    def __init__(self) -> None:
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, values: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
        made = tensor(values, dtype)
        self.kept.append((made, made.clone()))
        return made

    def check(self) -> None:
        for now, before in self.kept:
            assert_same(now, before, "input")


def reductions(rank: int, size: int, op: str, dtype: torch.dtype, count: int, async_: bool) -> None:
    """all_reduce, reduce, and the three forms of reduce_scatter."""
    comm = shared_comm(rank, size)
    reduction = reduce_op(op, rank)
    everyone = [numbers(r, count, dtype) for r in range(size)]
    want = reduced(op, everyone, dtype)

    result = tensor(everyone[rank], dtype)
    finish(comm.all_reduce(result, reduction, async_), async_)
    assert_same(result, want, "all_reduce")

    inputs = Inputs()
    root = size - 1
    result = tensor(everyone[rank], dtype) if rank == root else inputs.add(everyone[rank], dtype)
    finish(comm.reduce(result, root, reduction, async_), async_)
    if rank == root:
        assert_same(result, want, "reduce")

    whole = [numbers(r, count * size, dtype, 1) for r in range(size)]
    mine = slice(rank * count, (rank + 1) * count)
    want = reduced(op, [values[mine] for values in whole], dtype)

    output = poison(count, dtype)
    source = inputs.add(whole[rank], dtype)
    finish(comm.reduce_scatter_single(output, source, reduction, async_), async_)
    assert_same(output, want, "reduce_scatter_single")

    # Rows, and in place: the output is this rank's part of the input.
    source = tensor(whole[rank], dtype).view(size, count)
    finish(comm.reduce_scatter_single(source[rank], source, reduction, async_), async_)
    assert_same(source[rank], want, "reduce_scatter_single in place")

    output = poison(count, dtype)
    parts = [inputs.add(whole[rank][r * count : (r + 1) * count], dtype) for r in range(size)]
    finish(comm.reduce_scatter(output, parts, reduction, async_), async_)
    assert_same(output, want, "reduce_scatter")

    lengths = [count * r + 1 for r in range(size)]
    output = poison(lengths[rank], dtype)
    parts = [inputs.add(numbers(rank, lengths[r], dtype, r), dtype) for r in range(size)]
    finish(comm.reduce_scatter_v(output, parts, reduction, async_), async_)
    want = reduced(op, [numbers(r, lengths[rank], dtype, rank) for r in range(size)], dtype)
    assert_same(output, want, "reduce_scatter_v")
    inputs.check()


def undefined_reduction(rank: int, size: int, op: str, dtype: torch.dtype) -> None:
    """An error at the call, after which the communicator works."""
    comm = shared_comm(rank, size)
    value = tensor(numbers(rank, 4, dtype), dtype)
    before = value.clone()
    for call in (
        lambda: comm.all_reduce(value, reduce_op(op, rank), False),
        lambda: comm.reduce(value, 0, reduce_op(op, rank), True),
        lambda: comm.reduce_scatter(value, [value] * size, reduce_op(op, rank), False),
    ):
        with pytest.raises(torchcomms.CommError, match="is not defined"):
            call()
    assert_same(value, before, "input")
    comm.barrier(False)


def movements(rank: int, size: int, dtype: torch.dtype, count: int, async_: bool) -> None:
    """Everything that only moves."""
    comm = shared_comm(rank, size)
    inputs = Inputs()

    def of(r: int, n: int = count, salt: int = 0) -> torch.Tensor:
        return tensor(numbers(r, n, dtype, salt), dtype)

    def given(n: int = count, salt: int = 0) -> torch.Tensor:
        return inputs.add(numbers(rank, n, dtype, salt), dtype)

    for root in range(size):
        moved = of(rank) if rank == root else poison(count, dtype)
        finish(comm.broadcast(moved, root, async_), async_)
        assert_same(moved, of(root), "broadcast")

        outputs = [poison(count, dtype) for _ in range(size)] if rank == root else []
        finish(comm.gather(outputs, given(), root, async_), async_)
        for r, output in enumerate(outputs):
            assert_same(output, of(r), "gather")

        output = poison(count * size if rank == root else 0, dtype)
        finish(comm.gather_single(output, given(), root, async_), async_)
        if rank == root:
            assert_same(output, torch.cat([of(r) for r in range(size)]), "gather_single")

        sources = [given(salt=r) for r in range(size)] if rank == root else []
        output = poison(count, dtype)
        finish(comm.scatter(output, sources, root, async_), async_)
        assert_same(output, of(root, salt=rank), "scatter")

    outputs = [poison(count, dtype) for _ in range(size)]
    finish(comm.all_gather(outputs, given(), async_), async_)
    for r, output in enumerate(outputs):
        assert_same(output, of(r), "all_gather")

    whole = poison(count * size, dtype)
    finish(comm.all_gather_single(whole, given(), async_), async_)
    assert_same(whole, torch.cat([of(r) for r in range(size)]), "all_gather_single")
    whole = poison(count * size, dtype).view(size, count)
    whole[rank].copy_(of(rank))
    finish(comm.all_gather_single(whole, whole[rank], async_), async_)
    assert_same(whole.view(-1), torch.cat([of(r) for r in range(size)]), "in place")

    outputs = [poison(count * r, dtype) for r in range(size)]
    finish(comm.all_gather_v(outputs, given(count * rank), async_), async_)
    for r, output in enumerate(outputs):
        assert_same(output, of(r, count * r), "all_gather_v")

    output = poison(count * size, dtype)
    finish(comm.all_to_all_single(output, given(count * size), async_), async_)
    part = slice(rank * count, (rank + 1) * count)
    want = torch.cat([of(r, count * size)[part] for r in range(size)])
    assert_same(output, want, "all_to_all_single")
    both = of(rank, count * size)
    finish(comm.all_to_all_single(both, both, async_), async_)
    assert_same(both, want, "all_to_all_single in place")

    # Rank r sends r + s elements to rank s.
    outputs = [poison(r + rank, dtype) for r in range(size)]
    finish(comm.all_to_all(outputs, [given(rank + r, r) for r in range(size)], async_), async_)
    for r, output in enumerate(outputs):
        assert_same(output, of(r, r + rank, rank), "all_to_all")

    # Rows of two; the last row of both tensors belongs to nobody.
    splits = [rank + r for r in range(size)]
    rows = sum(splits) + 1
    output = poison(rows * 2, dtype).view(rows, 2)
    source = torch.cat([of(rank, splits[r] * 2, r) for r in range(size)] + [of(rank, 2)])
    inputs.kept.append((source, source.clone()))
    work = comm.all_to_all_v_single(output, source.view(rows, 2), splits, splits, async_)
    finish(work, async_)
    want = torch.cat([of(r, (r + rank) * 2, rank) for r in range(size)] + [poison(2, dtype)])
    assert_same(output.view(-1), want, "all_to_all_v_single")

    finish(comm.barrier(async_), async_)
    inputs.check()


def exchanges(rank: int, size: int, dtype: torch.dtype, count: int, async_: bool) -> None:
    """Sends and receives: around a ring, in a batch with everybody, several to one peer."""
    comm = shared_comm(rank, size)
    after, before = (rank + 1) % size, (rank - 1) % size

    def of(r: int, salt: int = 0) -> torch.Tensor:
        return tensor(numbers(r, count, dtype, salt), dtype)

    got = poison(count, dtype)
    if async_:
        works = [comm.send(of(rank), after, True), comm.recv(got, before, True)]
        for work in works:
            finish(work, True)
    elif rank % 2 == 0:
        finish(comm.send(of(rank), after, False), False)
        finish(comm.recv(got, before, False), False)
    else:
        finish(comm.recv(got, before, False), False)
        finish(comm.send(of(rank), after, False), False)
    assert_same(got, of(before), "ring")

    others = [r for r in range(size) if r != rank]
    results = {r: poison(count, dtype) for r in others}
    batch = comm.batch_op_create()
    for r in others:
        batch.send(of(rank, r), r)
        batch.recv(results[r], r)
    finish(batch.issue(async_), async_)
    for r in others:
        assert_same(results[r], of(r, rank), "batch")

    # In the order of issue, with collectives in between.
    series = [poison(count, dtype) for _ in range(4)]
    works = []
    for i in range(4):
        if rank == 0:
            works.append(comm.send(of(0, i), 1, True))
        elif rank == 1:
            works.append(comm.recv(series[i], 0, True))
        works.append(comm.barrier(True))
    for work in works:
        finish(work, True)
    if rank == 1:
        for i in range(4):
            assert_same(series[i], of(0, i), "series")


def neighbours(rank: int, size: int) -> None:
    """Batches among some of the ranks leave later collectives of all in step."""
    comm = shared_comm(rank, size)
    for low in range(size - 1):
        if rank not in (low, low + 1):
            continue
        peer = low + 1 if rank == low else low
        got = torch.full((3,), -1.0)
        batch = comm.batch_op_create()
        batch.send(torch.full((3,), float(rank)), peer)
        batch.recv(got, peer)
        batch.issue(False)
        assert got.tolist() == [float(peer)] * 3
    value = torch.tensor([float(rank)])
    comm.all_reduce(value, torchcomms.ReduceOp.SUM, False)
    assert value.item() == size * (size - 1) / 2


def in_order(rank: int, size: int) -> None:
    """Asynchronous collectives on one tensor, then a synchronous one: each sees the one before."""
    comm = shared_comm(rank, size)
    value = torch.ones(1000)
    works = [comm.all_reduce(value, torchcomms.ReduceOp.SUM, True) for _ in range(4)]
    works.append(comm.all_reduce(value, torchcomms.ReduceOp.AVG, True))
    works.append(comm.all_reduce(value, torchcomms.ReduceOp.PREMUL_SUM(0.5), True))
    comm.all_reduce(value, torchcomms.ReduceOp.SUM, False)
    assert all(work.is_completed() for work in works)
    assert torch.equal(value, torch.full((1000,), float(size) ** 6 / 2))


def leaf(rank: int, size: int) -> None:
    """Tensors that autograd watches are memory like any other."""
    comm = shared_comm(rank, size)
    value = torch.full((3,), float(rank + 1), requires_grad=True)
    for op, want in (("SUM", size * (size + 1) / 2), ("AVG", size * (size + 1) / 2)):
        comm.all_reduce(value, getattr(torchcomms.ReduceOp, op), False)
        assert value.detach().tolist() == [want] * 3
    assert value.is_leaf


def callbacks_and_status(rank: int, size: int) -> None:
    """A receive that nobody answers yet is not complete, and completes without a wait."""
    comm = shared_comm(rank, size)
    if rank == 0:
        got = torch.zeros(2)
        work = comm.recv(got, 1, True)
        assert not work.is_completed()
        assert work.wait(datetime.timedelta(milliseconds=20)) is False
        comm.barrier(False)  # now the other sends
        while not work.is_completed():
            pass
        assert work.status == torchcomms.WorkStatus.COMPLETED
        assert got.tolist() == [7.0, 7.0]
    else:
        comm.barrier(False)
        if rank == 1:
            comm.send(torch.full((2,), 7.0), 0, False)


def splits(rank: int, size: int) -> None:
    """Groups that some ranks are not in, again and again, nested, with permuted ranks."""
    comm = shared_comm(rank, size)
    low = comm.split([0, 1] if rank < 2 else [], "low")
    assert (low is None) == (rank >= 2)
    groups = [[1, 0], [*range(2, size)]]
    mine = next(group for group in groups if rank in group)
    pair = comm.split(mine, "pair")
    assert pair is not None
    assert (pair.get_rank(), pair.get_size()) == (mine.index(rank), len(mine))
    everybody = comm.split(list(reversed(range(size))), "all")
    assert everybody is not None
    assert everybody.get_rank() == size - 1 - rank
    nested = everybody.split(rank_groups=[[0, size - 1]], name="nested")
    assert (nested is None) == (0 < rank < size - 1)
    for part in (low, pair, everybody, nested):
        if part is None:
            continue
        value = torch.tensor([float(rank)])
        part.all_reduce(value, torchcomms.ReduceOp.SUM, False)
        assert value.item() == sum(part.get_ranks())
        gathered = [torch.empty(1) for _ in range(part.get_size())]
        part.all_gather(gathered, torch.tensor([float(rank)]), True).wait()
        assert [int(one.item()) for one in gathered] == part.get_ranks()
        part.finalize()
    comm.barrier(False)


def same_name_again(rank: int, size: int) -> None:
    """Communicators of one name, alive at once, made with options that leave the store to them."""
    made = [new_comm(rank, size, "twin", timeout=datetime.timedelta(seconds=60)) for _ in range(3)]
    for i, comm in enumerate(made):
        value = torch.tensor([i + 1.0])
        comm.all_reduce(value, torchcomms.ReduceOp.SUM, False)
        assert value.item() == (i + 1) * size
    for comm in reversed(made):
        comm.finalize()
    again = new_comm(rank, size, "twin")
    again.barrier(False)
    again.finalize()


def finalized(rank: int, size: int) -> None:
    """finalize waits for what was issued; after it, calls raise and the names remain."""
    comm = new_comm(rank, size, "finalized")
    value = torch.full((100_000,), float(rank))
    work = comm.all_reduce(value, torchcomms.ReduceOp.SUM, True)
    comm.finalize()
    assert work.is_completed()
    assert value[-1].item() == size * (size - 1) / 2
    assert (comm.get_rank(), comm.get_size(), comm.get_backend()) == (rank, size, "gloo")
    with pytest.raises(torchcomms.CommError, match="finalized"):
        comm.barrier(False)


def hints(rank: int, size: int) -> None:
    """Where Gloo listens can be said; nonsense is an error."""
    for given in ({"hostname": "127.0.0.1"}, {"interface": "lo"}, {"lazy": "true"}):
        comm = new_comm(rank, size, "hints", hints=given)
        value = torch.ones(1)
        comm.all_reduce(value, torchcomms.ReduceOp.SUM, False)
        assert value.item() == size
        comm.finalize()
    with pytest.raises(ValueError, match="Invalid hint value for key 'lazy': perhaps"):
        new_comm(0, 1, "wrong", hints={"lazy": "perhaps"})


def missing_rank(rank: int, size: int) -> str:
    """Everybody but the last comes; all name it."""
    with pytest.raises(torchcomms.CommTimeoutError) as raised:
        new_comm(rank, size + 1, "missing", timeout=datetime.timedelta(seconds=1))
    assert raised.value.ranks == [size]
    return str(raised.value)


def missing_first(rank: int, size: int) -> None:
    with pytest.raises(torchcomms.CommTimeoutError, match="missing: 0") as raised:
        new_comm(rank + 1, size + 1, "first", timeout=datetime.timedelta(milliseconds=300))
    assert raised.value.ranks == [0]


def late_collective(rank: int, size: int, async_: bool) -> None:
    """A rank that does not call: a timeout, then the communicator is broken for good."""
    comm = new_comm(rank, size, f"late{async_}", timeout=datetime.timedelta(seconds=30))
    if rank == 0:
        _store.wait([f"late/{async_}/{r}" for r in range(1, size)])
        comm.finalize()
        return
    value = torch.ones(3)
    short = datetime.timedelta(milliseconds=300)
    # Ranks that time out close their connections, and the others may see that first.
    with pytest.raises((torchcomms.CommTimeoutError, torchcomms.PeerLostError)):
        comm.all_reduce(value, torchcomms.ReduceOp.SUM, async_, timeout=short).wait()
    assert comm.is_aborted()
    with pytest.raises((torchcomms.CommTimeoutError, torchcomms.PeerLostError)):
        comm.barrier(False)
    _store.set(f"late/{async_}/{rank}", "")


def late_receive(rank: int, size: int) -> None:
    comm = new_comm(rank, size, "lonely")
    if rank == 0:
        with pytest.raises(torchcomms.CommTimeoutError) as raised:
            comm.recv(torch.zeros(1), 1, False, timeout=datetime.timedelta(milliseconds=200))
        assert (raised.value.ranks, raised.value.op) == ([1], "recv")
        _store.set("lonely", "")
    else:
        _store.wait(["lonely"])


def wrong_calls(rank: int, size: int) -> None:
    comm = shared_comm(rank, size)
    for call, text in (
        (lambda: comm.send(torch.ones(1), rank, False), "Cannot send to self"),
        (lambda: comm.recv(torch.ones(1), rank, False), "Cannot recv from self"),
        (lambda: comm.abort(), "abort not supported by backend gloo"),
        (lambda: comm.all_reduce(torch.ones(2, 2)[:, 0], torchcomms.ReduceOp.SUM, False), "cont"),
    ):
        with pytest.raises(torchcomms.CommError, match=text):
            call()
    comm.barrier(False)


def on_cuda(rank: int, size: int) -> str:
    with pytest.raises(torchcomms.CommError) as raised:
        torchcomms.new_comm("gloo", torch.device("cuda"), "cuda")
    return str(raised.value)


def interrupted(rank: int, size: int) -> None:
    """Ctrl-C ends a wait; the receive goes on, and so does the communicator."""
    comm = shared_comm(rank, size)
    if rank == 0:
        got = torch.zeros(1)
        work = comm.recv(got, 1, True)
        main = threading.main_thread().ident
        assert main is not None
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (the signal may come at once)
            threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT)).start()
            work.wait()
        assert not work.is_completed()
        _store.set("interrupted", "")
        work.wait()
        assert got.item() == 5
    else:
        _store.wait(["interrupted"])
        comm.send(torch.full((1,), 5.0), 0, False)
    comm.barrier(False)


def killed(rank: int, size: int) -> None:
    """The last rank is killed: the others' blocked and next calls raise.

    Gloo itself notices a dead peer only on a connection to it: who waits for a survivor that has
    given up learns of it at the deadline.
    """
    comm = shared_comm(rank, size)
    comm.barrier(False)
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    limit = datetime.timedelta(seconds=10)
    for _ in range(2):
        with pytest.raises((torchcomms.PeerLostError, torchcomms.CommTimeoutError)):
            comm.all_reduce(torch.ones(3), torchcomms.ReduceOp.SUM, False, timeout=limit)


def unseen(rank: int, size: int) -> None:
    """An error that nobody can see ends the process, if the options say so."""
    options = torchcomms.CommOptions()
    options.rank, options.size, options.store = rank, size, dist.PrefixStore("unseen", _store)
    options.abort_process_on_timeout_or_error = True
    comm = torchcomms.new_comm("gloo", CPU, "unseen", options=options)
    if rank == 0:
        short = datetime.timedelta(milliseconds=100)
        comm.all_reduce(torch.ones(3), torchcomms.ReduceOp.SUM, True, timeout=short)
        threading.Event().wait()  # for the end


def dropped(rank: int, size: int) -> None:
    """A communicator goes with operations under way that nobody answers."""
    comm = new_comm(rank, size, "dropped")
    if rank == 0:
        works = [comm.all_reduce(torch.ones(3), torchcomms.ReduceOp.SUM, True) for _ in range(2)]
        works.append(comm.recv(torch.ones(3), 1, True))
        del works
    del comm
    if rank == 0:
        _store.set("dropped", "")
    else:
        _store.wait(["dropped"])
