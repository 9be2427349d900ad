"""What links GPUs, as a stand-in for NVIDIA's management library says."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from harness.doc_blocks import ROOT
from harness.doctor import host_of

from torchcomms.cli.doctor import links
from torchcomms.cli.doctor.finding import GOOD, SLOW, Outcome

Look = Callable[..., Outcome]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")

    def call(gpus: str, level: int = 30, *flags: str) -> Outcome:
        path = tmp_path / f"nvml{''.join(flags)}.so"
        source = str(ROOT / "tests/standins/nvml.c")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *flags, "-o", str(path), source],
            check=True,
        )
        monkeypatch.setenv("NVML_GPUS", gpus)
        monkeypatch.setenv("NVML_LEVEL", str(level))
        count = gpus.count(",") + 1
        monkeypatch.setattr(links, "gpu_count", lambda: count)
        monkeypatch.setattr(links, "load", lambda names: ctypes.CDLL(str(path)))
        kinds = [SimpleNamespace(uuid=index) for index in range(count)]
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: kinds[index])
        return links.links(host_of(tmp_path))

    return call


def test_links_through_switches(look: Look) -> None:
    found = look("ssss,ssss,ssss")
    assert found.result == GOOD
    assert found.reason == "NVLink, 4 links through switches between any two of 3 GPUs"
    assert found.details == ("NVLink, 4 links through switches: 0-1, 0-2, 1-2",)


def test_links_from_gpu_to_gpu_and_pcie(look: Look) -> None:
    found = look("11,00,3,2", 50)
    assert (found.result, found.reason) == (GOOD, "NVLink between 2 of 6 pairs of GPUs, else PCIe")
    assert found.details == (
        "NVLink, 2 links: 0-1",
        "PCIe, between NUMA nodes: 0-2, 0-3, 1-2, 1-3",
        "NVLink, 1 link: 2-3",
    )


@pytest.mark.parametrize(
    ("level", "said"),
    [(10, "through one switch"), (20, "several"), (30, "a CPU's host bridge"), (7, "level 7 of")],
)
def test_pcie_alone(look: Look, level: int, said: str) -> None:
    found = look("--,", level)
    assert found.result == GOOD
    assert found.reason.startswith("PCIe, ")
    assert said in found.reason


def test_a_gpu_whose_links_are_down(look: Look) -> None:
    found = look("ssss,s--s,ssss,----")
    assert found.result == SLOW
    assert "cuda:1 has 2, cuda:3 has 0, others 4" in found.reason
    assert "nvidia-smi nvlink --status" in found.todo
    assert "NVLink, 2 links through switches: 0-1, 1-2" in found.details


def test_cards_of_which_some_have_bridges_are_no_fault(look: Look) -> None:
    assert look("11,00,--").result == GOOD
    assert look("111,000,3--,2--").result == SLOW


def test_what_is_not_known_is_said(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look("1,0,", 30, "-DOLD").details[1] == "no NVLink: 0-2, 1-2"
    monkeypatch.setenv("NVML_FAILS", "1")
    assert look("1,0").reason == "not known: nvmlInit_v2() returns 999 (libnvidia-ml.so.1)"
    monkeypatch.setattr(links, "load", lambda names: None)
    found = links.links(host_of(tmp_path))
    assert (found.result, "NVIDIA_DRIVER_CAPABILITIES" in found.reason) == (GOOD, True)
    monkeypatch.setattr(links, "gpu_count", lambda: 1)
    assert links.links(host_of(tmp_path)).reason == "fewer than two GPUs"
