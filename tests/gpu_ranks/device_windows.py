"""Device windows: what kernels of the program may rely on, and what the program hears of them."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from harness import Died, Rank, Returned
from harness.devices import RANKS_PER_GPU, has_gpu
from harness.doc_blocks import blocks_of
from harness.failing import error_of, until

import torchcomms
from gpu_ranks import BACKEND, Make, case
from mscclpp.utils import KernelBuilder, pack
from torchcomms import TorchComm, TorchCommWindow

KERNELS = Path(__file__).with_name("device_windows.cu")
INCLUDE = Path(__file__).parents[2] / "include"
COUNT = 3001
STATUS = 100
ABORTED, TIMED_OUT, OUT_OF_RANGE = STATUS + 1, STATUS + 2, STATUS + 3


Launch = Callable[..., None]


def _launch_cuda(made: Any, rank: Rank, blocks: int, threads: int, *arguments: Any) -> None:
    if rank.gpu().is_real:
        made(grid=(blocks, 1, 1), block=(threads, 1, 1), args=list(arguments))
    else:
        rank.gpu().synchronize()
        made.launch_kernel(pack(*arguments), blocks, threads)


def _launch_triton(made: Any, rank: Rank, blocks: int, threads: int, *arguments: Any) -> None:
    """Programs have as many threads as Triton gives them."""
    if not rank.gpu().is_real:
        rank.gpu().synchronize()
    made[(blocks,)](*arguments)


@cache
def triton_kernels() -> ModuleType:
    """For a GPU; else for Triton's interpreter, to which this process then belongs."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    return importlib.import_module("gpu_ranks.triton_kernels")


@cache
def kernel(name: str, language: str = "cuda", file: Path = KERNELS) -> Launch:
    """What launches a kernel, of CUDA by NVRTC for a GPU; else it runs on the host, and the call
    returns when the kernel has ended."""
    if language == "triton":
        return partial(_launch_triton, getattr(triton_kernels(), name))
    if torch.cuda.is_available():
        os.environ.setdefault(
            "CUDA_HOME", "/usr/local/cuda"
        )  # torch wants one, if not what is in it
        source, folders = file.read_text(), [str(INCLUDE)]
        return partial(
            _launch_cuda, torch.cuda._compile_kernel(source, name, cuda_include_dirs=folders)
        )
    os.environ["CPLUS_INCLUDE_PATH"] = str(INCLUDE)
    made = KernelBuilder(file, name, device="cpu").get_compiled_kernel()
    return partial(_launch_cuda, made)


def words_of(rank: Rank, *numbers: int) -> torch.Tensor:
    words = torch.tensor([*numbers, 0, 0, 0, 0, 0][:5], dtype=torch.int64)
    return words.to(rank.device(BACKEND))


def number(rank: Rank, words: torch.Tensor) -> int:
    """What the kernel has left, once it has ended."""
    rank.synchronize(BACKEND)
    return int(words.cpu()[4])


def value(rank: int, lap: int) -> torch.Tensor:
    return torch.arange(COUNT, dtype=torch.float32) + 1000 * rank + lap


def _exchange(
    rank: Rank,
    comm: TorchComm,
    window: TorchCommWindow,
    buffer: int,
    source: torch.Tensor,
    language: str,
) -> None:
    """Three times; the signals and counters are 0 before."""
    handle = window.get_device_window(3, 2, 1)
    own = window.get_tensor(rank.rank, [rank.size * COUNT], torch.float32)
    assert own is not None
    for lap in range(1, 4):
        source.copy_(value(rank.rank, lap))
        own.fill_(-1)
        rank.synchronize(BACKEND)
        comm.barrier(async_op=False)
        words = words_of(rank, handle, buffer, 4 * COUNT, lap)
        kernel("exchange", language)(rank, rank.size, 96, words)
        assert number(rank, words) == 0
        assert torch.equal(own.cpu(), torch.cat([value(r, lap) for r in range(rank.size)]))
        comm.barrier(async_op=False)
        rank.synchronize(BACKEND)


