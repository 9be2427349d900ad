"""What tests of GPU backends run on: a GPU where there is one, else the stand-ins."""

from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from harness import standins

# NVLink multicast can put the GPUs of a shared host out of service.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

# Backends that are the library of a vendor.
VENDORS = ("nccl", "ncclx", "rccl", "rcclx")
# Backend ctran on GPUs, as the tests call it.
CTRAN_GPU = "ctran_gpu"
# Backend gloo on tensors of a device, through host memory.
GLOO_STAGED = "gloo_staged"
# Backend xccl on the stand-in of a device, over the stand-in of what torch has for Intel's GPUs.
XCCL = "xccl"
# Work on streams: a rank's operations run in the order of its calls.
ON_STREAMS = (*VENDORS, CTRAN_GPU)
# How many ranks may share a GPU, where there are fewer GPUs than ranks.
RANKS_PER_GPU = int(os.environ.get("HARNESS_RANKS_PER_GPU", "1"))
# Backends that cannot send to themselves.
ONLY_TO_OTHERS = ("gloo", GLOO_STAGED, XCCL)


class Cuda:
    """The GPU of a rank."""

    is_real = True

    def __init__(self, rank: int) -> None:
        index = rank % torch.cuda.device_count()
        torch.cuda.set_device(index)
        self.torch_device = torch.device("cuda", index)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in memory that the driver knows as the GPU's."""
        return tensor.to(self.torch_device)

    def stream(self) -> int:
        """The current stream, as CUDA has it."""
        return torch.cuda.current_stream().cuda_stream

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def synchronize_stream(self) -> None:
        torch.cuda.current_stream().synchronize()

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Another stream is current meanwhile."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    def new_stream(self) -> Any:
        return torch.cuda.Stream()

    def on(self, stream: Any) -> Any:
        """That stream is current meanwhile; nothing waits for anything."""
        return torch.cuda.stream(stream)

    def meet(self, streams: Sequence[Any]) -> None:
        """What comes next on any of them is behind what there is on all of them."""
        events = [stream.record_event() for stream in streams]
        for stream in streams:
            for event in events:
                stream.wait_event(event)

    def delay(self, now: bool, cycles: int = 200_000_000) -> None:
        """Keeps the current stream busy for a while, if `now`."""
        if now:
            torch.cuda._sleep(cycles)

    def capture(self, body: Callable[[], Any]) -> Callable[[], None]:
        """Captures what `body` does; calling the result replays it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        return graph.replay


class StandIn:
    """Streams in host memory."""

    is_real = False
    torch_device = torch.device("cpu")

    def __init__(self, rank: int, folder: Path) -> None:
        standins.use(folder, rank)
        self._driver = ctypes.CDLL(str(standins.driver()))
        self._stream = ctypes.c_void_p()
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._call("cuCtxSetCurrent", self._context)
        self._streams = [self._stream]

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def _new_stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self._call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        self._streams.append(stream)
        return stream

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in memory that the driver knows as the GPU's. The memory stays."""
        address = ctypes.c_ulonglong()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(tensor.nbytes, 1)))
        memory = (ctypes.c_char * max(tensor.nbytes, 1)).from_address(address.value)
        placed = torch.frombuffer(memory, dtype=torch.uint8)[: tensor.nbytes]
        return placed.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def stream(self) -> int:
        """The current stream, as the driver has it."""
        return self._stream.value or 0

    def last_launch(self) -> tuple[int, int]:
        """The blocks of the last kernel that was launched, and their threads."""
        return int(self._driver.standInLastBlocks()), int(self._driver.standInLastThreads())

    def urgent_streams(self) -> int:
        """How many streams of high priority have been made."""
        return int(self._driver.ctranStandInUrgentStreams())

    def synchronize(self) -> None:
        for stream in self._streams:
            self._call("cuStreamSynchronize", stream)

    def synchronize_stream(self) -> None:
        self._call("cuStreamSynchronize", self._stream)

    @contextmanager
    def _current(self, stream: ctypes.c_void_p) -> Iterator[None]:
        before, self._stream = self._stream, stream
        self._driver.ctranStandInSetCurrentStream(stream)
        try:
            yield
        finally:
            self._stream = before
            self._driver.ctranStandInSetCurrentStream(before)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        self.synchronize()
        stream = self._new_stream()
        with self._current(stream):
            yield
        self._call("cuStreamSynchronize", stream)

    def new_stream(self) -> Any:
        return self._new_stream()

    def on(self, stream: Any) -> Any:
        return self._current(stream)

    def meet(self, streams: Sequence[Any]) -> None:
        self.synchronize()

    def delay(self, now: bool, cycles: int = 0) -> None:
        """What ranks do here takes as long as the machine likes: nothing is to be added."""

    def capture(self, body: Callable[[], Any]) -> Callable[[], None]:
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        stream = self._new_stream()
        with self._current(stream):
            self._call("cuStreamBeginCapture_v2", stream, 0)
            try:
                body()
            finally:
                result = self._driver.cuStreamEndCapture(stream, ctypes.byref(graph))
            assert result == 0, f"cuStreamEndCapture: {result}"
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        self._call("cuGraphDestroy", graph)
        return Replay(self, executable)


class Replay:
    """A graph of the stand-in."""

    def __init__(self, device: StandIn, executable: ctypes.c_void_p) -> None:
        self._device = device
        self._executable = executable

    def __call__(self) -> None:
        self._device._call("cuGraphLaunch", self._executable, self._device._stream)

    def __del__(self) -> None:
        self._device._call("cuGraphExecDestroy", self._executable)


Device = Cuda | StandIn


@cache
def of(rank: int, folder: Path) -> Device:
    """The device of this process, a rank."""
    return Cuda(rank) if has_gpu() else StandIn(rank, folder)


@cache
def any_device(rank: int) -> torch.device:
    """A device for backends that take any: a GPU, or a stand-in that torch thinks is one."""
    return Cuda(rank).torch_device if has_gpu() else standin_device()


@cache
def standin_device() -> torch.device:
    library = standins.build_device()
    torch.ops.load_library(str(library))
    torch.utils.rename_privateuse1_backend("standin")
    torch._register_device_module("standin", types.ModuleType("torch.standin"))
    return torch.device("standin", 0)


@cache
def xccl_device() -> torch.device:
    """From here on torch has ProcessGroupXCCL, on this device."""
    import torch._C._distributed_c10d as c10d

    device = standin_device()
    c10d.ProcessGroupXCCL = standins.xccl()  # type: ignore[attr-defined]
    return device


class BusyDevice:
    """What is put on the current stream of the stand-in has to wait, until `release`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(standins.build_device()))
        self._library.standInDeviceHold()

    def release(self) -> None:
        self._library.standInDeviceRelease()


@cache
def has_gpu() -> bool:
    return torch.cuda.is_available()


def most_ranks(apart: bool = False) -> int:
    """How many ranks there are GPUs for; `apart`: with one for each, as NCCL needs it."""
    return torch.cuda.device_count() * (1 if apart else RANKS_PER_GPU)
