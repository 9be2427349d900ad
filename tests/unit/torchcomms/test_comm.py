"""TorchComm as a Python object, and the ways to spell a call."""

from __future__ import annotations

import copy
import gc
import importlib
import inspect
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

import torchcomms
from torchcomms import ReduceOp, TorchComm, WorkStatus


def test_identity(alone: TorchComm) -> None:
    assert copy.copy(alone) is alone
    window = alone.new_window(torch.zeros(1))
    for shared in (alone, window):
        memo: dict[int, Any] = {}
        assert copy.deepcopy({"it": shared}, memo)["it"] is shared
        assert memo[id(shared)] is shared
    window.tensor_deregister()


def test_every_communicator_has_an_init_handle(alone: TorchComm) -> None:
    child = alone.split([0], "child")
    assert child is not None
    handles = [comm.get_init_handle() for comm in (alone, alone, child)]
    assert handles[0] == handles[1] != handles[2]
    assert handles[0].startswith("ctran:0:")
    child.finalize()


def test_communicators_of_gloo_have_their_usual_name() -> None:
    assert importlib.import_module("torchcomms._comms_gloo").TorchCommGloo is TorchComm


def test_weak_references() -> None:
    comm = torchcomms.new_comm("fake", torch.device("cpu"))
    reference = weakref.ref(comm)
    assert reference() is comm
    del comm
    gc.collect()
    assert reference() is None


def test_a_batch_keeps_its_communicator() -> None:
    comm = torchcomms.new_comm("fake", torch.device("cpu"))
    batch = comm.batch_op_create()
    batch.send(torch.ones(1), 0)
    del comm
    gc.collect()
    assert batch.issue(async_op=True).is_completed()


def test_options_are_a_copy(alone: TorchComm) -> None:
    alone.get_options().timeout = timedelta(seconds=1)
    assert alone.get_options().timeout != timedelta(seconds=1)


def test_versions(alone: TorchComm) -> None:
    assert alone.get_backend() == "ctran"
    assert alone.get_backend_version() == torchcomms.__version__


def test_a_world_of_one(alone: TorchComm) -> None:
    values = torch.arange(6.0)
    tensor = values.clone()
    for async_op in (False, True):
        alone.all_reduce(tensor, ReduceOp.SUM, async_op).wait()
        alone.broadcast(tensor, 0, async_op).wait()
        alone.reduce(tensor, 0, ReduceOp.MAX, async_op).wait()
        alone.barrier(async_op).wait()
        assert torch.equal(tensor, values)
        for move in (
            lambda out, a=async_op: alone.all_gather([out], values, a),
            lambda out, a=async_op: alone.all_gather_v([out], values, a),
            lambda out, a=async_op: alone.all_gather_single(out, values, a),
            lambda out, a=async_op: alone.reduce_scatter(out, [values], ReduceOp.SUM, a),
            lambda out, a=async_op: alone.reduce_scatter_v(out, [values], ReduceOp.SUM, a),
            lambda out, a=async_op: alone.reduce_scatter_single(out, values, ReduceOp.AVG, a),
            lambda out, a=async_op: alone.all_to_all_single(out, values, a),
            lambda out, a=async_op: alone.all_to_all_v_single(out, values, [6], [6], a),
            lambda out, a=async_op: alone.all_to_all([out], [values], a),
            lambda out, a=async_op: alone.scatter(out, [values], 0, a),
            lambda out, a=async_op: alone.gather([out], values, 0, a),
            lambda out, a=async_op: alone.gather_single(out, values, 0, a),
        ):
            out = torch.full((6,), -1.0)
            move(out).wait()
            assert torch.equal(out, values)


