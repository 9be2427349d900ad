"""The package needs neither PyTorch nor a GPU, and has the names that programs import."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


def test_import_brings_neither_torch_nor_torchcomms() -> None:
    source = (
        "import sys; sys.modules['torch'] = sys.modules['torchcomms'] = None\n"
        "import mscclpp\n"
        "print(mscclpp.AlgoSpec is mscclpp.language.AlgoSpec)\n"
        "print(mscclpp.ext.AlgorithmCollectionBuilder is mscclpp.AlgorithmCollectionBuilder)\n"
    )
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("True\nTrue\n", "")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("channel", "MemoryChannel PortChannel SwitchChannel BufferType SyncType"),
        (
            "collectives",
            "AllReduce AllGather ReduceScatter AllToAll SendRecv TestCollective",
        ),
        ("general", "JSON"),
        ("loop", "LoopIterationContext"),
        ("program", "CollectiveProgram"),
        ("rank", "Rank Buffer BaseBuffer Semaphore"),
        ("thread_block_group", "ThreadBlockGroup"),
        ("utils", "AlgoSpec ReplicationPolicy"),
    ],
)
def test_names_are_where_programs_import_them_from(module: str, names: str) -> None:
    found = importlib.import_module(f"mscclpp.language.{module}")
    package = importlib.import_module("mscclpp.language")
    for name in names.split():
        assert name in found.__all__
        assert getattr(package, name) is getattr(found, name)


def test_buffers_have_the_chunks_of_the_collective() -> None:
    language = importlib.import_module("mscclpp.language")
    sizes = {
        name: (made.name, made.input_chunks, made.output_chunks)
        for name in ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "SendRecv")
        for made in [getattr(language, name)(4, 2, False)]
    }
    assert sizes == {
        "AllReduce": ("allreduce", 8, 8),
        "AllGather": ("allgather", 2, 8),
        "ReduceScatter": ("reducescatter", 8, 2),
        "AllToAll": ("alltoall", 8, 8),
        "SendRecv": ("sendrecv", 2, 2),
    }
    made = language.TestCollective(2, 3, 5)
    assert (made.name, made.input_chunks, made.output_chunks) == ("test", 3, 5)


def test_all_names_of_the_guide_are_there() -> None:
    mscclpp = importlib.import_module("mscclpp")
    for name in [
        "AlgoSpec",
        "Algorithm",
        "AlgorithmCollection",
        "AlgorithmCollectionBuilder",
        "CommGroup",
        "Communicator",
        "DataType",
        "ExecutionPlan",
        "Executor",
        "RawGpuBuffer",
        "ReduceOp",
        "compile",
        "env",
        "is_nvls_supported",
        "language",
        "register",
        "utils",
        "version",
    ]:
        assert hasattr(mscclpp, name), name
    ext = importlib.import_module("mscclpp.ext")
    assert ext.AlgorithmCollectionBuilder is mscclpp.AlgorithmCollectionBuilder
    names: dict[str, object] = {}
    exec("from mscclpp import *", names)
    assert names["CommGroup"] is mscclpp.CommGroup


def test_the_communicator_of_a_group_is_of_the_class_that_programs_name() -> None:
    mscclpp = importlib.import_module("mscclpp")
    assert type(mscclpp.CommGroup().communicator) is mscclpp.Communicator


def test_the_version_is_that_of_torchcomms() -> None:
    mscclpp, torchcomms = map(importlib.import_module, ("mscclpp", "torchcomms"))
    assert mscclpp.version == torchcomms.__version__


@pytest.mark.parametrize("arguments", [[], ["--install"]])
def test_the_module_as_a_command_says_what_is_here(arguments: list[str]) -> None:
    mscclpp = importlib.import_module("mscclpp")
    command = [sys.executable, "-m", "mscclpp", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    for told in (mscclpp.version, mscclpp.get_include(), mscclpp.get_lib(), "GPUs:"):
        assert told in ended.stdout


def test_the_architecture_is_that_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    utils = importlib.import_module("mscclpp.utils")
    monkeypatch.setattr(utils, "gpu_arch", lambda: "90a")
    assert utils.get_device_arch() == "sm_90"
    monkeypatch.setattr(utils, "gpu_arch", lambda: None)
    with pytest.raises(RuntimeError, match="there is no GPU here"):
        utils.get_device_arch()


def test_env_says_what_the_environment_does(monkeypatch: pytest.MonkeyPatch) -> None:
    mscclpp = importlib.import_module("mscclpp")
    for name in ("HOSTID", "COMM_ID", "SECRET", "CACHE_DIR", "TIMEOUT"):
        monkeypatch.delenv(f"MSCCLPP_{name}", raising=False)
    monkeypatch.setenv("HOME", "/home")
    assert mscclpp.env() == mscclpp.Env("", "", "", "/home/.cache/mscclpp", 60)
    monkeypatch.setenv("MSCCLPP_SECRET", "hidden")
    monkeypatch.setenv("MSCCLPP_TIMEOUT", "5")
    assert (mscclpp.env().secret, mscclpp.env().timeout_seconds) == ("hidden", 5)
    assert "hidden" not in repr(mscclpp.env())
    for wrong in ("0", "-1", "soon", "1e3"):
        monkeypatch.setenv("MSCCLPP_TIMEOUT", wrong)
        with pytest.raises(ValueError, match=f"MSCCLPP_TIMEOUT={wrong} is no positive number"):
            mscclpp.env()
