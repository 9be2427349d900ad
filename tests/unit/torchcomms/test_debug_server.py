"""What PyTorch's debug server is told by the server of a rank."""

from __future__ import annotations

import json
import pickle
import socket
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import _WorkerServer

from torchcomms import ReduceOp, TorchComm
from torchcomms.hooks import FlightRecorderHook

Make = Callable[..., TorchComm]
Ask = Callable[[str], Any]


@pytest.fixture
def name() -> str:
    """Of which the recorder, which all of the process share, knows no other."""
    return uuid.uuid4().hex


class Connection(HTTPConnection):
    """To a socket that has a path."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks the server of this process, as torch.distributed.debug does."""
    path = str(tmp_path_factory.mktemp("server") / "s")
    server = _WorkerServer(path)

    def answer(what: str) -> Any:
        connection = Connection(path, timeout=60)
        connection.request("POST", f"/handler/{what}", headers={"Host": "localhost"})
        response = connection.getresponse()
        assert response.status == 200
        return json.loads(response.read())

    yield answer
    server.shutdown()


def recorded(fake: Make, name: str) -> TorchComm:
    """A communicator of which the recorder of the process has an operation."""
    comm = fake(name=name)
    FlightRecorderHook(max_entries=100).register_with_comm(comm)
    comm.all_reduce(torch.zeros(3), ReduceOp.SUM, async_op=False)
    return comm


def operations(trace: Any, name: str) -> list[str]:
    return [e["profiling_name"] for e in trace["entries"] if e["process_group"][0] == name]


def test_flight_records(fake: Make, ask: Ask, name: str) -> None:
    recorded(fake, name)
    trace = ask("torchcomms_fr_trace_json")
    assert trace["version"] == "2.10"
    assert operations(trace, name) == ["fake:all_reduce"]
    # It has ended.
    assert operations(ask("torchcomms_fr_trace_json?onlyactive=true"), name) == []


def test_dump(
    fake: Make, ask: Ask, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "1")
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "record"))
    recorded(fake, name)
    path = ask("torchcomms_fr_dump_file")["path"]
    assert path == str(tmp_path / "record")
    assert operations(pickle.loads(Path(path).read_bytes()), name) == ["fake:all_reduce"]


def test_health(
    fake: Make, ask: Ask, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "1")
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(tmp_path / "record"))
    comm = recorded(fake, name)
    assert name not in ask("torchcomms_health_check")["broken"]
    comm.abort()
    told = ask("torchcomms_health_check")
    assert told["healthy"] is False
    assert name in told["broken"]
    comm.finalize()
    assert name not in ask("torchcomms_health_check")["broken"]
