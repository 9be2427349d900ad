"""Collectives of bf16 on GPUs: backend ctran beside NCCL as torch calls it, in one run.

Usage, with torchcomms installed (or on PYTHONPATH), on a machine with GPUs:
    python3 benchmarks/gpu_collectives.py [--out DIR] [--ranks N] [--ops OP...] [--sizes BYTES...]

Microseconds per operation by replay of a CUDA graph, the slowest rank's mean; and of eager calls,
the CPU time of a call and of a call with its end. Bytes are those of the full buffer: of one block
times the number of ranks. Outputs are poisoned and checked before anything is timed. NVLink
multicast is switched off. Writes gpu_collectives.jsonl and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
SIZES = [512 << (2 * k) for k in range(11)] + [1 << 30]
EAGER_SIZE = 8192


def _calls(op: str, nbytes: int, comm: Any, rank: int, size: int) -> tuple[Any, Any, Callable]:
    """What makes the operation with ctran, with NCCL, and says how many elements are wrong."""
    import torch
    import torch.distributed as dist

    from torchcomms import ReduceOp

    device = torch.device("cuda", rank)
    count = max(nbytes // 2 // size, 1)
    whole = count * size

    def data(of: int, n: int) -> torch.Tensor:
        return (torch.arange(n, device=device).remainder_(61) + of).to(torch.bfloat16)

    if op == "all_reduce":
        buffer = data(rank, whole)
        expected = sum(data(r, whole).float() for r in range(size)).to(torch.bfloat16)
        source = buffer.clone()
        ours = lambda: comm.all_reduce(buffer, ReduceOp.SUM, False)  # noqa: E731
        theirs = lambda: dist.all_reduce(buffer)  # noqa: E731
        reset = lambda: buffer.copy_(source)  # noqa: E731
        result = buffer
    elif op == "broadcast":
        buffer = data(rank, whole)
        expected = data(0, whole)
        ours = lambda: comm.broadcast(buffer, 0, False)  # noqa: E731
        theirs = lambda: dist.broadcast(buffer, 0)  # noqa: E731
        reset = lambda: buffer.fill_(-1) if rank else None  # noqa: E731
        result = buffer
    elif op == "reduce_scatter":
        source, result = data(rank, whole), torch.empty(count, dtype=torch.bfloat16, device=device)
        parts = (data(r, whole)[rank * count : (rank + 1) * count].float() for r in range(size))
        expected = sum(parts).to(torch.bfloat16)
        ours = lambda: comm.reduce_scatter_single(result, source, ReduceOp.SUM, False)  # noqa: E731
        theirs = lambda: dist.reduce_scatter_tensor(result, source)  # noqa: E731
        reset = lambda: result.fill_(-1)  # noqa: E731
    else:
        result = torch.empty(whole, dtype=torch.bfloat16, device=device)
        reset = lambda: result.fill_(-1)  # noqa: E731
        if op == "all_gather":
            source = data(rank, count)
            expected = torch.cat([data(r, count) for r in range(size)])
            ours = lambda: comm.all_gather_single(result, source, False)  # noqa: E731
            theirs = lambda: dist.all_gather_into_tensor(result, source)  # noqa: E731
        else:
            source = data(rank, whole)
            own = slice(rank * count, (rank + 1) * count)
            expected = torch.cat([data(r, whole)[own] for r in range(size)])
            ours = lambda: comm.all_to_all_single(result, source, False)  # noqa: E731
            theirs = lambda: dist.all_to_all_single(result, source)  # noqa: E731

    def wrong(call: Callable[[], Any]) -> int:
        reset()
        call()
        torch.cuda.synchronize()
        return int((result != expected).sum())

    return ours, theirs, wrong


def _replay_us(call: Callable[[], Any], nbytes: int) -> float:
    import torch

    nodes = 50 if nbytes <= 1 << 20 else 10 if nbytes <= 1 << 26 else 2
    replays = 6 if nbytes <= 1 << 26 else 4
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(nodes):
            call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        graph.replay()
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
    stream.synchronize()
    return begin.elapsed_time(end) * 1e3 / (nodes * replays)


def _eager_us(call: Callable[[], Any]) -> tuple[float, float]:
    import torch

    for _ in range(50):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(500):
        call()
    issued = (time.perf_counter() - start) / 500 * 1e6
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(300):
        call()
        torch.cuda.current_stream().synchronize()
    return issued, (time.perf_counter() - start) / 300 * 1e6


def worker() -> None:
    """One rank; rank 0 prints a JSON line per case."""
    import torch
    import torch.distributed as dist

    import torchcomms
    from torchcomms import ReduceOp

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.zeros(1, device=device)
    torch.cuda.synchronize()
    start = time.perf_counter()
    comm = torchcomms.new_comm("ctran", device, "bench")
    tensor = torch.ones(4096, dtype=torch.bfloat16, device=device)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    torch.cuda.synchronize()
    created = (time.perf_counter() - start) * 1e3

    def slowest(value: float) -> float:
        return float(_max(torch.tensor([value], device=device)))

    def _max(value: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return value

    def say(row: dict[str, Any]) -> None:
        if rank == 0:
            print("ROW " + json.dumps(row), flush=True)

    say({"op": "new_comm and first all_reduce", "ms": slowest(created)})
    asynchronous = lambda: comm.all_reduce(tensor, ReduceOp.SUM, True).wait()  # noqa: E731
    for name, call in (
        ("sync", lambda: comm.all_reduce(tensor, ReduceOp.SUM, False)),
        ("async", asynchronous),
        ("c10d", lambda: dist.all_reduce(tensor)),
    ):
        issued, ended = _eager_us(call)
        row = {"cpu_us": round(slowest(issued), 2), "end_us": round(slowest(ended), 2)}
        say({"op": f"eager all_reduce, {name}", "bytes": EAGER_SIZE} | row)
    for op in os.environ["OPS"].split(","):
        for nbytes in map(int, os.environ["SIZES"].split(",")):
            ours, theirs, wrong = _calls(op, nbytes, comm, rank, size)
            errors = slowest(wrong(ours))
            row = {"op": op, "bytes": nbytes, "wrong": errors}
            row["ctran_us"] = round(slowest(_replay_us(ours, nbytes)), 2)
            if os.environ["NCCL"] == "1":
                row["nccl_us"] = round(slowest(_replay_us(theirs, nbytes)), 2)
            say(row)
            del ours, theirs, wrong
            torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)  # NCCL and captured graphs do not agree on the order of their ends


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(arguments.ranks),
        "OPS": ",".join(arguments.ops),
        "SIZES": ",".join(map(str, arguments.sizes)),
        "NCCL": "0" if arguments.without_nccl else "1",
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "PYTHONUNBUFFERED": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            text=True,
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
        )
        for rank in range(arguments.ranks)
    ]
    try:
        output, _ = processes[0].communicate(timeout=arguments.seconds)
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        output, _ = processes[0].communicate()
        print(f"not finished within {arguments.seconds:.0f} s", file=sys.stderr)
    for process in processes:
        process.kill()
        process.wait()
    return [json.loads(line[4:]) for line in output.splitlines() if line.startswith("ROW {")]


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| operation | bytes | ctran | NCCL | ratio | wrong |", "|---|---|---|---|---|---|"]
    for row in rows:
        if "ctran_us" not in row:
            continue
        nccl = row.get("nccl_us")
        ratio = f"{nccl / row['ctran_us']:.2f}" if nccl else "-"
        lines.append(
            f"| {row['op']} | {row['bytes']} | {row['ctran_us']} | {nccl or '-'} | {ratio} | "
            f"{row['wrong']:.0f} |"
        )
    lines += ["", *(json.dumps(row) for row in rows if "ctran_us" not in row)]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build-gpu-collectives"))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--ops", nargs="+", default=list(OPS), choices=OPS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--without-nccl", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = measure(arguments)
    (arguments.out / "gpu_collectives.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    lines = table(rows)
    (arguments.out / "gpu_collectives.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