def exchanges(rank: Rank, backend: str, language: str = "cuda") -> None:
    comm = rank.comm(backend)
    window = comm.window_allocate(4 * COUNT * rank.size)
    handle = window.get_device_window(3, 2, 1)
    assert handle == window.get_device_window(signal_count=3, counter_count=2, barrier_count=1)
    source = torch.zeros(COUNT, device=rank.device(backend))
    buffer = window.register_local_buffer(source)
    _exchange(rank, comm, window, buffer, source, language)
    words = words_of(rank, handle, buffer, 20)
    kernel("pass_on", language)(rank, 1, 32, words)
    assert number(rank, words) == 0
    # Operations of the window itself go on beside.
    window.put(source, (rank.rank + 1) % rank.size, 0, async_op=False)
    window.signal((rank.rank + 1) % rank.size, async_op=False)
    window.wait_signal((rank.rank - 1) % rank.size, async_op=False)
    rank.synchronize(backend)
    found = window.get_tensor(rank.rank, [COUNT], torch.float32)
    assert found is not None
    assert torch.equal(found.cpu(), value((rank.rank - 1) % rank.size, 3))
    window.deregister_local_buffer(buffer)
    told = error_of(lambda: window.deregister_local_buffer(buffer))
    assert "no buffer has this handle" in str(told), told
    window.tensor_deregister()
    again = comm.window_allocate(64)
    assert again.get_device_window() != 0
    again.tensor_deregister()


@case(world=2)
def kernels_put_signal_and_wait(make: Make) -> None:
    make(1).run(exchanges, BACKEND)
    make(2).run(exchanges, BACKEND)


@case(world=2)
def kernels_put_signal_and_wait_on_ncclx(make: Make) -> None:
    make(2).run(exchanges, "ncclx")


def rings(rank: Rank, count: int, rounds: int, *languages: str) -> None:
    """Each rank's kernel is in the language of its place."""
    comm = rank.comm(BACKEND)
    window = comm.window_allocate(8 * count)
    source = torch.zeros(count, dtype=torch.int64, device=rank.device(BACKEND))
    handle, buffer = window.get_device_window(2, 0, 0), window.register_local_buffer(source)
    words = words_of(rank, handle, buffer, rounds, source.data_ptr())
    launch = kernel("ring", languages[rank.rank])
    comm.barrier(async_op=False)
    launch(rank, 1, 512 if rank.gpu().is_real else 48, words)
    assert number(rank, words) == 0
    window.tensor_deregister()


def data_comes_first(make: Make, language: str, rounds: int) -> None:
    """So many rounds where there is no GPU."""
    if has_gpu():  # ranks that share one take turns on it, of milliseconds
        rounds = 20_000 if RANKS_PER_GPU == 1 else 200
    for count in (1, 33, 4096):
        make(2).run(rings, count, rounds, language, language)


@case(world=2)
def data_comes_before_its_signal(make: Make) -> None:
    data_comes_first(make, "cuda", 30)


def _addresses(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    window = comm.window_allocate(64)
    for peer in range(rank.size):
        view = window.get_tensor(peer, [64], torch.uint8)
        assert view is not None
        assert window.get_nvlink_address(peer) == view.data_ptr()
        del view
    for call, what in (
        (lambda: window.get_nvlink_address(rank.size), "rank must be in range"),
        (window.get_multimem_address, "NVLink multicast is not used"),
        (lambda: window.get_device_window(-2), "signal_count must be in range"),
        (lambda: window.get_device_window(1, 1 << 21), "counter_count must be in range"),
        (lambda: window.get_device_window(1, 1, -7), "barrier_count must be in range"),
        (lambda: window.register_local_buffer(torch.ones(4, 4).t()), "contiguous tensor required"),
    ):
        told = error_of(call)
        assert what in str(told), told
    if rank.gpu().is_real and torch.cuda.device_count() > 1:
        elsewhere = torch.ones(4, device=f"cuda:{1 - rank.device(BACKEND).index % 2}")
        told = error_of(lambda: window.register_local_buffer(elsewhere))
        assert "register_local_buffer: the tensor is on" in str(told), told
    window.get_device_window(4)
    told = error_of(lambda: window.get_device_window(5))
    assert "the window has one with other counts" in str(told), told
    window.tensor_deregister()
    told = error_of(window.get_device_window)
    assert "no tensor is registered" in str(told), told
    different = comm.window_allocate(64)
    told = error_of(lambda: different.get_device_window(1, 2, 3 + rank.rank))
    assert "get_device_window: rank 1 asks for 1 signals, 2 counters and 4 barriers" in str(told)
    assert told.ranks == [1]
    different.get_device_window(1, 2, 3)
    different.tensor_deregister()
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)


