"""The package needs neither PyTorch nor a GPU, and has the names that programs import."""

from __future__ import annotations

import dataclasses
import importlib
import os
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


ADOPTED = {
    "MSCCLPP_LOG_LEVEL": "INFO",
    "MSCCLPP_DEBUG_FILE": "/tmp/log.%h.%p",
    "MSCCLPP_HCA_DEVICES": "mlx5_0,mlx5_1",
    "MSCCLPP_IBV_SO": "/lib/verbs.so",
    "MSCCLPP_SOCKET_FAMILY": "AF_INET6",
    "MSCCLPP_SOCKET_IFNAME": "^docker,lo",
    "MSCCLPP_IB_GID_INDEX": "3",
    "MSCCLPP_FORCE_DISABLE_GDR": "1",
}


def test_variables_of_mscclpp_are_handed_on_to_the_engine() -> None:
    """Where those of the engine are not set; what has no effect is said once."""
    names = [
        "TORCHCOMM_LOG", "TORCHCOMM_LOG_TO", "CTRAN_IB_HCA", "CTRAN_VERBS_LIBRARY",
        "CTRAN_TCP_FAMILY", "CTRAN_TCP_INTERFACES", "CTRAN_IB_GID_INDEX", "CTRAN_GPU_DIRECT",
    ]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name not in names}
    source = f"import os, mscclpp; print(*(os.environ.get(n) for n in {names}))"

    def said(**more: str) -> tuple[str, str]:
        command = [sys.executable, "-c", source]
        ended = subprocess.run(command, capture_output=True, text=True, env={**clean, **more})
        return ended.stdout.strip(), ended.stderr

    out, error = said(**ADOPTED)
    assert out == ("info /tmp/log.%h.%p =mlx5_0,mlx5_1 /lib/verbs.so ipv6 ^docker*,lo* 3 off")
    assert error == ""
    out, error = said(**ADOPTED, TORCHCOMM_LOG="trace", MSCCLPP_IBV_MODE="host")
    assert out.startswith("trace ")
    assert "MSCCLPP_IBV_MODE: no effect here" in error
    assert said(MSCCLPP_FORCE_DISABLE_NVLS="1") == ("None " * 7 + "None", "")


def test_env_says_what_the_environment_does(monkeypatch: pytest.MonkeyPatch) -> None:
    mscclpp = importlib.import_module("mscclpp")
    for name in [name for name in os.environ if name.startswith("MSCCLPP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/home")
    assert mscclpp.env() == mscclpp.Env("", "", "", "/home/.cache/mscclpp", 60)
    _runtime = importlib.import_module("mscclpp._runtime")
    assert [f.name for f in dataclasses.fields(mscclpp.Env)] == list(_runtime.environment())
    monkeypatch.setenv("MSCCLPP_LOG_LEVEL", "Debug")
    assert _runtime.adopted().get("TORCHCOMM_LOG", "") in ("debug", "")  # CTRAN_LOG may be set
    monkeypatch.setenv("MSCCLPP_FORCE_DISABLE_NVLS", "1")
    monkeypatch.setenv("MSCCLPP_SOCKET_IFNAME", "eth")
    assert (mscclpp.env().force_disable_nvls, mscclpp.env().socket_ifname) == (True, "eth")
    monkeypatch.setenv("MSCCLPP_SECRET", "hidden")
    monkeypatch.setenv("MSCCLPP_TIMEOUT", "5")
    assert (mscclpp.env().secret, mscclpp.env().timeout_seconds) == ("hidden", 5)
    assert "hidden" not in repr(mscclpp.env())
    for wrong in ("0", "-1", "soon", "1e3"):
        monkeypatch.setenv("MSCCLPP_TIMEOUT", wrong)
        with pytest.raises(ValueError, match=f"MSCCLPP_TIMEOUT={wrong} is no positive number"):
            mscclpp.env()
