"""Connections, semaphores and kernels in wrong hands, and waits whose program wants out."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import Rank, Ranks
from mscclpp_ranks import refused

import mscclpp
from mscclpp.language import AllReduce, CollectiveProgram
from mscclpp.language import Rank as RankOf
from mscclpp.native_algorithm import NativeAlgorithm
from mscclpp.utils import KernelBuilder, pack

MakeRanks = Callable[[int], Ranks]
TRANSPORTS = [mscclpp.Transport.CudaIpc, mscclpp.Transport.Ethernet]
KERNEL = """
#include <cuda_runtime.h>
__global__ void count(int* counted) { atomicAdd(counted, 1); }
"""


def connected(
    rank: Rank, transport: mscclpp.Transport, timeout: float = 60
) -> tuple[mscclpp.CommGroup, mscclpp.Connection, mscclpp.Host2HostSemaphore]:
    group = mscclpp.CommGroup(
        store=rank.store("m"), rank=rank.rank, size=rank.size, timeout=timeout
    )
    peer = 1 - rank.rank
    connections = group.make_connection([peer], transport)
    semaphore = mscclpp.Host2HostSemaphore(group.make_semaphores(connections)[peer])
    return group, connections[peer], semaphore


def passes_what_makes_no_sense(rank: Rank, transport: mscclpp.Transport) -> None:
    group, connection, semaphore = connected(rank, transport)
    with group:
        data = torch.zeros(8, dtype=torch.int64)
        memories = group.register_tensor_with_connections(data, {1 - rank.rank: connection})
        own, there = memories[rank.rank], memories[1 - rank.rank]
        group.barrier()
        for offset, size in [(2**64 + 8, 4), (8, 2**64 + 4), (-8, 4), (8, -4), (2**63, 2**63)]:
            refused(ValueError, "", lambda o=offset, s=size: connection.write(there, o, own, 0, s))
        refused(TypeError, "", lambda: connection.write(there, "8", own, 0, 4))  # type: ignore[arg-type]
        word = data.data_ptr()
        for source, offset in [(0, 0), (word + 1, 0), (word, 4)]:
            refused(
                ValueError,
                "a word at each end",
                lambda s=source, o=offset: connection.update_and_sync(there, o, s, 5),
            )
        for size in (-1, 2**64, 2**64 - 1):
            refused(ValueError, "", lambda s=size: group.native.register_memory(word, s, transport))
        refused(ValueError, "", lambda: group.native.recv_memory(1 - rank.rank, 2**32))
        refused(mscclpp.CommTimeoutError, f"rank {1 - rank.rank}", lambda: semaphore.wait(10))
        group.barrier()
        assert data.tolist() == [0] * 8
        semaphore.signal()
        semaphore.wait()
        group.barrier()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_makes_no_sense_is_refused(ranks: MakeRanks, transport: mscclpp.Transport) -> None:
    ranks(2).run(passes_what_makes_no_sense, transport)


def numbers_memories_wrongly(rank: Rank) -> None:
    group, connection, _ = connected(rank, mscclpp.Transport.CudaIpc)
    with group:
        peer = 1 - rank.rank
        data = torch.zeros(8)
        memories = group.register_tensor_with_connections(data, {peer: connection})
        service = mscclpp.ProxyService()
        semaphore = service.build_and_add_semaphore(group.native, connection)
        there, own = service.add_memory(memories[peer]), service.add_memory(memories[rank.rank])
        for to, source in [(1 << 20, own), (there, 2), (-1, -1), (there, -1), (2**32, own)]:
            refused(
                ValueError, "memor", lambda t=to, s=source: service.port_channel(semaphore, t, s)
            )
        refused(ValueError, "", lambda: service.port_channel(2**32, there, own))
        service.port_channel(semaphore, there, own)
        group.barrier()


def test_port_channels_are_of_memories_that_are_there(ranks: MakeRanks) -> None:
    ranks(2).run(numbers_memories_wrongly)


def test_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    file = tmp_path / "count.cu"
    file.write_text(KERNEL)
    kernel = KernelBuilder(str(file), "count", device="cpu").get_compiled_kernel()
    counted = np.zeros(1, np.int32)
    arguments = pack(counted)
    # More than a host has threads for: some blocks follow others, as on a GPU.
    kernel.launch_kernel(arguments, 65536, 2)
    assert counted[0] == 131072
    for blocks, threads, shared in [(-1, 1, 0), (1, -1, 0), (1, 1, -1), (1, 1025, 0), (0, 1, 0)]:
        with pytest.raises(ValueError, match=r"not a number|at least one|at most"):
            kernel.launch_kernel(arguments, blocks, threads, shared)
    with pytest.raises(TypeError, match="params must be what pack makes, not int"):
        kernel.launch_kernel(5, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 GiB of shared memory"):
        kernel.launch_kernel(arguments, 1, 1, 2**64 - 1)
    assert counted[0] == 131072


def executes_wrongly(rank: Rank, file: str) -> None:
    module = mscclpp.compile_native("small", file, device="cpu")
    algorithm = NativeAlgorithm(module.create())
    with mscclpp.CommGroup(store=rank.store("m"), rank=rank.rank, size=rank.size) as group:
        data = torch.zeros(4, dtype=torch.int32)
        address, types = data.data_ptr(), mscclpp.DataType
        comm = group.communicator
        for arguments, error in [
            ((comm, 0, address, 16, 16, types.int32), ValueError),
            ((comm, address, 0, 16, 16, types.int32), ValueError),
            ((comm, -address, address, 16, 16, types.int32), ValueError),
            ((comm, address, address, -1, 16, types.int32), ValueError),
            ((comm, address, address, 2**64 + 16, 16, types.int32), ValueError),
            ((comm, address, address, 16, 16, 99), ValueError),
            ((comm, address, address, 16, 16, types.int32, 99), ValueError),
            ((comm, "address", address, 16, 16, types.int32), TypeError),
            ((None, address, address, 16, 16, types.int32), TypeError),
        ]:
            refused(error, "", lambda a=arguments: algorithm.execute(*a))
        right = (comm, address, address, 16, 16, types.int32)
        for options, error in [
            ({"nblocks": -1}, ValueError),
            ({"nthreads_per_block": 2**31}, ValueError),
            ({"extras": {"a": -1}}, ValueError),
            ({"extras": {"a": 1.5}}, TypeError),
            ({"extras": "a"}, TypeError),
        ]:
            refused(error, "", lambda o=options: algorithm.execute(*right, **o))
        assert algorithm.execute(*right) == 0
        refused(TypeError, "is written in C++", lambda: mscclpp.register(algorithm))
        group.barrier()


ALGORITHM = """
#include <Python.h>
#include <mscclpp/algorithm.hpp>
#include <pybind11/pybind11.h>