@case(world=2)
def wrong_calls_for_kernels_are_refused(make: Make) -> None:
    make(2).run(_addresses)


def _without_atomics(rank: Rank) -> None:
    if rank.gpu().is_real:
        return  # its links are what they are
    os.environ["STAND_IN_ATOMICS"] = "0"
    comm = rank.new_comm(BACKEND, "without atomics")
    window = comm.window_allocate(64)
    told = error_of(window.get_device_window)
    assert "is not known to carry atomic operations" in str(told), told
    assert "the link to the GPU of rank 1" in str(told), told
    window.put(torch.ones(1), 1 - rank.rank, 0, async_op=False)
    window.tensor_deregister()
    comm.finalize()


@case(world=2, breaks=True)
def links_without_atomics_are_refused(make: Make) -> None:
    make(2).run(_without_atomics)


# What is waited for in vain on rank 0, and what the error says.
AWAITED = ("for signal 1", "for signal 1", "for barrier 0", "for counter 0")


def _in_vain(rank: Rank, backend: str, language: str, what: int, end: str) -> Any:
    """Rank 0 waits in a kernel for what does not come; the rest stays free to end that."""
    gc.collect()  # an error before this one may hold its window, and so the mapping of memory
    comm = rank.new_comm(backend, f"vain-{what}-{end}", timeout=timedelta(seconds=60))
    window = comm.window_allocate(64)
    launch = kernel("await_in_vain", language)
    comm.barrier(async_op=False)
    if end == "timeout":
        comm.set_timeout(timedelta(seconds=2))  # for the kernels, and for this call
    handle = window.get_device_window(3, 1, 1)
    comm.set_timeout(timedelta(seconds=60))
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        rank.listen()
        if end == "abort":
            comm.abort()
        if end == "death":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "timeout":  # this rank hears of it, too
            until(comm.is_aborted, "the communicator has failed")
            return str(error_of(lambda: comm.barrier(async_op=False)))
        return None
    words = words_of(rank, handle, 0, what, 1)
    rank.say("launching")
    launch(rank, 1, 64, words)
    status = number(rank, words)
    assert status == (TIMED_OUT if end == "timeout" else ABORTED), status
    rank.say("ended")
    error = error_of(partial(window.flush, 0, async_op=False))
    if end == "timeout":
        assert AWAITED[what] in str(error), error
        assert "a kernel of communicator 'vain-" in str(error), error
    del window  # not by tensor_deregister: that is over
    return type(error).__name__, error.ranks


def _ends(make: Make, backend: str, language: str, what: int, end: str) -> list[Any]:
    job = make(2).start(_in_vain, backend, language, what, end)
    assert job.hear(0) == "launching"
    if end == "timeout":
        assert job.hear(0) == "ended"
    job.say(1)
    return job.outcomes()


def waits_time_out(make: Make, backend: str, language: str = "cuda") -> None:
    for what in range(len(AWAITED)):
        awaited = [0] if what == 3 else [1]
        first, second = _ends(make, backend, language, what, "timeout")
        assert first == Returned(("CommTimeoutError", awaited)), first
        assert isinstance(second, Returned), second
        assert AWAITED[what] in second.value, second


@case(world=2, breaks=True)
def a_wait_of_a_kernel_times_out(make: Make) -> None:
    waits_time_out(make, BACKEND)


def aborts_end_waits(make: Make, backend: str, language: str = "cuda") -> None:
    for what in range(len(AWAITED)):
        ended = _ends(make, backend, language, what, "abort")
        assert ended == [Returned(("AbortedError", [1])), Returned(None)]


@case(world=2, breaks=True)
def an_abort_ends_the_waits_of_kernels(make: Make) -> None:
    aborts_end_waits(make, BACKEND)


def deaths_end_waits(make: Make, backend: str, language: str = "cuda") -> None:
    first, second = _ends(make, backend, language, 1, "death")
    assert first == Returned(("PeerLostError", [1])), first
    assert second == Died(-signal.SIGKILL), second


@case(world=2, breaks=True)
def a_kernel_does_not_wait_for_a_dead_rank(make: Make) -> None:
    deaths_end_waits(make, BACKEND)


