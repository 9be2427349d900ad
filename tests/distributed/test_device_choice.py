"""Which GPU a communicator takes that was asked for "cuda", on devices that have only an index."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks
from torch.utils import cpp_extension

import torchcomms

MakeRanks = Callable[[int], Ranks]
SOURCE = Path(__file__).parents[1] / "standins" / "torch_devices.cpp"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("devices") / "libtorch-devices.so"
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fPIC", "-shared", str(SOURCE)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-isystem{path}" for path in cpp_extension.include_paths()]
    command += [f"-L{path}" for path in cpp_extension.library_paths()]
    subprocess.run([*command, "-lc10", "-o", str(made)], check=True)
    return str(made)


def _chosen(
    rank: Rank, library: str, backend: str, device: str, current: int
) -> tuple[torch.device, int]:
    """The communicator's device, and the one that is current afterwards."""
    devices = ctypes.CDLL(library)
    devices.standInForDevices()
    devices.standInSetDevice(current)
    options = torchcomms.CommOptions()
    options.rank, options.size = rank.rank, rank.size
    name = f"{backend} on {device}, {current} current"
    comm = torchcomms.new_comm(backend, device, name, options=options, store=rank.store(name))
    comm.finalize()
    return comm.get_device(), devices.standInCurrentDevice()


def test_each_rank_takes_its_own_and_makes_it_current(fresh_ranks: MakeRanks, library: str) -> None:
    chosen = fresh_ranks(3).run(_chosen, library, "gloo", "cuda", 0)
    assert chosen == [(torch.device("cuda", rank), rank) for rank in range(3)]


def test_one_that_the_program_chose_is_taken(fresh_ranks: MakeRanks, library: str) -> None:
    chosen = fresh_ranks(2).run(_chosen, library, "gloo", "cuda", 5)
    assert chosen == [(torch.device("cuda", 5), 5)] * 2


def test_an_index_leaves_the_current_device_alone(fresh_ranks: MakeRanks, library: str) -> None:
    chosen = fresh_ranks(2).run(_chosen, library, "gloo", "cuda:3", 0)
    assert chosen == [(torch.device("cuda", 3), 0)] * 2


def test_a_lazy_one_chooses_when_it_is_made(fresh_ranks: MakeRanks, library: str) -> None:
    chosen = fresh_ranks(2).run(_chosen, library, "gloo-lazy", "cuda", 0)
    assert [current for _, current in chosen] == [0, 1]
