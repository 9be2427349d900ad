"""What PyTorch's debug server is told by the server of a rank."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import torch
from torch._C._distributed_c10d import _WorkerServer

from torchcomms import ReduceOp, TorchComm
from torchcomms.hooks import FlightRecorderHook

Make = Callable[..., TorchComm]
Ask = Callable[[str], Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks the server of this process, as torch.distributed.debug does."""
    server = _WorkerServer("::", 0)

    def answer(what: str) -> Any:
        url = f"http://localhost:{server.port}/handler/{what}"
        with urlopen(Request(url, method="POST"), timeout=60) as response:
            return json.loads(response.read())

    yield answer
    server.shutdown()


def recorded(fake: Make, name: str) -> TorchComm:
    comm = fake(name=name)
    FlightRecorderHook(max_entries=100).register_with_comm(comm)
    comm.all_reduce(torch.zeros(3), ReduceOp.SUM, async_op=False)
    return comm


def operations(trace: Any, name: str) -> list[str]:
    return [e["profiling_name"] for e in trace["entries"] if e["process_group"][0] == name]


def test_flight_records(fake: Make, ask: Ask) -> None:
    recorded(fake, "traced")
    trace = ask("torchcomms_fr_trace_json")
    assert trace["version"] == "2.10"
    assert operations(trace, "traced") == ["fake:all_reduce"]
    # It has ended.
    assert operations(ask("torchcomms_fr_trace_json?onlyactive=true"), "traced") == []


def test_dump(fake: Make, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "1")
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "record_of_"))
    recorded(fake, "dumped")
    path = ask("torchcomms_fr_dump_file")["path"]
    assert path.startswith(str(tmp_path / "record_of_"))
    assert operations(pickle.loads(Path(path).read_bytes()), "dumped") == ["fake:all_reduce"]


def test_health(fake: Make, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "1")
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "record_of_"))
    comm = recorded(fake, "examined")
    assert "examined" not in ask("torchcomms_health_check")["broken"]
    comm.abort()
    told = ask("torchcomms_health_check")
    assert told["healthy"] is False
    assert "examined" in told["broken"]
    comm.finalize()
    assert "examined" not in ask("torchcomms_health_check")["broken"]
