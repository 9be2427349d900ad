"""Channels that Python makes, for kernels that it compiles: on the host."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import Rank, Ranks, standins
from harness.ports import free_port
from harness.programs import Fork, run_forks
from mscclpp_ranks import (
    CHECKS,
    Check,
    Place,
    host_connections,
    python_port_channels,
    python_port_channels_with_scratch,
    refused,
)

import mscclpp
from mscclpp.utils import pack

MakeRanks = Callable[[int], Ranks]
SCRIPT = Path(__file__).parents[1] / "gpu" / "mscclpp" / "native.py"


def is_right(rank: Rank, check: Check) -> None:
    with mscclpp.CommGroup(store=rank.store("m"), rank=rank.rank, size=rank.size) as group:
        check(group, Place("cpu"))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_the_host(ranks: MakeRanks, check: Check, size: int) -> None:
    ranks(size).run(is_right, check)


def between_hosts(
    rank: Rank, checks: list[Check], transport: mscclpp.Transport, variables: dict[str, str]
) -> None:
    """Each rank is on a host of its own."""
    os.environ.update({"CTRAN_HOST": f"host{rank.rank}"}, **variables)
    with mscclpp.CommGroup(store=rank.store("m"), rank=rank.rank, size=rank.size) as group:
        for check in checks:
            check(group, Place("cpu", transport=transport))


BETWEEN_HOSTS = [host_connections, python_port_channels, python_port_channels_with_scratch]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("transport", [mscclpp.Transport.Ethernet, mscclpp.Transport.IB1])
def test_between_hosts(fresh_ranks: MakeRanks, size: int, transport: mscclpp.Transport) -> None:
    variables = {}
    if transport is not mscclpp.Transport.Ethernet:
        variables["CTRAN_VERBS_LIBRARY"] = str(standins.verbs())
    fresh_ranks(size).run(between_hosts, BETWEEN_HOSTS, transport, variables)


def no_rdma(group: mscclpp.CommGroup, place: Place) -> None:
    peer = 1 - group.my_rank
    refused(
        ValueError,
        f"there is no IB0 to rank {peer}",
        lambda: group.make_connection([peer], mscclpp.Transport.IB0),
    )
    group.barrier()


def no_addresses(group: mscclpp.CommGroup, place: Place) -> None:
    peer = 1 - group.my_rank
    connections = group.make_connection([peer], place.endpoint)
    semaphores = group.make_semaphores(connections)
    memories = group.register_tensor_with_connections(place.zeros(8, torch.int32), connections)
    refused(ValueError, "is on another host", memories[peer].data)
    refused(
        ValueError,
        "of CudaIpc connections alone, not of Ethernet",
        lambda: mscclpp.MemoryChannel(semaphores[peer], memories[peer], memories[group.my_rank]),
    )
    refused(
        ValueError,
        "the other end of a CudaIpc connection is on another host",
        lambda: group.make_connection([peer], mscclpp.Transport.CudaIpc),
    )
    group.barrier()


def test_what_hosts_do_not_have_is_refused(fresh_ranks: MakeRanks) -> None:
    checks = [no_rdma, no_addresses]
    ranks = fresh_ranks(2)
    ranks.run(between_hosts, checks, mscclpp.Transport.Ethernet, {"CTRAN_IB": "0"})


def says_nothing_for_long(group: mscclpp.CommGroup, place: Place) -> None:
    """Longer than MSCCLPP_TIMEOUT, which is 1."""
    peer = 1 - group.my_rank
    connections = group.make_connection([peer], place.endpoint)
    semaphore = mscclpp.Host2HostSemaphore(group.make_semaphores(connections)[peer])
    time.sleep(2.5)
    group.barrier()
    semaphore.signal()
    semaphore.wait()
    if group.my_rank == 0:
        refused(mscclpp.CommTimeoutError, "waited 1 s for rank 1", semaphore.wait)
    group.barrier()


def test_connections_live_while_nobody_uses_them(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(2)
    variables = {"MSCCLPP_TIMEOUT": "1"}
    ranks.run(between_hosts, [says_nothing_for_long], mscclpp.Transport.Ethernet, variables)


def test_waits_end(tmp_path: Path) -> None:
    paths = [*sys.path, str(SCRIPT.parents[2])]
    source = f"import runpy, sys; sys.path[:] = {paths}\n"
    source += f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    jobs = {}
    for late in ("a_wait_in_vain_ends", "a_rank_that_dies_ends_the_wait"):
        command = ["--device", "cpu", "--ranks", "2", "--late", late, "--port", str(free_port())]
        jobs[late] = [
            Fork(source, [*command, "--rank", str(rank)], {"MSCCLPP_TIMEOUT": "2"})
            for rank in range(2)
        ]
    for late, ranks in run_forks(jobs, tmp_path).items():
        assert [one.code for one in ranks] == [0, 0], (late, ranks)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_kernels_compile_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    kernel = Place("cuda", "90").kernel("scale<3>")  # of a file with all of them
    assert (kernel.name, kernel.device) == ("scale<3>", "cuda")


def test_arguments_are_aligned() -> None:
    words = (ctypes.c_int * 4)()
    where = ctypes.addressof(words).to_bytes(8, "little")
    assert pack(1, words) == b"\1\0\0\0\0\0\0\0" + where
    assert pack(True, -1, 1.0) == b"\1\0\0\0" + b"\xff" * 4 + b"\0\0\x80\x3f"
    assert pack(ctypes.c_uint8(7), ctypes.c_size_t(2)) == b"\7" + bytes(7) + b"\2" + bytes(7)
    assert pack(b"abc", 1) == b"abc\0\1\0\0\0"
    tensor = torch.zeros(3)
    assert pack(tensor) == tensor.data_ptr().to_bytes(8, "little")
    array = np.zeros(3)
    assert pack(array) == array.ctypes.data.to_bytes(8, "little")
    with pytest.raises(OverflowError, match=r"pass ctypes\.c_size_t of it"):
        pack(1 << 32)
    with pytest.raises(TypeError, match="kernels take no dict"):
        pack({})
    with pytest.raises(ValueError, match="has to be contiguous"):
        pack(torch.zeros(4, 4).t())


def test_transports() -> None:
    both = mscclpp.Transport.CudaIpc | mscclpp.Transport.Ethernet
    assert both.has(mscclpp.Transport.Ethernet)
    assert not both.has(mscclpp.Transport.IB0)
    assert repr(both) == "CudaIpc | Ethernet"
    assert both == mscclpp.TransportFlags(*[mscclpp.Transport.Ethernet, mscclpp.Transport.CudaIpc])


def refusals(rank: Rank) -> None:
    with mscclpp.CommGroup(store=rank.store("m"), rank=rank.rank, size=rank.size) as group:
        with pytest.raises(ValueError, match="there is no rank 2 among 2 ranks"):
            group.make_connection([2])
        with pytest.raises(ValueError, match="there is no transport Unknown"):
            group.make_connection(range(2), mscclpp.Transport.Unknown)
        with pytest.raises(ValueError, match="both ends are on one host"):
            group.make_connection(range(2), mscclpp.Transport.IB0)
        place = Place("cpu")
        connections = group.make_connection(range(2), place.endpoint)
        # Nobody else maps what torch allocates.
        semaphores = group.make_semaphores(connections)
        memories = group.register_tensor_with_connections(torch.zeros(8), connections)
        peer = 1 - rank.rank
        with pytest.raises(ValueError, match="take it from GpuBuffer"):
            mscclpp.MemoryChannel(semaphores[peer], memories[peer], memories[rank.rank])
        group.barrier()


def test_what_cannot_be_is_refused(ranks: MakeRanks) -> None:
    ranks(2).run(refusals)


def asks_the_communicator(rank: Rank) -> None:
    """As programs for MSCCL++ do: all is a method of CommGroup.communicator."""
    with mscclpp.CommGroup(store=rank.store("m"), rank=rank.rank, size=rank.size) as group:
        comm, peer = group.communicator, 1 - rank.rank
        config = mscclpp.EndpointConfig(mscclpp.Transport.CudaIpc, Place("cpu").endpoint.device)
        connection = comm.connect(config, peer, tag=3).get()
        assert (comm.remote_rank_of(connection), comm.tag_of(connection)) == (peer, 3)
        buffer = mscclpp.RawGpuBuffer(16, device="cpu")
        own = comm.register_memory(buffer.data(), 16, mscclpp.Transport.CudaIpc)
        comm.send_memory(own, peer)
        there = comm.recv_memory(peer).get()
        service = mscclpp.ProxyService(device=mscclpp.DeviceType.CPU)
        number = service.build_and_add_semaphore(comm, connection)
        assert service.port_channel(number, service.add_memory(there), service.add_memory(own))
        semaphore = mscclpp.Host2HostSemaphore(comm.build_semaphore(connection, peer).get())
        connection.write(there, 8 * rank.rank, own, 0, 8)
        semaphore.signal()
        semaphore.wait()

        bootstrap = comm.bootstrap()
        assert group.bootstrap.get_n_ranks() == 2
        assert (bootstrap.get_rank(), bootstrap.get_n_ranks()) == (rank.rank, 2)
        assert bootstrap.get_n_ranks_per_node() == bootstrap.get_n_ranks_per_ipc_domain() == 2
        words = np.zeros(2, np.int64)
        words[rank.rank] = rank.rank + 5
        bootstrap.all_gather(words.ctypes.data, 8)
        assert words.tolist() == [5, 6]
        other = np.zeros(1, np.int64)
        if rank.rank == 0:
            bootstrap.send(words.ctypes.data, 8, peer, 4)
        else:
            bootstrap.recv(other.ctypes.data, 8, peer, 4)
            assert other.tolist() == [5]
        with pytest.raises(ValueError, match="a message has an address"):
            bootstrap.send(0, 8, peer)
        bootstrap.barrier()


def test_the_communicator_makes_what_the_group_does(ranks: MakeRanks) -> None:
    ranks(2).run(asks_the_communicator)


def test_a_buffer_is_an_array() -> None:
    buffer = mscclpp.GpuBuffer((3, 4), np.float32, device="cpu")
    array = np.asarray(buffer)
    assert (array.shape, array.dtype, array.nbytes) == ((3, 4), np.float32, buffer.nbytes)
    array[:] = 2
    tensor = torch.from_dlpack(buffer)  # type: ignore[attr-defined]
    assert tensor.shape == (3, 4)
    assert tensor.eq(2).all()
    assert (buffer.nelems(), buffer.size, buffer.dtype) == (12, 12, "float32")
    assert mscclpp.GpuBuffer(5, torch.bfloat16, device="cpu").nbytes == 10
    assert np.asarray(mscclpp.GpuBuffer(5, "complex64", device="cpu")).dtype == np.complex64
    with pytest.raises(ValueError, match="'complex32' is none of"):
        mscclpp.GpuBuffer(5, "complex32")
    with pytest.raises(ValueError, match="a buffer has no shape"):
        mscclpp.GpuBuffer((5, -1))


def test_requests_of_kernels_are_polled() -> None:
    fifo = mscclpp.Fifo(4, mscclpp.DeviceType.CPU)
    assert fifo.poll() is None
    with pytest.raises(ValueError, match="there is no request to pop"):
        fifo.pop()
    assert len(fifo.device_handle().raw) == 40
    with pytest.raises(ValueError, match="at least one place"):
        mscclpp.Fifo(0, mscclpp.DeviceType.CPU)
