"""Checks of GPUs, with a torch that sees as many as a test says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from harness.doctor import host_of

from torchcomms.cli.doctor import gpus
from torchcomms.cli.doctor.finding import BROKEN, GOOD, SLOW

DRIVER = {"/proc/driver/nvidia/version": "NVRM version: 590.00"}


class Library(SimpleNamespace):
    _name = "library.so"

    def cuInit(self, _: int) -> int:
        return int(self.fails)

    def cuDriverGetVersion(self, version: object) -> int:
        version._obj.value = 13020  # type: ignore[attr-defined]
        return 0


@pytest.fixture
def see(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SimpleNamespace(name="NVIDIA H200", total_memory=141 << 30, major=9, minor=0)
    monkeypatch.setattr(gpus, "gpu_count", lambda: 2)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: kind)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: True)


@pytest.fixture
def none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "gpu_count", lambda: 0)
    monkeypatch.setattr(gpus, "load", lambda _: None)


def test_no_gpus(tmp_path: Path, none: None) -> None:
    host = host_of(tmp_path)
    for check in gpus.CHECKS:
        assert check.run(host).result == GOOD, check.name


def test_driver_whose_library_is_not_in_the_container(tmp_path: Path, none: None) -> None:
    found = gpus.driver(host_of(tmp_path, DRIVER))
    assert found.result == BROKEN
    assert "--gpus all" in found.todo


@pytest.mark.parametrize(
    ("cuda", "fails", "result", "said"),
    [
        ("13.2", 0, GOOD, "supports CUDA 13.2"),
        (None, 0, SLOW, "is built for CPUs"),
        ("13.2", 100, BROKEN, "cuInit() returns 100"),
    ],
)
def test_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cuda: str | None,
    fails: int,
    result: str,
    said: str,
) -> None:
    monkeypatch.setattr(gpus, "load", lambda _: Library(fails=fails))
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found = gpus.driver(host_of(tmp_path, DRIVER))
    assert found.result == result
    assert said in found.reason


def test_devices(tmp_path: Path, see: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gpus.devices(host_of(tmp_path))
    assert found.result == GOOD
    assert found.details[1] == "cuda:1: NVIDIA H200, 141 GiB, compute capability 9.0"
    assert gpus.devices(host_of(tmp_path, ranks=3)).result == SLOW
    monkeypatch.setattr(gpus, "gpu_count", lambda: 0)
    assert gpus.devices(host_of(tmp_path, DRIVER)).result == BROKEN


def test_peer_access(tmp_path: Path, see: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.peer_access(host_of(tmp_path)).result == GOOD
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: False)
    found = gpus.peer_access(host_of(tmp_path))
    assert found.result == SLOW
    assert "0-1" in found.reason


def test_libraries(tmp_path: Path, see: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(*pointers: object) -> None:
        for pointer, value in zip(pointers, (22_907, 2), strict=False):
            pointer._obj.value = value  # type: ignore[attr-defined]

    library = Library(nvrtcVersion=version, ncclGetVersion=version)
    monkeypatch.setattr(gpus, "load", lambda _: library)
    assert gpus.nccl(host_of(tmp_path)).reason == "NCCL 2.29.7"
    assert gpus.nvrtc(host_of(tmp_path)).result == GOOD
    monkeypatch.setattr(gpus, "load", lambda _: None)
    assert gpus.nccl(host_of(tmp_path)).result == SLOW
    assert gpus.nvrtc(host_of(tmp_path)).result == BROKEN


@pytest.mark.parametrize(
    ("check", "variable"),
    [
        (gpus.driver, "CTRAN_CUDA_LIBRARY"),
        (gpus.nvrtc, "CTRAN_NVRTC_LIBRARY"),
        (gpus.nccl, "TORCHCOMMS_NCCL_LIBRARY"),
    ],
)
def test_a_library_that_is_named_and_not_there(tmp_path: Path, check, variable: str) -> None:
    found = check(host_of(tmp_path, environ={variable: "/no/such.so"}))
    assert found.result == BROKEN
    assert found.reason == f"{variable}=/no/such.so cannot be loaded"
