"""FlightRecorderHook, clog and NanCheckHook on one rank, or on ranks that are threads."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

import torchcomms
from torchcomms import ReduceOp, TorchComm
from torchcomms.hooks import FlightRecorderHook, NanCheckHook, clog

Fake = Callable[..., TorchComm]
Make = Callable[..., list[TorchComm]]
OnEach = Callable[[Any, Callable[[Any], Any]], list[Any]]
SOON = timedelta(milliseconds=50)
NAN = torch.tensor([1.0, float("nan")])


def recorded(*comms: TorchComm, **arguments: Any) -> FlightRecorderHook:
    recorder = FlightRecorderHook(isolated=True, **arguments)
    for comm in comms:
        recorder.register_with_comm(comm)
    return recorder


def entries(recorder: FlightRecorderHook, include_completed: bool = True) -> list[dict[str, Any]]:
    found = json.loads(recorder.dump_json(include_completed))["entries"]
    assert isinstance(found, list)
    return found


def test_an_entry_says_what_when_and_how_far(fake: Fake) -> None:
    comm = fake(name="world", timeout=timedelta(seconds=9))
    recorder = recorded(comm)
    comm.reduce_scatter_single(torch.zeros(2, 3), torch.zeros(8, 3), ReduceOp.SUM, async_op=False)
    dump = json.loads(recorder.dump_json())
    assert dump["version"] == "2.10"
    assert dump["comm_lib_version"] == torchcomms.__version__
    assert dump["pg_config"] == {
        "world": {"name": "world", "desc": "undefined", "ranks": "[0,1,2,3]"}
    }
    assert dump["pg_status"]["0"]["last_completed_collective"] == 1
    (entry,) = dump["entries"]
    assert entry["profiling_name"] == "fake:reduce_scatter_single"
    assert entry["process_group"] == ["world", "undefined"]
    assert (entry["input_sizes"], entry["output_sizes"]) == ([[8, 3]], [[2, 3]])
    assert (entry["input_dtypes"], entry["output_dtypes"]) == (["Float"], ["Float"])
    assert (entry["collective_seq_id"], entry["p2p_seq_id"]) == (1, 0)
    assert (entry["state"], entry["retired"], entry["is_p2p"]) == ("completed", True, False)
    assert entry["timeout_ms"] == 9000
    assert entry["thread_id"] == str(threading.get_native_id())
    assert (
        0
        < entry["time_created_ns"]
        <= entry["time_discovered_started_ns"]
        <= entry["time_discovered_completed_ns"]
    )
    took = entry["time_discovered_completed_ns"] - entry["time_discovered_started_ns"]
    assert entry["duration_ms"] == pytest.approx(took / 1e6)


def test_numbers_are_of_the_communicator(fake: Fake) -> None:
    first, second = fake(name="first"), fake(name="second")
    first.barrier(False)  # before the recorder
    recorder = recorded(first, second)
    t = torch.zeros(4)
    first.barrier(False)
    second.barrier(False)
    second.all_reduce(t, ReduceOp.SUM, False)
    second.send(t, 2, False)
    second.recv(t, 0, False)
    batch = second.batch_op_create()
    batch.send(t, 2)
    batch.recv(t, 0)
    batch.issue(False)
    second.barrier(False)
    first.barrier(False)
    assert [
        (e["process_group"][0], e["profiling_name"], e["collective_seq_id"], e["p2p_seq_id"])
        for e in entries(recorder)
    ] == [
        ("first", "fake:barrier", 1, 0),
        ("second", "fake:barrier", 1, 0),
        ("second", "fake:all_reduce", 2, 0),
        ("second", "fake:send 1->2", 2, 1),
        ("second", "fake:recv 1<-0", 2, 2),
        ("second", "fake:send 1->2", 2, 3),
        ("second", "fake:recv 1<-0", 2, 3),
        ("second", "fake:coalesced", 2, 3),
        ("second", "fake:barrier", 3, 3),
        ("first", "fake:barrier", 2, 0),
    ]
    assert [e["is_p2p"] for e in entries(recorder)] == [False] * 3 + [True] * 5 + [False] * 2
    assert [e["record_id"] for e in entries(recorder)] == list(range(10))


def test_an_operation_retires_when_it_has_ended(threads: Make) -> None:
    first, second = threads(2)
    recorder = recorded(first)
    works = [first.recv(torch.zeros(1), 1, async_op=True) for _ in range(2)]
    states = [(e["state"], e["retired"]) for e in entries(recorder)]
    assert states[1] == ("scheduled", False)
    assert states[0] in (("scheduled", False), ("started", False))
    assert len(entries(recorder, include_completed=False)) == 2
    ended = threading.Event()
    works[0].register_end_hook(ended.set)  # told after the recorder
    second.send(torch.ones(1), 0, async_op=False)
    assert ended.wait(60)
    assert [e["state"] == "completed" for e in entries(recorder)] == [True, False]
    (left,) = entries(recorder, include_completed=False)
    assert left["record_id"] == 1
    first.abort()
    with pytest.raises(torchcomms.AbortedError):
        works[1].wait()
    assert entries(recorder)[1]["retired"] is False  # it has failed


def test_the_oldest_are_forgotten(fake: Fake) -> None:
    comm = fake()
    recorder = recorded(comm, max_entries=3)
    for _ in range(5):
        comm.barrier(False)
    assert (recorder.size(), len(recorder)) == (3, 3)
    assert [e["collective_seq_id"] for e in entries(recorder)] == [3, 4, 5]
    recorder.reset()
    assert len(recorder) == 0
    comm.barrier(False)
    assert [e["collective_seq_id"] for e in entries(recorder)] == [6]
    recorder.unregister()
    comm.barrier(False)
    assert len(recorder) == 1


def test_zero_entries_are_no_recorder(fake: Fake) -> None:
    comm = fake()
    recorder = recorded(comm, max_entries=0)
    comm.barrier(False)
    assert not recorder.is_enabled()
    assert (recorder.size(), entries(recorder)) == (0, [])


def test_a_recorder_is_enabled_while_it_has_communicators(fake: Fake) -> None:
    recorder = FlightRecorderHook(isolated=True)
    assert not recorder.is_enabled()
    recorder.register_with_comm(fake())
    assert recorder.is_enabled()
    recorder.unregister()
    assert not recorder.is_enabled()


def test_what_is_split_is_recorded_too(fake: Fake) -> None:
    comm = fake(name="world", rank=1)
    recorder = recorded(comm)
    recorder.register_with_comm(comm)  # once is enough
    child = comm.split([0, 1], "child")
    assert child is not None
    recorder.register_with_comm(child)
    grandchild = child.split([1], "grandchild")
    assert grandchild is not None
    grandchild.barrier(False)
    assert comm.split([], "none") is None
    assert [(e["process_group"][0], e["profiling_name"]) for e in entries(recorder)] == [
        ("world", "fake:split"),
        ("child", "fake:split"),
        ("grandchild", "fake:barrier"),
        ("world", "fake:split"),
    ]
    groups = json.loads(recorder.dump_json())["pg_config"]
    assert {name: group["ranks"] for name, group in groups.items()} == {
        "world": "[0,1,2,3]",
        "child": "[0,1]",
        "grandchild": "[1]",
    }
    recorder.unregister()
    grandchild.barrier(False)
    assert len(recorder) == 4


def test_finalize_takes_no_op_id(fake: Fake) -> None:
    first, second = fake(), fake()
    told: list[int] = []
    for comm in (first, second):
        comm.register_pre_hook(lambda name, op_id, args: told.append(op_id))
    first.barrier(False)
    first.finalize()
    second.barrier(False)
    assert told == [told[0], 0, told[0] + 1]
    assert told[0] > 0


def test_recorders_share_unless_isolated(fake: Fake) -> None:
    comm = fake(name="shared")
    one, other = FlightRecorderHook(), FlightRecorderHook()
    one.register_with_comm(comm)
    comm.barrier(False)
    assert len(one) == len(other) > 0
    one.unregister()
    one.reset()
    assert len(other) == 0


def test_communicators_of_one_name_are_kept_apart(fake: Fake) -> None:
    recorder = recorded(fake(name="same"), fake(name="same"))
    assert list(json.loads(recorder.dump_json())["pg_config"]) == ["same", "same#2"]


def dump_of(path: Path) -> dict[str, Any]:
    loaded = pickle.loads(path.read_bytes())
    assert isinstance(loaded, dict)
    return loaded


def test_what_breaks_is_dumped(
    threads: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "1")
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "new" / "trace"))
    first, _second = threads(2, name="late")
    recorder = recorded(first)
    with pytest.raises(torchcomms.CommTimeoutError):
        first.all_reduce(torch.ones(3), ReduceOp.SUM, async_op=False, timeout=SOON)
    assert os.listdir(tmp_path / "new") == ["trace"]
    (entry,) = dump_of(tmp_path / "new" / "trace")["entries"]
    assert entry["profiling_name"] == "ctran:all_reduce"
    assert (entry["state"], entry["retired"]) == ("started", False)
    assert entry["time_discovered_completed_ns"] is None
    # By hand; the same but for what is said of JSON and pickle in the page.
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "by_hand"))
    assert recorder.dump_file(7) == str(tmp_path / "by_hand")
    assert dump_of(tmp_path / "by_hand") == json.loads(recorder.dump_json())

    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "aborted"))
    other, _another = threads(2, name="aborted")
    recorded(other)
    other.barrier(async_op=True)
    other.abort()
    assert len(dump_of(tmp_path / "aborted")["entries"]) == 1


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


EVENT = re.compile(r"(C\d+\|[QSEW])\|work_id=(\d+)\|\+\d+\.\d{6}")


def test_clog_writes_signatures_once_and_events(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "log"
    log = clog(str(file), ["LIFECYCLE"])
    (version,) = lines(file)  # it is there from the start
    assert re.fullmatch(r"V\|1\|base_timestamp=\d+\.\d+", version)
    comm = fake(name="world")
    log.register_with_comm(comm)
    for _ in range(2):
        comm.all_reduce(torch.zeros(3, 4), ReduceOp.MAX, async_op=False)
    comm.send(torch.zeros(2, dtype=torch.int32), 2, async_op=True).wait()
    assert comm.split([2, 1], "child") is not None
    comm.split([], "none")
    log.unregister()
    comm.barrier(False)

    written = lines(file)
    assert re.fullmatch(r"new_comm\|comm=world\|rank=1\|world_size=4\|\+\d+\.\d+", written[1])
    assert written[2] == (
        "C1|sig|all_reduce|in_count=12|out_count=12|dtype=f32|red_op=max|async_op=f|comm=world"
    )
    events = [found.groups() for line in written if (found := EVENT.fullmatch(line))]
    first = int(events[0][1])
    assert events[:6] == [
        (f"C1|{kind}", str(work)) for work in (first, first + 1) for kind in "QSE"
    ]
    assert "C2|sig|send|in_count=2|dtype=i32|peer=2|async_op=t|comm=world" in written
    assert events[6:10] == [(f"C2|{kind}", str(first + 2)) for kind in "QSEW"]
    assert "C3|sig|split|name=child|ranks=2,1|comm=world" in written
    splits = [line.rpartition("|")[0] for line in written if line.startswith("split|")]
    assert splits == [
        "split|parent=world|child=child|ranks=2,1",
        "split|parent=world|child=none|ranks=",
    ]
    assert not any("barrier" in line for line in written)
    times = [float(line.rpartition("+")[2]) for line in written if "|+" in line]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.bool, "bool"),
        (torch.uint8, "u8"),
        (torch.int64, "i64"),
        (torch.bfloat16, "bf16"),
        (torch.float16, "f16"),
        (torch.float64, "f64"),
        (torch.float8_e4m3fn, "f8e4m3"),
        (torch.complex64, "c64"),
    ],
)
def test_clog_names_types(fake: Fake, tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    log = clog(str(tmp_path / "log"), [])
    comm = fake()
    log.register_with_comm(comm)
    comm.broadcast(torch.zeros(2, dtype=dtype), 0, async_op=False)
    assert f"|dtype={name}|" in lines(tmp_path / "log")[2]


def test_clog_without_events_logs_calls(fake: Fake, tmp_path: Path) -> None:
    log = clog(output=str(tmp_path / "rank{rank}"), events=[], verbose=["buffers"])
    comm = fake()
    log.register_with_comm(comm)
    tensor = torch.zeros(1)
    comm.broadcast(tensor, 0, async_op=False)
    written = lines(tmp_path / "rank1")
    assert [line[:4] for line in written[2:]] == ["C1|s", "C1|Q"]
    assert f"in_ptr={tensor.data_ptr():#x}|" in written[2]
    clog(str(tmp_path)).register_with_comm(comm)
    assert (tmp_path / "clog_rank1.log").exists()


def test_clog_warns_of_what_fails(threads: Make, tmp_path: Path) -> None:
    first, _second = threads(2, name="pair")
    log = clog(str(tmp_path / "log"), ["ALL"])
    log.register_with_comm(first)
    with pytest.raises(torchcomms.CommTimeoutError):
        first.barrier(async_op=False, timeout=SOON)
    written = lines(tmp_path / "log")
    assert written[-1].startswith("WARN|broken|comm=pair|+")
    assert [line[:4] for line in written[2:-1]] == ["C1|s", "C1|Q", "C1|S"]  # and no end


def test_clog_warns_once_of_a_full_disk(fake: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    log = clog("/dev/full", ["ALL"])
    comm = fake()
    log.register_with_comm(comm)
    for _ in range(3):
        comm.barrier(async_op=False)
    assert capfd.readouterr().err.count("clog cannot write") == 1


def test_clog_refuses_what_it_cannot_do(fake: Fake, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="LIFECYCLE"):
        clog(str(tmp_path / "log"), ["lifecycle"])
    with pytest.raises(ValueError, match="buffers"):
        clog(str(tmp_path / "log"), ["ALL"], ["everything"])
    with pytest.raises(RuntimeError, match="No such file"):
        clog(str(tmp_path / "missing" / "log"), [])
    by_rank = clog(str(tmp_path / "missing" / "{rank}"), [])
    with pytest.raises(RuntimeError, match="No such file"):
        by_rank.register_with_comm(fake())


def test_no_nan_is_sent(fake: Fake) -> None:
    comm = fake(name="world", rank=1)
    check = NanCheckHook()
    check.register_with_comm(comm)
    good = torch.zeros(2)
    for async_op in (False, True):
        with pytest.raises(
            RuntimeError, match="NaN detected in input tensor for 'all_reduce' on comm 'world'"
        ):
            comm.all_reduce(NAN, ReduceOp.SUM, async_op)
    with pytest.raises(RuntimeError, match="tensor 2 of shape"):
        comm.all_to_all([good] * 4, [good, good, NAN, good], False)
    batch = comm.batch_op_create()
    batch.recv(NAN, 0)
    batch.issue(False)  # it is overwritten
    batch.send(NAN, 0)
    with pytest.raises(RuntimeError, match="'batch_op_issue'"):
        batch.issue(False)
    comm.broadcast(NAN.clone(), 0, False)  # this rank receives
    with pytest.raises(RuntimeError, match="'broadcast'"):
        comm.broadcast(NAN, 1, False)
    for dtype in (torch.bfloat16, torch.complex64, torch.float8_e5m2):
        with pytest.raises(RuntimeError, match="NaN"):
            comm.send(NAN.to(dtype), 0, False)
    comm.send(torch.zeros(2, dtype=torch.int8), 0, False)
    comm.all_gather_single(torch.full((8,), float("nan")), good, False)
    assert check.is_enabled()
    check.unregister()
    assert not check.is_enabled()
    comm.all_reduce(NAN, ReduceOp.SUM, False)


def test_a_check_is_enabled_while_it_checks_something(fake: Fake) -> None:
    check, idle = NanCheckHook(), NanCheckHook(check_inputs=False)
    assert not check.is_enabled()
    for one in (check, idle):
        one.register_with_comm(fake())
    assert check.is_enabled()
    assert not idle.is_enabled()


def test_hooks_are_found_under_the_names_of_their_modules() -> None:
    assert importlib.import_module("torchcomms.hooks.fr").FlightRecorderHook is FlightRecorderHook
    assert importlib.import_module("torchcomms.hooks.clog").clog is clog
    assert importlib.import_module("torchcomms.hooks.nan_check").NanCheckHook is NanCheckHook
    assert torchcomms.hooks.clog is clog


def test_a_received_nan_is_found(threads: Make, on_each: OnEach) -> None:
    def one(comm: TorchComm) -> None:
        NanCheckHook(check_inputs=False, check_outputs=True).register_with_comm(comm)
        ours = NAN.clone() if comm.get_rank() == 1 else torch.zeros(2)
        with pytest.raises(RuntimeError, match="NaN detected in output tensor for 'all_reduce'"):
            comm.all_reduce(ours.clone(), ReduceOp.SUM, async_op=False)
        received = [torch.zeros(2), torch.zeros(2)]
        work = comm.all_gather(received, ours, async_op=True)
        with pytest.raises(RuntimeError, match=r"'all_gather'.*tensor 1"):
            work.wait()
        reduced = ours.clone()
        if comm.get_rank() == 0:
            with pytest.raises(RuntimeError, match="'reduce'"):
                comm.reduce(reduced, 0, ReduceOp.SUM, async_op=False)
        else:
            comm.reduce(reduced, 0, ReduceOp.SUM, async_op=False)  # only read here
        comm.barrier(async_op=False)

    on_each(threads(2), one)
