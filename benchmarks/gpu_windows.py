"""Puts by kernels through device windows, beside NCCL and copy engines, between two GPUs.

Usage, with torchcomms installed (or on PYTHONPATH), on a machine with two GPUs:
    python3 benchmarks/gpu_windows.py [--out DIR] [--sizes BYTES...] [--blocks N...]

Both ranks send so many bytes to each other at a time. Microseconds of that, the slower rank's:

device  a kernel of so many blocks, again and again: each puts its part of the bytes, signals, and
        waits for the signal of the other rank's block
nccl    send and receive in one group, as torch calls it, by replay of a CUDA graph
copy    a copy into torch's symmetric memory of the other rank, likewise; nobody is told of its end

The row of 8 bytes is half the time from a put with a signal to the answer, of one thread; with
NCCL, of an exchange. What arrives is checked before anything is timed. NVLink multicast is switched
off. Writes gpu_windows.jsonl, whose first line names the machine, .md and, where there is
matplotlib, .png.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpu_common

SIZES = [8 << 10, 64 << 10, 512 << 10, 4 << 20, 32 << 20, 256 << 20]
BLOCKS = [1, 8, 32, 64]
THREADS = 512
KERNELS = r"""
#include <comms/torchcomms/device/TorchCommDeviceWindow.hpp>

using namespace torchcomms::device;

extern "C" __global__ void exchange(const Word* handles, int bytes, int first, int last) {
  auto& window = *reinterpret_cast<TorchCommDeviceWindow*>(handles[0]);
  const auto& buffer = *reinterpret_cast<const RegisteredBuffer*>(handles[1]);
  const int peer = 1 - window.rank(), block = static_cast<int>(blockIdx.x);
  const Word part = static_cast<Word>(bytes) / gridDim.x, from = part * blockIdx.x;
  for (int lap = first; lap <= last; ++lap) {
    window.put(from, buffer, from, peer, part, block, -1, CoopScope::BLOCK);
    if (window.wait_signal_from(peer, block, CmpOp::GE, lap, CoopScope::BLOCK) != kOk) return;
  }
}

