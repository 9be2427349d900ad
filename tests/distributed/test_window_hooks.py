"""Hooks of a communicator hear of its windows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from harness import Rank, Ranks
from harness.failing import until

from torchcomms import OpName, SignalCmpOp
from torchcomms.hooks import FlightRecorderHook

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def tells(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    peer = 1 - rank.rank
    before: list[tuple[OpName, Any]] = []
    after: list[Any] = []
    handles = [
        comm.register_pre_hook(lambda name, _id, args: before.append((name, args))),
        comm.register_post_hook(lambda _id, args: after.append(args)),
    ]
    memory = torch.zeros(8)
    window = comm.new_window(memory)
    assert before[0][0] == OpName.new_window
    assert before[0][1].tensor.data_ptr() == memory.data_ptr()
    assert after[0].window is window
    source = torch.full((2,), float(rank.rank))
    window.put(source, peer, 4, async_op=False)
    window.signal(peer, async_op=True, timeout=timedelta(seconds=3)).wait()
    window.wait_signal(peer, async_op=False)
    window.flush(peer, async_op=False)
    window.get(torch.zeros(3), peer, 1, async_op=True).wait()
    allocated = comm.window_allocate(64, True, 16)
    assert before[-1][0] == OpName.new_window
    assert before[-1][1].tensor is None
    allocated.signal(1, 5, peer, async_op=False)
    allocated.wait_signal(1, 5, SignalCmpOp.EQ, async_op=False)
    names = [name.name for name, _args in before]
    data = ["put", "signal", "wait_signal", "flush", "get"]
    assert names == ["new_window", *data, "new_window", "signal", "wait_signal"]
    put, signal, _wait, _flush, get = (args for _name, args in before[1:6])
    assert (put.tensor.data_ptr(), put.peer, put.offset) == (source.data_ptr(), peer, 4)
    assert (get.peer, get.offset, get.async_op) == (peer, 1, True)
    assert signal.timeout == timedelta(seconds=3)
    assert put.timeout == comm.get_options().timeout
    assert before[-1][1].peer == -1
    assert len(after) == len(before)
    for handle in handles:
        handle.remove()
    allocated.tensor_deregister()
    window.tensor_deregister()
    assert len(before) == len(names)


def test_windows_tell_the_hooks_of_their_communicator(ranks: MakeRanks) -> None:
    ranks(2).run(tells)


def is_recorded(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "with windows")
    recorder = FlightRecorderHook(isolated=True)
    recorder.register_with_comm(comm)
    peer = 1 - rank.rank
    window = comm.new_window(torch.zeros(8))
    window.put(torch.ones(2), peer, 0, async_op=False)
    window.signal(peer, async_op=True).wait()
    window.wait_signal(peer, async_op=True).wait()
    window.flush(peer, async_op=False)
    window.get(torch.zeros(3), peer, 0, async_op=False)
    window.tensor_deregister()
    allocated = comm.window_allocate(64, True, 16)
    allocated.signal(1, 5, rank.rank, async_op=False)
    allocated.wait_signal(1, 5, SignalCmpOp.EQ, async_op=False)
    dump = json.loads(recorder.dump_json())
    assert [entry["profiling_name"].partition(":")[2] for entry in dump["entries"]] == [
        "new_window",
        f"put {rank.rank}->{peer}",
        f"signal {rank.rank}->{peer}",
        f"wait_signal {rank.rank}<-{peer}",
        f"flush {rank.rank}->{peer}",
        f"get {rank.rank}<-{peer}",
        "new_window",
        f"signal {rank.rank}->{rank.rank}",
        f"wait_signal {rank.rank}<-?",
    ]
    assert all(entry["state"] == "completed" for entry in dump["entries"])
    put, get = dump["entries"][1], dump["entries"][5]
    assert (put["input_sizes"], put["output_sizes"]) == ([[2]], [])
    assert (get["input_sizes"], get["output_sizes"]) == ([], [[3]])
    # Nobody else has to match them: a group of this rank alone, with numbers of its own.
    assert put["process_group"][0] == "with windows/windows"
    assert dump["pg_config"]["with windows/windows"]["ranks"] == f"[{rank.rank}]"
    assert [put["collective_seq_id"], get["collective_seq_id"]] == [1, 5]
    assert [dump["entries"][i]["collective_seq_id"] for i in (0, 6)] == [1, 2]
    # One that has not come yet.
    late = allocated.wait_signal(1, 9, SignalCmpOp.EQ, async_op=True)
    (waiting,) = json.loads(recorder.dump_json(include_completed=False))["entries"]
    assert waiting["state"] in ("scheduled", "started")
    allocated.signal(1, 9, rank.rank, async_op=False)
    late.wait()
    # The thread that has ended it tells the recorder after it has let others go on.
    until(
        lambda: json.loads(recorder.dump_json(include_completed=False))["entries"] == [],
        "end of the record",
    )
    allocated.tensor_deregister()
    comm.finalize()


def test_the_flight_recorder_records_windows(ranks: MakeRanks) -> None:
    ranks(2).run(is_recorded)
