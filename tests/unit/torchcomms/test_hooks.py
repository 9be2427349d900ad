"""Hooks of communicators and of works."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch

import torchcomms
from torchcomms import AbortedError, CommTimeoutError, OpName, ReduceOp, TorchComm, WorkStatus

Fake = Callable[..., TorchComm]
Make = Callable[..., list[TorchComm]]
OnEach = Callable[[Any, Callable[[Any], Any]], list[Any]]
GUARD = timedelta(seconds=60)
SOON = timedelta(milliseconds=50)

T = torch.zeros(8)
PART, WHOLE = torch.zeros(2), torch.zeros(8)
PARTS = [torch.zeros(2) for _ in range(4)]
COUNTS, LEARNED, INDICES = (torch.ones(n, dtype=torch.int64) for n in (4, 4, 4))


def batch(comm: TorchComm, async_op: bool) -> object:
    made = comm.batch_op_create()
    made.send(T, 0)
    made.recv(T, 2)
    return made.issue(async_op)


# Operation: the call on rank 1 of 4, and what its arguments hold besides async_op and timeout.
CALLS: dict[str, tuple[Callable[[TorchComm, bool], object], dict[str, Any]]] = {
    "send": (lambda c, a: c.send(T, 2, a), {"tensor": T, "peer": 2}),
    "recv": (lambda c, a: c.recv(T, 3, a), {"tensor": T, "peer": 3}),
    "batch_op_issue": (batch, {"num_ops": 2}),
    "broadcast": (lambda c, a: c.broadcast(T, 3, a), {"tensor": T, "root": 3}),
    "all_reduce": (
        lambda c, a: c.all_reduce(T, ReduceOp.MAX, a),
        {"tensor": T, "op": ReduceOp.MAX},
    ),
    "reduce": (
        lambda c, a: c.reduce(T, 2, ReduceOp.SUM, a),
        {"tensor": T, "root": 2, "op": ReduceOp.SUM},
    ),
    "all_gather": (lambda c, a: c.all_gather(PARTS, PART, a), {"input": PART, "output": PARTS}),
    "all_gather_v": (lambda c, a: c.all_gather_v(PARTS, PART, a), {"input": PART, "output": PARTS}),
    "all_gather_single": (
        lambda c, a: c.all_gather_single(WHOLE, PART, a),
        {"input": PART, "output": WHOLE},
    ),
    "reduce_scatter": (
        lambda c, a: c.reduce_scatter(PART, PARTS, ReduceOp.SUM, a),
        {"input": PARTS, "output": PART, "op": ReduceOp.SUM},
    ),
    "reduce_scatter_v": (
        lambda c, a: c.reduce_scatter_v(PART, PARTS, ReduceOp.SUM, a),
        {"input": PARTS, "output": PART, "op": ReduceOp.SUM},
    ),
    "reduce_scatter_single": (
        lambda c, a: c.reduce_scatter_single(PART, WHOLE, ReduceOp.AVG, a),
        {"input": WHOLE, "output": PART, "op": ReduceOp.AVG},
    ),
    "all_to_all_single": (
        lambda c, a: c.all_to_all_single(WHOLE, T, a),
        {"input": T, "output": WHOLE},
    ),
    "all_to_all_v_single": (
        lambda c, a: c.all_to_all_v_single(WHOLE, T, [1, 2, 3, 2], [3, 2, 2, 1], a),
        {
            "input": T,
            "output": WHOLE,
            "input_split_sizes": [3, 2, 2, 1],
            "output_split_sizes": [1, 2, 3, 2],
        },
    ),
    "all_to_all_v_dynamic": (
        lambda c, a: c.all_to_all_v_dynamic(WHOLE, T, LEARNED, COUNTS, a),
        {
            "input": T,
            "output": [WHOLE],
            "input_split_sizes": COUNTS,
            "output_split_sizes": LEARNED,
        },
    ),
    "device_alltoallv_single": (
        lambda c, a: c.device_alltoallv_single(WHOLE, T, LEARNED, COUNTS, a),
        {"input": T, "output": [WHOLE], "output_split_sizes": LEARNED},
    ),
    "alltoallv_dynamic_dispatch": (
        lambda c, a: c.alltoallv_dynamic_dispatch(
            PARTS, torch.zeros(16, dtype=torch.int64), T, INDICES, INDICES, COUNTS, 2, a
        ),
        {"input": T, "output": PARTS, "input_split_sizes": COUNTS, "output_split_sizes": None},
    ),
    "alltoallv_dynamic_combine": (
        lambda c, a: c.alltoallv_dynamic_combine(WHOLE, T, INDICES, INDICES, COUNTS, 2, a),
        {"input": T, "output": [WHOLE], "input_split_sizes": COUNTS},
    ),
    "all_to_all_v_dedup": (
        lambda c, a: c.all_to_all_v_dedup(WHOLE, T, LEARNED, INDICES, COUNTS, a),
        {"input": T, "output": [WHOLE], "output_split_sizes": LEARNED},
    ),
    "all_to_all_v_dedup_combine": (
        lambda c, a: c.all_to_all_v_dedup_combine(WHOLE, T, None, LEARNED, INDICES, COUNTS, a),
        {"input": T, "output": [WHOLE], "input_split_sizes": COUNTS},
    ),
    "all_to_all": (lambda c, a: c.all_to_all(PARTS, PARTS, a), {"input": PARTS, "output": PARTS}),
    "barrier": (lambda c, a: c.barrier(a), {}),
    "scatter": (
        lambda c, a: c.scatter(PART, PARTS, 1, a),
        {"input": PARTS, "output": PART, "root": 1},
    ),
    "gather": (
        lambda c, a: c.gather(PARTS, PART, 1, a),
        {"input": PART, "output": PARTS, "root": 1},
    ),
    "gather_single": (
        lambda c, a: c.gather_single(WHOLE, PART, 1, a),
        {"input": PART, "output": WHOLE, "root": 1},
    ),
}


def class_name(operation: str) -> str:
    if operation.startswith(("all_to_all_v_d", "alltoallv_d", "device_alltoallv")):
        return "AllToAllVDynamic"
    return "".join(part.capitalize() for part in operation.split("_"))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.data_ptr() == b.data_ptr() and a.shape == b.shape
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
def test_every_operation_tells_its_hooks(fake: Fake, operation: str, async_op: bool) -> None:
    comm = fake(timeout=timedelta(seconds=7))
    told: list[tuple[Any, ...]] = []
    works: list[object] = []

    def post(op_id: int, args: Any) -> None:
        told.append((op_id, args))
        works.append(args.work)

    comm.register_pre_hook(lambda *args: told.append(args))
    comm.register_post_hook(post)
    call, expected = CALLS[operation]
    work = call(comm, async_op)

    (name, op_id, before), (op_id_after, after) = told
    assert name == getattr(OpName, operation)
    assert op_id == op_id_after
    assert type(before) is getattr(torchcomms, class_name(operation) + "PreHookArgs")
    assert before.async_op is async_op
    assert before.timeout == timedelta(seconds=7)
    for field, value in expected.items():
        assert same(getattr(before, field), value), field
    kind = "BatchOpIssue" if operation == "batch_op_issue" else "Collective"
    assert type(after) is getattr(torchcomms, kind + "PostHookArgs")
    assert works == [work]
    del work, works[:]
    gc.collect()
    assert after.work is None


def test_a_batch_tells_its_operations(fake: Fake) -> None:
    told: list[Any] = []
    comm = fake()
    comm.register_pre_hook(lambda _name, _id, args: told.append(args))
    batch(comm, True)
    assert [(op.type.name, op.peer) for op in told[0].ops] == [("SEND", 0), ("RECV", 2)]


def test_the_timeout_of_the_call_is_told(fake: Fake) -> None:
    told: list[Any] = []
    comm = fake()
    comm.register_pre_hook(lambda _name, _id, args: told.append(args.timeout))
    comm.barrier(False, timeout=timedelta(seconds=3))
    assert told == [timedelta(seconds=3)]


def test_split_and_finalize_tell(fake: Fake) -> None:
    comm = fake()
    before: list[Any] = []
    after: list[Any] = []
    comm.register_pre_hook(lambda name, _id, args: before.append((name, args)))
    comm.register_post_hook(lambda _id, args: after.append(args))
    child = comm.split([1, 2], "child")
    assert before[0][0] == OpName.split
    assert (before[0][1].ranks, before[0][1].name) == ([1, 2], "child")
    assert after[0].new_comm is child
    del child
    gc.collect()
    assert after[0].new_comm is None
    assert comm.split([], "none") is None
    assert before[1][1].ranks == []
    assert after[1].new_comm is None
    comm.finalize()
    assert before[2][0] == OpName.finalize
    assert isinstance(before[2][1], torchcomms.FinalizePreHookArgs)
    assert isinstance(after[2], torchcomms.FinalizePostHookArgs)
    assert (len(before), len(after)) == (3, 3)


def test_hooks_are_called_in_the_order_of_registration(fake: Fake) -> None:
    comm = fake()
    order: list[int] = []
    handles = []
    for i in range(9):
        handles.append(comm.register_pre_hook(lambda *_args, i=i: order.append(i)))
        handles.append(comm.register_post_hook(lambda *_args, i=i: order.append(10 + i)))
    comm.barrier(False)
    assert order == [*range(9), *range(10, 19)]
    order.clear()
    handles[2].remove()
    handles[2].remove()
    handles[7].remove()
    comm.barrier(False)
    assert order == [0, *range(2, 9), 10, 11, 12, *range(14, 19)]


def test_a_hook_may_remove_hooks(fake: Fake) -> None:
    comm = fake()
    order: list[str] = []

    def first(*_args: object) -> None:
        order.append("first")
        own.remove()
        others.remove()

    own = comm.register_pre_hook(first)
    others = comm.register_pre_hook(lambda *_args: order.append("second"))
    comm.barrier(False)
    comm.barrier(False)
    assert order == ["first"]


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_hook_may_register_hooks(fake: Fake, kind: str) -> None:
    comm = fake()
    calls: list[str] = []
    register = getattr(comm, f"register_{kind}_hook")

    def first(*_args: object) -> None:
        calls.append("first")
        register(lambda *_args: calls.append("later"))

    register(first)
    for _ in range(3):  # what is registered in a call is called in the next one
        comm.barrier(False)
    assert calls == ["first", "first", "later", "first", "later", "later"]


def test_numbers_count_the_operations_of_all_communicators(fake: Fake) -> None:
    numbers: list[int] = []
    comms = [fake(), fake()]
    for comm in comms:
        comm.register_pre_hook(lambda _name, op_id, _args: numbers.append(op_id))
    for _ in range(3):
        for comm in comms:
            comm.barrier(False)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 6


def test_hooks_hear_of_calls_that_are_made_alone(fake: Fake) -> None:
    comm = fake()
    told: list[object] = []
    comm.register_pre_hook(lambda *_args: told.append("pre"))
    comm.register_post_hook(lambda *_args: told.append("post"))
    with pytest.raises(torchcomms.CommError):
        comm.send(T, 9, False)
    comm.get_rank()
    assert told == []
    child = comm.split([1])
    assert child is not None
    told.clear()
    child.barrier(False)  # has hooks of its own
    assert told == []


def test_an_exception_in_a_pre_hook_stops_the_call(threads: Make, on_each: OnEach) -> None:
    called: list[str] = []

    def refuse(name: OpName, _id: int, _args: object) -> None:
        called.append("refuse")
        raise KeyError(f"not {name.name}")

    def one(comm: TorchComm) -> float:
        tensor = torch.ones(2)
        if comm.get_rank() == 0:
            handle = comm.register_pre_hook(refuse)
            comm.register_pre_hook(lambda *_args: called.append("second"))
            comm.register_post_hook(lambda *_args: called.append("post"))
            for async_op in (False, True):
                with pytest.raises(KeyError, match="not all_reduce"):
                    comm.all_reduce(tensor, ReduceOp.SUM, async_op)
            with pytest.raises(KeyError, match="not split"):
                comm.split([0, 1])
            assert called == ["refuse"] * 3
            handle.remove()
            assert tensor.tolist() == [1, 1]
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        assert comm.split([0, 1]) is not None
        return tensor[0].item()

    assert on_each(threads(2), one) == [2, 2]
    assert called[3:] == ["second", "post"] * 2


def test_an_exception_in_a_post_hook_reaches_the_caller(threads: Make, on_each: OnEach) -> None:
    def refuse(_id: int, _args: object) -> None:
        raise ValueError("looked at it")

    def one(comm: TorchComm) -> float:
        tensor = torch.ones(2)
        handle = comm.register_post_hook(refuse)
        with pytest.raises(ValueError, match="looked at it"):
            comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        handle.remove()
        comm.barrier(async_op=False)
        return tensor[0].item()

    assert on_each(threads(2), one) == [2, 2]


def test_a_failed_operation_has_no_post_hook(threads: Make) -> None:
    first, _second = threads(2)
    told: list[str] = []
    first.register_pre_hook(lambda name, *_rest: told.append(name.name))
    first.register_post_hook(lambda *_args: told.append("post"))
    first.register_abort_hook(lambda: told.append("abort"))
    first.register_abort_hook(lambda: told.append("abort, too"))
    with pytest.raises(CommTimeoutError):
        first.all_reduce(torch.ones(1), ReduceOp.SUM, async_op=False, timeout=SOON)
    assert told == ["all_reduce", "abort", "abort, too"]
    with pytest.raises(CommTimeoutError):
        first.barrier(async_op=False)
    first.abort()
    assert told == ["all_reduce", "abort", "abort, too", "barrier"]  # broken once


def test_abort_hooks_hear_of_asynchronous_failures(threads: Make) -> None:
    first, second = threads(2)
    told = threading.Event()
    first.all_reduce(torch.ones(1), ReduceOp.SUM, async_op=True)  # nobody holds its work
    first.register_abort_hook(told.set)
    second.abort()
    assert told.wait(60)


def test_abort_hooks_precede_the_abort(threads: Make, fake: Fake) -> None:
    comm, _other = threads(2)
    for made in (comm, fake()):
        states: list[bool] = []
        made.register_abort_hook(lambda made=made, states=states: states.append(made.is_aborted()))
        made.abort()
        made.abort()
        assert states == [False]
        assert made.is_aborted()


def test_what_an_abort_hook_raises_stops_nothing(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    comm = fake()
    told: list[str] = []
    error = RuntimeError("in the hook")

    def fail() -> None:
        raise error

    comm.register_abort_hook(fail)
    comm.register_abort_hook(lambda: told.append("second"))
    comm.abort()
    assert told == ["second"]
    assert reported == [error]
    with pytest.raises(AbortedError):
        comm.barrier(False)


def test_a_finalized_communicator_lets_go_of_its_hooks(fake: Fake) -> None:
    class Holder:
        def hook(self, *_args: object) -> None:
            pass

    comm = fake()
    holder = Holder()
    comm.register_pre_hook(holder.hook)
    comm.register_post_hook(holder.hook)
    comm.register_abort_hook(holder.hook)
    reference = weakref.ref(holder)
    del holder
    assert reference() is not None
    comm.finalize()
    gc.collect()
    assert reference() is None


def test_hooks_of_works(threads: Make) -> None:
    first, second = threads(2)
    ended = threading.Event()
    told: list[object] = []
    # Behind another operation it cannot start.
    ahead = first.recv(torch.zeros(1), 1, async_op=True)
    work = first.recv(torch.zeros(1), 1, async_op=True)
    work.register_start_hook(lambda: told.append("start"))
    work.register_end_hook(lambda: told.append("end"))
    work.add_done_callback(lambda done: told.append(done.status))
    work.register_end_hook(ended.set)
    work.register_wait_pre_hook(lambda: told.append("before"))
    work.register_wait_post_hook(lambda: told.append("after"))
    assert work.wait(SOON) is False
    assert told == ["before"]
    second.send(torch.ones(1), 0, async_op=False)
    second.send(torch.ones(1), 0, async_op=False)
    assert ended.wait(60)
    work.wait()
    work.wait_blocking()
    ahead.wait()
    waits = [t for t in told if t in ("before", "after")]
    assert waits == ["before", "before", "after", "before", "after"]
    assert [t for t in told if t not in waits] == ["start", "end", WorkStatus.COMPLETED]
    work.register_start_hook(lambda: told.append("start again"))
    work.register_end_hook(lambda: told.append("end again"))
    assert told[-2:] == ["start again", "end again"]


def test_hooks_of_the_work_of_a_batch(threads: Make) -> None:
    first, second = threads(2)
    told: list[str] = []
    ended = threading.Event()
    made = first.batch_op_create()
    for _ in range(2):
        made.recv(torch.zeros(1), 1)
    work = made.issue(async_op=True)
    work.register_start_hook(lambda: told.append("start"))
    work.register_end_hook(lambda: told.append("end"))
    work.register_end_hook(ended.set)
    second.send(torch.ones(1), 0, async_op=False)
    second.send(torch.ones(1), 0, async_op=False)
    assert ended.wait(60)
    assert told == ["start", "end"]


def test_a_failed_work_ends_too(threads: Make) -> None:
    first, _second = threads(2)
    told: list[object] = []
    ended = threading.Event()
    work = first.recv(torch.zeros(1), 1, async_op=True)
    work.add_done_callback(lambda done: told.append(done.exception()))
    work.register_end_hook(ended.set)
    work.register_wait_post_hook(lambda: told.append("after"))
    first.abort()
    with pytest.raises(AbortedError):
        work.wait()
    assert ended.wait(60)
    assert len(told) == 1
    assert isinstance(told[0], AbortedError)


def test_a_hook_of_waits_can_refuse(threads: Make) -> None:
    first, second = threads(2)
    work = first.recv(torch.zeros(1), 1, async_op=True)
    second.send(torch.ones(1), 0, async_op=False)

    def refuse() -> None:
        raise ValueError("not yet")

    work.register_wait_pre_hook(refuse)
    with pytest.raises(ValueError, match="not yet"):
        work.wait()


def test_a_post_hook_can_hook_every_work(fake: Fake, alone: TorchComm) -> None:
    for comm in (fake(), alone):
        told: list[str] = []

        def post(_id: int, args: Any, told: list[str] = told) -> None:
            args.work.register_start_hook(lambda: told.append("start"))
            args.work.register_end_hook(lambda: told.append("end"))
            args.work.register_wait_pre_hook(lambda: told.append("before"))
            args.work.register_wait_post_hook(lambda: told.append("after"))

        comm.register_post_hook(post)
        comm.barrier(async_op=False).wait()
        assert told == ["start", "end", "before", "after"]
        comm.barrier(async_op=False)
        assert told == ["start", "end", "before", "after", "start", "end"]


def test_the_work_that_stands_for_many_has_no_waits_of_its_own(fake: Fake) -> None:
    work = fake().barrier(async_op=False)
    with pytest.raises(torchcomms.CommError, match="in a post-hook"):
        work.register_wait_pre_hook(lambda: None)
    told: list[str] = []
    work.register_end_hook(lambda: told.append("end"))
    assert told == ["end"]


@pytest.mark.skipif(not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0")
def test_hooks_on_gloo() -> None:
    options = torchcomms.CommOptions()
    options.rank, options.size = 0, 1
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), options=options)
    told: list[str] = []
    ended = threading.Event()
    comm.register_pre_hook(lambda name, *_rest: told.append(name.name))
    work = comm.barrier(async_op=True)
    work.register_start_hook(lambda: told.append("start"))
    work.register_end_hook(ended.set)
    work.register_wait_post_hook(lambda: told.append("waited"))
    work.wait()
    assert ended.wait(60)
    assert told == ["barrier", "start", "waited"]
    comm.finalize()