WRONG = (
    "put 2 bytes, from byte 63 on of the memory of rank {other}, which has 64",
    "put 1 bytes, from byte 32 on of a buffer, which has 32",
    "named rank 2 of 2",
    "named signal -5 of 3",
    "named barrier 1 of 1",
    "named counter 1 of 1",
)


def _misuses(rank: Rank, language: str, what: int) -> Any:
    gc.collect()  # an error before this one may hold its window, and so the mapping of memory
    comm = rank.new_comm(BACKEND, f"misuse-{what}")
    window = comm.window_allocate(64)
    own = window.get_tensor(rank.rank, [64], torch.uint8)
    source = torch.ones(8, device=rank.device(BACKEND))
    handle, buffer = window.get_device_window(3, 1, 1), window.register_local_buffer(source)
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    if rank.rank == 1:
        words = words_of(rank, handle, buffer, what, source.nbytes)
        kernel("misuse", language)(rank, 1, 1, words)
        assert number(rank, words) == OUT_OF_RANGE
    until(comm.is_aborted, "the communicator has failed")
    error = error_of(lambda: comm.barrier(async_op=False))
    assert WRONG[what].format(other=0) in str(error), error
    assert "on rank 1" in str(error), error
    assert own is not None
    assert not own.cpu().any()
    return error.ranks


def misuses_are_reported(make: Make, language: str) -> None:
    for what in range(len(WRONG)):
        assert make(2).run(_misuses, language, what) == [[1], [1]]


@case(world=2, breaks=True)
def what_kernels_get_wrong_is_reported(make: Make) -> None:
    misuses_are_reported(make, "cuda")


def _drops(rank: Rank) -> None:
    """A window that goes without tensor_deregister ends its kernels, and others may follow."""
    for lap in range(3):
        comm = rank.new_comm(BACKEND, f"drops-{lap}")
        window = comm.window_allocate(64)
        window.get_device_window()
        comm.barrier(async_op=False)
        rank.synchronize(BACKEND)
        del window, comm
        gc.collect()


@case(world=2)
def windows_of_kernels_may_be_dropped(make: Make) -> None:
    make(2).run(_drops)


def _drops_at_the_end(rank: Rank) -> None:
    """As at the end of the interpreter, when nobody watches any more."""
    comm = rank.new_comm(BACKEND, "at the end")
    window = comm.window_allocate(64)
    window.get_device_window()
    torchcomms._comms._retire()
    del window, comm
    gc.collect()


@case(world=2, breaks=True)
def windows_of_kernels_may_go_at_the_end(make: Make) -> None:
    make(2).run(_drops_at_the_end)


def _forks(rank: Rank) -> None:
    """A child has a copy of the window, which it lets go of, and no GPU."""
    comm = rank.new_comm(BACKEND, "forks")
    windows = [comm.window_allocate(64)]
    handle = windows[0].get_device_window()
    child = os.fork()
    if child == 0:
        windows.clear()
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert windows[0].get_device_window() == handle
    windows[0].tensor_deregister()
    comm.finalize()


@case(world=2, breaks=True)
def a_forked_child_lets_go_of_windows_of_kernels(make: Make) -> None:
    make(2).run(_forks)


def documented(rank: Rank, language: str) -> None:
    """The program of the page, but for how it starts and, of CUDA, what compiles the kernel."""
    at = ("cuda", "triton").index(language)
    block = [b for b in blocks_of("docs/device_windows.md") if b.language == "python"][at]
    names: dict[str, Any] = {"__name__": "documented"}
    if language == "triton":
        triton_kernels()  # for the interpreter where there is no GPU
    exec(block.compiled(), names)  # type: ignore[call-overload]
    comm, mine = rank.comm(BACKEND), value(rank.rank, 1).to(rank.device(BACKEND))
    if language == "triton":
        result = names["sum_over_ranks"](comm, mine)
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cu"
            file.write_text(names["KERNEL"])
            launch = kernel("sum_rows", language, file)
        result = names["sum_over_ranks"](
            comm, mine, lambda arguments: launch(rank, 1, 256, *arguments)
        )
    rank.synchronize(BACKEND)
    assert torch.equal(result.cpu(), sum(value(r, 1) for r in range(rank.size)))


@case(world=2)
def the_documented_program_sums_over_ranks(make: Make) -> None:
    make(2).run(documented, "cuda")
