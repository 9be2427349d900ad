"""What torch.profiler shows of calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from torchcomms import ReduceOp, TorchComm

Every = Callable[[TorchComm, torch.Tensor], list[Callable[[], object]]]


def _profiled(calls: list[Callable[[], object]], folder: Path) -> list[dict[str, Any]]:
    """The events of a trace, as a viewer reads them."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for call in calls:
            call()
    file = folder / "trace.json"
    profiler.export_chrome_trace(str(file))
    events: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "cpu_op"]


def test_a_call_is_an_event_with_bytes_and_algorithm(
    threads: Callable[..., list[TorchComm]],
    on_each: Callable[..., list[Any]],
    tmp_path: Path,
) -> None:
    first, second = threads(2)
    tensors = torch.ones(2, 250)

    def call(rank: int) -> list[dict[str, Any]]:
        if rank == 1:
            return [{"work": second.all_reduce(tensors[1], ReduceOp.SUM, False)}]
        return _profiled([lambda: first.all_reduce(tensors[0], ReduceOp.SUM, False)], tmp_path)

    events = on_each(range(2), call)[0]
    (event,) = (one for one in events if one["name"] == "ctran:all_reduce")
    arguments = event["args"]
    assert int(arguments["bytes"]) == 1000
    assert arguments["communicator"].strip('"') == first.get_name()
    explained = first.explain("all_reduce", 1000).algorithm
    assert arguments["algorithm"].strip('"') == explained
    assert arguments["Input Dims"] == [[250]]
    (standard,) = (one for one in events if one["name"] == "record_param_comms")
    assert event["ts"] <= standard["ts"]
    assert standard["ts"] + standard["dur"] <= event["ts"] + event["dur"]
    for comm in (first, second):
        comm.finalize()


def test_the_standard_event_is_that_of_torch_distributed(
    fake: Callable[..., TorchComm], tmp_path: Path
) -> None:
    comm = fake(rank=1, size=4, name="profiled")
    data = torch.ones(5, dtype=torch.float64)
    gathered = torch.zeros(20, dtype=torch.float64)
    events = _profiled([lambda: comm.all_gather_single(gathered, data, False)], tmp_path)
    (standard,) = (one["args"] for one in events if one["name"] == "record_param_comms")
    assert standard["Collective name"] == "all_gather_single"
    assert standard["dtype"] == "Double"
    assert standard["In msg nelems"] == 5
    assert standard["Out msg nelems"] == 20
    assert standard["Group size"] == 4
    assert standard["Process Group Name"] == "profiled"


def test_every_operation_is_seen(
    fake: Callable[..., TorchComm], every_operation: Every, tmp_path: Path
) -> None:
    comm = fake(rank=1, size=4)
    calls = [*every_operation(comm, torch.ones(8)), lambda: comm.barrier(False)]
    named = [e["name"] for e in _profiled(calls, tmp_path) if e["name"].startswith("fake:")]
    assert len(named) == len(calls)
    assert {"fake:all_reduce", "fake:barrier", "fake:send", "fake:batch_op_issue"} <= set(named)


def test_what_fails_is_seen_too(fake: Callable[..., TorchComm], tmp_path: Path) -> None:
    comm = fake(rank=0, size=1)

    def refuse(*_: object) -> None:
        raise RuntimeError("no")

    comm.register_pre_hook(refuse)

    def call() -> None:
        with pytest.raises(RuntimeError, match="no"):
            comm.barrier(False)

    events = _profiled([call, call], tmp_path)
    assert [e["name"] for e in events if e["name"].startswith("fake:")] == ["fake:barrier"] * 2


def test_calls_of_torch_distributed_are_seen(tmp_path: Path) -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("cpu:ctran", store=store, rank=0, world_size=1)
    try:
        events = _profiled([lambda: torch.distributed.all_reduce(torch.ones(3))], tmp_path)
    finally:
        torch.distributed.destroy_process_group()
    assert "ctran:all_reduce" in {event["name"] for event in events}