def test_both_spellings() -> None:
    comm = torchcomms.new_comm("fake", torch.device("cpu"))
    a, b = torch.zeros(2), torch.zeros(2)
    none = {"async_op": False, "hints": None, "timeout": None}
    comm.all_to_all(output_tensor_list=[a], input_tensor_list=[b], **none)
    comm.all_to_all(output_list=[a], input_list=[b], **none)
    comm.all_to_all_v_single(
        output=a, input=b, output_split_sizes=[2], input_split_sizes=[2], **none
    )
    comm.all_to_all_v_single(output=a, input=b, output_splits=[2], input_splits=[2], **none)
    comm.scatter(output_tensor=a, input_tensor_list=[b], root=0, **none)
    comm.scatter(output=a, input_list=[b], root=0, **none)
    comm.gather(output_tensor_list=[a], input_tensor=b, root=0, **none)
    comm.gather(output_list=[a], input=b, root=0, **none)


def test_names_need_not_be_interned() -> None:
    comm = torchcomms.new_comm("fake", torch.device("cpu"))
    arguments = {"".join(["ten", "sor"]): torch.zeros(1), "".join(["o", "p"]): ReduceOp.SUM}
    assert comm.all_reduce(**arguments, async_op=False).is_completed()


def test_hints_timeouts_and_options_of_a_call(alone: TorchComm) -> None:
    tensor = torch.ones(2)
    timeout = timedelta(seconds=60)
    options = torchcomms.AllReduceOptions(hints={"a": "b"}, timeout=timeout)
    alone.all_reduce(tensor, ReduceOp.SUM, False, {"a": "b"}, timeout)
    alone.all_reduce(tensor, ReduceOp.SUM, False, hints={"a": "b"}, timeout=timeout)
    alone.all_reduce(tensor, ReduceOp.SUM, False, options=options)
    batch = alone.batch_op_create()
    batch.send(tensor, 0)
    received = torch.zeros(2)
    batch.recv(received, 0)
    batch.issue(False, torchcomms.BatchP2POptions(timeout=timeout))
    assert torch.equal(received, tensor)


def test_sequences_of_tensors() -> None:
    comm = torchcomms.new_comm("fake", torch.device("cpu"))
    tensor = torch.zeros(1)
    for sequence in ([tensor], (tensor,)):
        comm.all_gather(sequence, tensor, False)


def test_parameters_are_named(alone: TorchComm) -> None:
    parameters = inspect.signature(alone.reduce_scatter_single).parameters
    expected = ["output", "input", "op", "async_op", "hints", "timeout", "options"]
    assert list(parameters) == expected
    assert parameters["hints"].default is None
    assert parameters["options"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "in place" in (TorchComm.all_gather_single.__doc__ or "")


def test_batches_keep_their_operations(alone: TorchComm) -> None:
    batch = alone.batch_op_create()
    first, second = torch.zeros(2), torch.ones(2)
    batch.send(second, 0)
    batch.recv(first, 0)
    kinds = [(op.type, op.peer) for op in batch.ops]
    assert kinds == [(torchcomms.P2POpType.SEND, 0), (torchcomms.P2POpType.RECV, 0)]
    work = batch.issue(async_op=True)
    work.wait()
    assert work.status == WorkStatus.COMPLETED
    assert torch.equal(first, second)
    second.mul_(3)
    batch.issue(async_op=False)
    assert torch.equal(first, second)
    batch.ops = [torchcomms.P2POp(torchcomms.P2POpType.SEND, second, 0)]
    assert len(batch.ops) == 1


def test_dup_is_the_same_group_with_the_same_options(
    threads: Callable[..., list[TorchComm]], on_each: Callable[..., list[Any]]
) -> None:
    def one(comm: TorchComm) -> None:
        comm.set_timeout(timedelta(seconds=77))
        comm.set_hints({"key": "value"})
        assert comm.get_options().hints == {"key": "value"}
        copied = comm.dup("copied")
        assert copied.get_name() == "copied"
        assert copied.get_ranks() == comm.get_ranks()
        assert copied.get_rank() == comm.get_rank()
        options = copied.get_options()
        assert (options.timeout, options.hints) == (timedelta(seconds=77), {"key": "value"})
        assert options.abort_process_on_timeout_or_error is False
        total = torch.ones(1)
        copied.all_reduce(total, ReduceOp.SUM, async_op=False)
        assert total.item() == 3
        comm.barrier(async_op=False)
        copied.abort()  # of no concern to the other
        comm.barrier(async_op=False)

    on_each(threads(3), one)