/// Rank 0 puts, rank 1 answers.
extern "C" __global__ void round_trips(const Word* handles, int bytes, int first, int last) {
  auto& window = *reinterpret_cast<TorchCommDeviceWindow*>(handles[0]);
  const auto& buffer = *reinterpret_cast<const RegisteredBuffer*>(handles[1]);
  const int me = window.rank(), peer = 1 - me;
  for (int trip = first; trip <= last; ++trip) {
    if (me == 0) window.put(0, buffer, 0, peer, bytes, 0);
    if (window.wait_signal_from(peer, 0, CmpOp::GE, trip) != kOk) return;
    if (me == 1) window.put(0, buffer, 0, peer, bytes, 0);
  }
}
"""


def _compile(name: str) -> Any:
    import torch

    import torchcomms

    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")  # torch wants one, if not what is in it
    folders = [f"{folder}/include" for folder in torchcomms.__path__]
    return torch.cuda._compile_kernel(KERNELS, name, cuda_include_dirs=folders)


def _exchanges_us(comm: Any, kernel: Any, nbytes: int, blocks: int, threads: int) -> float:
    """One of many in a launch; the second launch is timed."""
    import torch

    laps = 1000 if nbytes <= 4 << 20 else 50
    device = comm.get_device()
    source = torch.full((nbytes // 8,), comm.get_rank() + 1, device=device)
    window = comm.window_allocate(nbytes)
    handles = [window.get_device_window(blocks), window.register_local_buffer(source)]
    handles = torch.tensor(handles, device=device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for first in (1, laps + 1):
        torch.cuda.synchronize()
        comm.barrier(False)
        torch.cuda.synchronize()
        begin.record()
        arguments = [handles, nbytes, first, first + laps - 1]
        kernel(grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
        end.record()
        torch.cuda.synchronize()
        arrived = window.get_tensor(comm.get_rank(), [nbytes // 8], torch.int64)
        if not bool((arrived == 2 - comm.get_rank()).all()):
            raise RuntimeError(f"{nbytes} bytes by {blocks} blocks: wrong data")
    window.tensor_deregister()
    return float(begin.elapsed_time(end)) * 1e3 / laps


def _send_and_receive(source: Any, result: Any, peer: int) -> None:
    import torch.distributed as dist

    pair = [dist.P2POp(dist.isend, source, peer), dist.P2POp(dist.irecv, result, peer)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()


def _copy_to(peer: int, source: Any) -> Callable[[], Any]:
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem

    mine = symm_mem.empty(source.numel(), dtype=source.dtype, device=source.device)
    handle = symm_mem.rendezvous(mine, dist.group.WORLD.group_name)
    theirs = handle.get_buffer(peer, source.shape, source.dtype)

    def copy(_mine: Any = mine) -> None:  # which the other rank copies to as long as this is here
        theirs.copy_(source)

    return copy


def worker() -> None:
    """One rank; rank 0 prints a JSON line per size."""
    import torch
    import torch.distributed as dist

    import torchcomms

    rank = int(os.environ["RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    gpu_common.say_machine(rank)
    comm = torchcomms.new_comm("ctran", device, "windows")
    exchange, round_trips = map(_compile, ("exchange", "round_trips"))

    def measured(time: float) -> float:
        return round(gpu_common.slowest(time, device), 2)

    for nbytes in (8, *map(int, os.environ["SIZES"].split(","))):
        row: dict[str, Any] = {"bytes": nbytes}
        if nbytes == 8:
            time = _exchanges_us(comm, round_trips, nbytes, 1, 1) / 2
            row["device, 1 thread_us"] = measured(time)
        else:
            for blocks in map(int, os.environ["BLOCKS"].split(",")):
                time = _exchanges_us(comm, exchange, nbytes, blocks, THREADS)
                row[f"device, {blocks} blocks_us"] = measured(time)
        source = torch.full((nbytes // 8,), rank, device=device)
        result = torch.empty_like(source)
        exchange_by_nccl = partial(_send_and_receive, source, result, 1 - rank)
        row["nccl_us"] = measured(gpu_common.replay_us(exchange_by_nccl, nbytes))
        row["copy_us"] = measured(gpu_common.replay_us(_copy_to(1 - rank, source), nbytes))
        gpu_common.say(rank, row)
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)  # NCCL and captured graphs do not agree on the order of their ends


def _measured(rows: list[dict[str, Any]]) -> list[str]:
    """The names of what was measured."""
    keys = dict.fromkeys(key for row in rows for key in row if key.endswith("_us"))
    return [key.removesuffix("_us") for key in keys]


def table(rows: list[dict[str, Any]]) -> list[str]:
    names = _measured(rows)
    lines = ["| bytes | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        if "machine" not in row:
            cells = [row["bytes"], *(row.get(f"{name}_us", "-") for name in names)]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def plot(out: Path, rows: list[dict[str, Any]]) -> None:
    """GB/s of one direction."""
    if len(rows) < 2 or not gpu_common.can_plot():
        return
    with gpu_common.figure(out / "gpu_windows.png", 1) as (ax,):
        for name in _measured(rows):
            some = [row for row in rows if f"{name}_us" in row]
            sizes = [row["bytes"] for row in some]
            ax.plot(sizes, [row["bytes"] / row[f"{name}_us"] / 1e3 for row in some], label=name)
        ax.set(xscale="log", xlabel="bytes", ylabel="GB/s in each direction")
        ax.legend()


def main() -> None:
    parser = gpu_common.parser(__doc__, "windows", SIZES, seconds=120)
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCKS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return
    settings = {
        "SIZES": ",".join(map(str, arguments.sizes)),
        "BLOCKS": ",".join(map(str, arguments.blocks)),
    }
    rows = gpu_common.run_ranks(__file__, 2, settings, arguments.seconds)
    gpu_common.write(arguments.out, "gpu_windows", rows, table(rows))
    plot(arguments.out, rows)


if __name__ == "__main__":
    main()
