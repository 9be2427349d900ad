"""What mscclpp promises to kernels of a program's own, on CPUs and on GPUs alike.

Each check gets a CommGroup and a device, and is called on all its ranks.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import mscclpp
import torchcomms
from mscclpp.utils import Kernel, KernelBuilder, pack, torch_dtype_to_mscclpp_dtype

ROOT = Path(__file__).parents[2]
OWN_KERNELS = Path(__file__).with_name("kernels.cu")
MODULES = {
    "mscclpp_native": (
        ROOT / "examples" / "torch-integration" / "customized_allgather.cu",
        "create_allgather_algorithm",
    ),
    **{
        name: (ROOT / "tests" / "mscclpp" / "native" / "kernels" / f"{name}.cu", "create")
        for name in ("port_all_gather", "packet_all_reduce", "switch_all_reduce")
    },
}
KERNELS = (
    "gather",
    "gather_by_proxy",
    "add_by_packets",
    "add_by_switch",
    "wait_once",
    "scale<3>",
)

Check = Callable[[mscclpp.CommGroup, "Place"], None]
CHECKS: list[Check] = []


class Place:
    """Where kernels run: "cpu" or "cuda", and for which GPU they are compiled."""

    def __init__(
        self,
        kind: str,
        arch: str | None = None,
        transport: mscclpp.Transport = mscclpp.Transport.CudaIpc,
    ) -> None:
        self.kind, self.arch = kind, arch
        self.is_gpu = kind == "cuda"
        self.type = mscclpp.DeviceType.GPU if self.is_gpu else mscclpp.DeviceType.CPU
        self.endpoint = mscclpp.EndpointConfig(transport, mscclpp.Device(self.type))

    def kernel(self, name: str) -> Kernel:
        builder = KernelBuilder(OWN_KERNELS, name, device=self.kind, arch=self.arch)
        return builder.get_compiled_kernel()

    def algorithm(self, name: str) -> mscclpp.Algorithm:
        file, create = MODULES[name]
        module = mscclpp.compile_native(name, file, device=self.kind, arch=self.arch)
        return mscclpp.Algorithm.create_from_native_capsule(getattr(module, create)())

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory that other ranks reach."""
        size = count * torch.empty(0, dtype=dtype).element_size()
        buffer = mscclpp.RawGpuBuffer(size, device=self.kind)
        return torch.utils.dlpack.from_dlpack(buffer.to_dlpack(str(dtype)))

    def handles(self, channels: dict[int, Any]) -> torch.Tensor:
        """What a kernel gets of channels, in the order of ranks."""
        raw = b"".join(channels[rank].device_handle().raw for rank in sorted(channels))
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(self.kind)

    def stream(self) -> int:
        return torch.cuda.current_stream().cuda_stream if self.is_gpu else 0

    def launch(self, kernel: Kernel, blocks: int, threads: int, *arguments: Any) -> None:
        kernel.launch_kernel(pack(*arguments), blocks, threads, 0, self.stream())

    def synchronize(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()

    def result(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the host. A copy to pageable memory would keep a proxy from what kernels wait for."""
        self.synchronize()
        return tensor.cpu()


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def refused(kinds: type[Exception] | tuple[type[Exception], ...], why: str, body: Any) -> None:
    """`body` raises such an error, which says `why`."""
    try:
        body()
    except kinds as error:
        if why not in str(error):
            raise AssertionError(f"{error} does not say {why!r}") from error
    else:
        raise AssertionError(f"nothing was raised that says {why!r}")


def values(rank: int, count: int, turn: int, dtype: torch.dtype) -> torch.Tensor:
    """Depends on who wrote it, where, and when; sums of a few are exact in any type."""
    return (torch.arange(count) * 7 + (rank + 1) * 1009 + turn * 131).to(dtype)


def execute(
    algorithm: mscclpp.Algorithm,
    group: mscclpp.CommGroup,
    place: Place,
    source: torch.Tensor,
    output: torch.Tensor,
    **more: Any,
) -> None:
    code = algorithm.execute(
        group.communicator,
        source.data_ptr(),
        output.data_ptr(),
        source.nbytes,
        output.nbytes,
        torch_dtype_to_mscclpp_dtype(source.dtype),
        mscclpp.ReduceOp.SUM,
        stream=place.stream(),
        **more,
    )
    assert code == 0, mscclpp.CommResult(code)


def _algorithm_is_right(name: str, group: mscclpp.CommGroup, place: Place) -> None:
    algorithm = place.algorithm(name)
    gathers = algorithm.collective == "allgather"
    rank, size = group.my_rank, group.nranks
    types = [torch.float32] if "switch" in name else [torch.int32, torch.float32]
    for dtype in types:
        for count in (1, 5, 1024, 10_001):
            output = torch.full((count * size if gathers else count,), -1, dtype=dtype)
            output = output.to(place.kind)
            part = output[rank * count :][:count] if gathers else output
            apart = torch.empty(count, dtype=dtype, device=place.kind)
            for turn in range(4):
                source = part if turn % 2 else apart
                source.copy_(values(rank, count, turn, dtype))
                # Blocks as the algorithm likes, and others.
                execute(algorithm, group, place, source, output, nblocks=turn % 3)
                everyone = [values(r, count, turn, dtype) for r in range(size)]
                expected = torch.cat(everyone) if gathers else sum(everyone)
                assert torch.equal(place.result(output), expected), (name, dtype, count, turn)
    group.barrier()


@check
def guide_all_gather(group: mscclpp.CommGroup, place: Place) -> None:
    _algorithm_is_right("mscclpp_native", group, place)


@check
def port_all_gather(group: mscclpp.CommGroup, place: Place) -> None:
    _algorithm_is_right("port_all_gather", group, place)


@check
def packet_all_reduce(group: mscclpp.CommGroup, place: Place) -> None:
    _algorithm_is_right("packet_all_reduce", group, place)


@check
def switch_all_reduce(group: mscclpp.CommGroup, place: Place) -> None:
    _algorithm_is_right("switch_all_reduce", group, place)


def _torchcomm_of(group: mscclpp.CommGroup, place: Place) -> torchcomms.TorchComm:
    """Another communicator of the group's ranks, and of their GPUs where kernels run there."""
    port = torch.zeros(1, dtype=torch.int64)
    if group.my_rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port.fill_(store.port)
        for peer in range(1, group.nranks):
            group.send(port, peer)
    else:
        group.recv(port, 0)
        store = dist.TCPStore("127.0.0.1", int(port), is_master=False)
    options = torchcomms.CommOptions()
    options.rank, options.size = group.my_rank, group.nranks
    device = torch.empty(0, device=place.kind).device  # with the number of the GPU
    return torchcomms.new_comm(
        "ctran", device, "served", options=options, store=store,
        abort_process_on_timeout_or_error=False,
    )  # fmt: skip


@check
def native_algorithm_serves_torchcomms(group: mscclpp.CommGroup, place: Place) -> None:
    """Calls, several at a time, and of GPUs in a graph, with other inputs in each replay."""
    rank, size = group.my_rank, group.nranks
    comm = _torchcomm_of(group, place)
    algorithm = place.algorithm("packet_all_reduce")
    add = torchcomms.ReduceOp.SUM

    def summed(count: int, turn: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.stack([values(r, count, turn, dtype) for r in range(size)]).sum(0).to(dtype)

    types = [torch.float32, torch.int32]
    with mscclpp.register(algorithm, comm, dtypes=types, prefer=True):
        for dtype in types:
            found = comm.explain("all_reduce", 4096, dtype).algorithm
            assert found == f"plan:{algorithm.name}", found
            for count in (1, 1024, 10_001):
                several = [values(rank, count + i, i, dtype).to(place.kind) for i in range(4)]
                works = [comm.all_reduce(one, add, async_op=True) for one in several]
                for i, work in enumerate(works):
                    work.wait()
                    result = place.result(several[i])
                    assert torch.equal(result, summed(count + i, i, dtype)), (count, i)
        if place.is_gpu:
            data = torch.zeros(1000, device=place.kind)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                comm.all_reduce(data, add, async_op=False)
            for turn in range(3):
                data.copy_(values(rank, 1000, turn, torch.float32))
                graph.replay()
                assert torch.equal(place.result(data), summed(1000, turn, torch.float32)), turn
            del graph
    comm.finalize()
    group.barrier()


@check
def memory_of_the_other_kind_is_refused(group: mscclpp.CommGroup, place: Place) -> None:
    """A kernel would fault."""
    algorithm = place.algorithm("packet_all_reduce")
    if place.is_gpu:
        words = torch.zeros(8)
        refused(
            ValueError,
            "is in memory of the host, but it was compiled for GPUs",
            lambda: execute(algorithm, group, Place("cpu"), words, words),
        )


@check
def python_memory_channels(group: mscclpp.CommGroup, place: Place) -> None:
    rank, size = group.my_rank, group.nranks
    connections = group.make_connection(range(size), place.endpoint)
    assert sorted(connections) == [r for r in range(size) if r != rank]
    kernel = place.kernel("gather")
    for count in (1, 999, 70_001):
        tensor = place.zeros(size * count, torch.int32)
        channels = group.make_memory_channels(tensor, connections)
        handles = place.handles(channels)
        for turn in range(3):
            mine = tensor[rank * count :][:count]
            mine.copy_(values(rank, count, turn, torch.int32))
            size_of_part = ctypes.c_size_t(4 * count)
            # As MemoryChannel::put has one offset for both, parts lie at the same place everywhere.
            place.launch(kernel, size - 1, 64, handles, rank, size_of_part)
            expected = torch.cat([values(r, count, turn, torch.int32) for r in range(size)])
            assert torch.equal(place.result(tensor), expected), (count, turn)
            group.barrier()
    group.check_waits()


@check
def python_packets(group: mscclpp.CommGroup, place: Place) -> None:
    rank, size, words = group.my_rank, group.nranks, 301
    connections = group.make_connection(range(size), place.endpoint)
    data = torch.zeros(words, dtype=torch.int32, device=place.kind)
    scratch = [place.zeros(2 * size * words, torch.int32) for _ in range(2)]
    # Two scratches take turns: who writes one again has got packets in the other from all.
    channels = [group.make_memory_channels_with_scratch(data, one, connections) for one in scratch]
    handles = [place.handles(some) for some in channels]
    kernel = place.kernel("add_by_packets")
    for turn in range(6):
        data.copy_(values(rank, words, turn, torch.int32))
        place.launch(
            kernel, 1, 96, handles[turn % 2], size - 1, rank, data, ctypes.c_size_t(words), turn + 1
        )
        expected = sum(values(r, words, turn, torch.int32) for r in range(size))
        assert torch.equal(place.result(data), expected), turn
    group.barrier()


@check
def python_port_channels(group: mscclpp.CommGroup, place: Place) -> None:
    rank, size, count = group.my_rank, group.nranks, 5003
    connections = group.make_connection(
        range(size), {r: place.endpoint for r in range(size) if r != rank}
    )
    service = mscclpp.ProxyService(8, place.type)
    tensor = place.zeros(size * count, torch.float32)
    channels = group.make_port_channels(service, tensor, connections)
    handles = place.handles(channels)
    service.start_proxy()
    kernel = place.kernel("gather_by_proxy")
    for turn in range(5):
        tensor[rank * count :][:count].copy_(values(rank, count, turn, torch.float32))
        place.launch(kernel, 1, 32, handles, size - 1, rank, ctypes.c_size_t(4 * count))
        expected = torch.cat([values(r, count, turn, torch.float32) for r in range(size)])
        assert torch.equal(place.result(tensor), expected), turn
        group.barrier()
    service.stop_proxy()


@check
def python_port_channels_with_scratch(group: mscclpp.CommGroup, place: Place) -> None:
    rank, size, count = group.my_rank, group.nranks, 701
    connections = group.make_connection(range(size), place.endpoint)
    service = mscclpp.ProxyService(8, place.type)
    tensor, scratch = (place.zeros(size * count, torch.int32) for _ in range(2))
    channels = group.make_port_channels_with_scratch(service, tensor, scratch, connections)
    handles = place.handles(channels)
    service.start_proxy()
    kernel = place.kernel("gather_by_proxy")
    for turn in range(3):
        for one in (tensor, scratch):
            one[rank * count :][:count].copy_(values(rank, count, turn, torch.int32))
        place.launch(kernel, 1, 32, handles, size - 1, rank, ctypes.c_size_t(4 * count))
        expected = torch.cat([values(r, count, turn, torch.int32) for r in range(size)])
        assert torch.equal(place.result(scratch), expected), turn
        group.barrier()
    service.stop_proxy()


@check
def python_switch_channel(group: mscclpp.CommGroup, place: Place) -> None:
    rank, size, count = group.my_rank, group.nranks, 4099
    tensor = place.zeros(count, torch.float32)
    switch = group.make_connection(range(size), place.endpoint, use_switch=True)
    channel = switch.bind_allocated_memory(tensor.data_ptr(), tensor.nbytes)
    assert channel.get_device_ptr() == tensor.data_ptr()
    connections = group.make_connection(range(size), place.endpoint)
    signals = {
        r: mscclpp.BaseMemoryChannel(semaphore)
        for r, semaphore in group.make_semaphores(connections).items()
    }
    handles = place.handles(signals)
    kernel = place.kernel("add_by_switch")
    for turn in range(3):
        tensor.copy_(values(rank, count, turn, torch.float32))
        place.launch(
            kernel, 1, 128, channel.device_handle(), handles, size - 1, rank, ctypes.c_size_t(count)
        )
        expected = sum(values(r, count, turn, torch.float32) for r in range(size))
        assert torch.equal(place.result(tensor), expected), turn
        group.barrier()


@check
def host_connections(group: mscclpp.CommGroup, place: Place) -> None:
    """Copies by the host, and signals between hosts."""
    rank, size = group.my_rank, group.nranks
    # Signals between hosts are in the host's memory.
    transport = place.endpoint.transport
    on_host = mscclpp.EndpointConfig(transport, mscclpp.Device(mscclpp.DeviceType.CPU))
    connections = group.make_connection(range(size), on_host)
    semaphores = {
        r: mscclpp.Host2HostSemaphore(one) for r, one in group.make_semaphores(connections).items()
    }
    tensor = place.zeros(size * 100, torch.int32)
    tensor[rank * 100 :][:100].copy_(values(rank, 100, 0, torch.int32))
    place.synchronize()
    memories = group.register_tensor_with_connections(tensor, connections)
    assert memories[rank].size() == tensor.nbytes
    assert memories[rank].data() == tensor.data_ptr()
    for peer, connection in connections.items():
        assert connection.transport() is transport
        connection.write(memories[peer], rank * 400, memories[rank], rank * 400, 400)
        connection.flush()
        semaphores[peer].signal()
    for semaphore in semaphores.values():
        semaphore.wait()
        assert not semaphore.poll()
    expected = torch.cat([values(r, 100, 0, torch.int32) for r in range(size)])
    assert torch.equal(place.result(tensor), expected)
    neighbour = connections[(rank + 1) % size]
    refused(
        ValueError,
        "of the destination, which has",
        lambda: neighbour.write(memories[rank], 1, memories[rank], 0, tensor.nbytes),
    )
    group.barrier()


@check
def kernels_take_packed_arguments(group: mscclpp.CommGroup, place: Place) -> None:
    data = torch.arange(100, dtype=torch.float32).to(place.kind)
    kernel = place.kernel("scale<3>")
    kernel.launch_kernel(pack(data, 100, 0.5), 1, 32, 400, place.stream())
    assert torch.equal(place.result(data), torch.arange(100) * 3 + 0.5)
    refused(
        ValueError,
        "takes 16 bytes of arguments, not 12",
        lambda: kernel.launch_kernel(pack(data, 100), 1, 32, 400, place.stream()),
    )


def a_wait_in_vain_ends(group: mscclpp.CommGroup, place: Place) -> None:
    """With MSCCLPP_TIMEOUT=2. The error names the rank; then the channel is of no more use."""
    peer = (group.my_rank + 1) % group.nranks
    connections = group.make_connection(range(group.nranks), place.endpoint)
    signals = mscclpp.BaseMemoryChannel(group.make_semaphores(connections)[peer])
    handles = place.handles({peer: signals})
    if group.my_rank == 0:
        refused(mscclpp.CommTimeoutError, f"rank {peer}", lambda: wait_once(group, place, handles))
    group.barrier()


def a_rank_that_dies_ends_the_wait(group: mscclpp.CommGroup, place: Place) -> None:
    """With MSCCLPP_TIMEOUT=2, and two ranks, of which the last one ends in here."""
    connections = group.make_connection(range(group.nranks), place.endpoint)
    peer = 1 - group.my_rank
    signals = mscclpp.BaseMemoryChannel(group.make_semaphores(connections)[peer])
    handles = place.handles({peer: signals})
    ready = torch.zeros(1)
    if group.my_rank == 1:
        group.recv(ready, 0)  # the other has all that it needs
        os._exit(0)
    group.send(ready, 1)
    errors = (mscclpp.CommTimeoutError, mscclpp.PeerLostError)
    refused(errors, "rank 1", lambda: wait_once(group, place, handles))


def wait_once(group: mscclpp.CommGroup, place: Place, handles: torch.Tensor) -> None:
    place.launch(place.kernel("wait_once"), 1, 1, handles)
    place.synchronize()
    group.check_waits()