using namespace mscclpp;

PYBIND11_MODULE(small, m) {
  m.def("create", [] {
    auto* made = new std::shared_ptr<Algorithm>(std::make_shared<NativeAlgorithm>(
        "small", "allreduce", nullptr,
        [](const std::shared_ptr<void>, const void*, void*, size_t, size_t, DataType, ReduceOp,
           cudaStream_t, int, int, const std::unordered_map<std::string, uintptr_t>&) {
          return CommResult::CommSuccess;
        },
        [](std::shared_ptr<Communicator>, const void*, void*, size_t, size_t, DataType) {
          return std::make_shared<int>(1);
        },
        [](const void*, void*, size_t, size_t, DataType, bool) { return AlgorithmCtxKey(); }));
    return pybind11::reinterpret_steal<pybind11::object>(
        PyCapsule_New(made, "mscclpp::AlgorithmPtr", nullptr));
  });
}
"""


def test_arguments_of_native_algorithms(ranks: MakeRanks, tmp_path: Path) -> None:
    file = tmp_path / "small.cu"
    file.write_text(ALGORITHM)
    ranks(2).run(executes_wrongly, str(file))


def test_arguments_of_another_type_are_named(tmp_path: Path) -> None:
    buffer, kind = mscclpp.RawGpuBuffer(64), mscclpp.DataType.float32
    with CollectiveProgram("copy", AllReduce(1, 1, False), 1) as program:
        rank = RankOf(0)
        rank.copy(rank.get_output_buffer()[0], rank.get_input_buffer()[0], tb=0)
    algorithm = mscclpp.compile(program)
    path = tmp_path / "plan.json"
    path.write_text(algorithm.to_json())
    collection = mscclpp.AlgorithmCollection()
    data = torch.zeros(4)
    with mscclpp.CommGroup() as group:
        executor = mscclpp.Executor(group.communicator)
        call = (data.data_ptr(), data.data_ptr(), 16, 16, kind)
        cases: list[tuple[str, Callable[[], object]]] = [
            ("a Semaphore is what", lambda: mscclpp.Semaphore(5)),
            ("a Connection is what", lambda: mscclpp.Connection(data.data_ptr())),
            ("must be a Semaphore, not int", lambda: mscclpp.Host2HostSemaphore(5)),
            ("Semaphore or MemoryDevice", lambda: mscclpp.BaseMemoryChannel(buffer)),
            ("must be a RegisteredMemory", lambda: mscclpp.ProxyService().add_memory(data)),
            ("must be a RegisteredMemory", lambda: group.native.send_memory(data, 0)),
            ("must be a Connection", lambda: group.native.build_semaphore(data, 0)),
            ("not 'a'", lambda: group.make_connection("a")),
            ("not [0.5]", lambda: group.make_connection([0.5])),
            ("connections must be", lambda: group.make_semaphores(5)),
            ("connections must be", lambda: group.make_memory_channels(data, [0])),
            ("peer must be an int", lambda: group.send(data, "a")),
            ("tag must be an int", lambda: group.recv(data, 0, "t")),
            ("of torchcomms, not 5", lambda: mscclpp.CommGroup.from_comm(5)),
            ("min_message_size must", lambda: algorithm.set_message_size_range(1.5, 2)),
            ("dtype must be an int", lambda: algorithm.explain(group.communicator, 4, "x")),
            ("5 is no Algorithm", lambda: collection.register_algorithm("allreduce", "x", 5)),
            ("5 is no capsule", lambda: mscclpp.Algorithm.create_from_native_capsule(5)),
            ("must be an ExecutionPlan", lambda: executor.execute(0, *call, algorithm)),
            ("integer", lambda: mscclpp.ExecutionPlan(path, "0")),
            ("granularity must be", lambda: mscclpp.RawGpuBuffer(8, "a")),
            ("shape must be ints", lambda: buffer.to_dlpack(shape=[1.5])),
            ("strides must be ints", lambda: buffer.to_dlpack(shape=[2], strides=["x"])),
            ("shape must be ints", lambda: mscclpp.GpuBuffer(1.5)),
        ]  # fmt: skip
        for says, misuse in cases:
            refused(TypeError, says, misuse)
        for says, misuse in [
            ("tag is 1099511627776", lambda: group.send(data, 0, 2**40)),
            ("'eth0:10.0.0.1:50000'", lambda: mscclpp.CommGroup(None, None, 5, 0, 1)),
            ("not '0'", lambda: executor.execute("0", *call, mscclpp.ExecutionPlan(path, 0))),
        ]:
            refused(ValueError, says, misuse)


def aborts_while_all_wait(rank: Rank, transport: mscclpp.Transport) -> float:
    group, _, semaphore = connected(rank, transport)
    group.barrier()
    if rank.rank == 0:
        threading.Timer(0.5, group.abort, ["enough"]).start()
    begun = time.monotonic()
    # The other rank may have let go of the connection before this one has heard of it.
    refused((mscclpp.AbortedError, mscclpp.PeerLostError), "", semaphore.wait)
    ended = time.monotonic() - begun
    refused(mscclpp.AbortedError, "enough", lambda: group.make_connection([1 - rank.rank]))
    return ended


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_abort_ends_waits_of_all_ranks(
    fresh_ranks: MakeRanks, transport: mscclpp.Transport
) -> None:
    """Each would last for MSCCLPP_TIMEOUT, a minute."""
    assert all(ended < 30 for ended in fresh_ranks(2).run(aborts_while_all_wait, transport))


def is_interrupted(rank: Rank) -> None:
    group, _, semaphore = connected(rank, mscclpp.Transport.CudaIpc)
    if rank.rank == 1:
        rank.listen()
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for call in (semaphore.wait, lambda: group.make_connection([1])):
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call()
        assert time.monotonic() - begun < 30
    rank.say("interrupted")


def test_ctrl_c_ends_waits(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(is_interrupted)
    assert job.hear(0) == "interrupted"
    job.say(1)
    job.results()


def test_an_interruption_of_cpp_is_not_of_the_next_call(tmp_path: Path) -> None:
    file = tmp_path / "waits.cu"
    file.write_text(
        "#include <mscclpp/concurrency_device.hpp>\n"
        "#include <pybind11/pybind11.h>\n"
        "__global__ void wait(mscclpp::DeviceSemaphore* never) { never->acquire(); }\n"
        "PYBIND11_MODULE(waits, m) {\n"
        '  m.def("wait", [] { mscclpp::DeviceSemaphore never; wait<<<1, 1>>>(&never); });\n'
        "}\n"
    )
    module = mscclpp.compile_native("waits", file, device="cpu")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # Of another process: no thread of this one runs Python while the module waits.
        with (
            subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -INT {os.getpid()}"]),
            pytest.raises(RuntimeError, match="interrupted by a signal"),
        ):
            module.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    refused(ValueError, "at least one place", lambda: mscclpp.Fifo(0, mscclpp.DeviceType.CPU))


def uses_what_is_finalized(rank: Rank, transport: mscclpp.Transport) -> None:
    group, connection, semaphore = connected(rank, transport)
    peer = 1 - rank.rank
    data = torch.zeros(8, dtype=torch.int64)
    memories = group.register_tensor_with_connections(data, {peer: connection})
    native, own, there = group.native, memories[rank.rank], memories[peer]
    semaphores = group.make_semaphores({peer: connection})
    group.barrier()
    group.finalize()
    for use in (
        semaphore.signal,
        semaphore.poll,
        semaphore.wait,
        connection.flush,
        lambda: connection.write(there, 0, own, 0, 8),
        lambda: native.connect(transport, peer),
        lambda: native.send_memory(own, peer),
        lambda: mscclpp.Host2DeviceSemaphore(semaphores[peer]),
        there.data,
        group.check_waits,
    ):
        refused(ValueError, "the group has been finalized", use)
    refused(ValueError, "finalized", group.barrier)
    refused(ValueError, "finalized", lambda: group.make_connection([peer]))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_a_finalized_group_has_made_is_refused(
    ranks: MakeRanks, transport: mscclpp.Transport
) -> None:
    ranks(2).run(uses_what_is_finalized, transport)


def comes_too_late(rank: Rank) -> None:
    group = mscclpp.CommGroup(store=rank.store("m"), rank=rank.rank, size=rank.size, timeout=2)
    assert group.native.size == 2
    if rank.rank == 0:
        refused(mscclpp.CommTimeoutError, "rank 1", lambda: group.make_connection([1]))
        rank.say("it has ended")
    else:
        rank.listen()


def test_timeouts_of_groups_count_for_connections(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(comes_too_late)
    assert job.hear(0) == "it has ended"
    job.say(1)
    job.results()
