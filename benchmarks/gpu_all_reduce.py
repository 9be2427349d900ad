"""All-reduce of bf16 by CUDA-graph replay: ours beside NCCL as torch calls it, in one run.

Usage, from the root of a checkout on a machine with GPUs:
    python3 benchmarks/gpu_all_reduce.py [--out DIR] [--ranks N] [--sizes BYTES...]

Builds and runs tests/gpu/litmus (groups all_reduce and speed) for our numbers, starts one process
per GPU for NCCL's, and prints both side by side in microseconds (the slowest rank's mean). Outputs
are poisoned and checked before anything is timed. Needs g++ and, for NCCL, torch. NVLink multicast
is switched off in NCCL. With --ours FILE an existing litmus.jsonl is used instead of a new run.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODES = 100
REPLAYS = 6


def worker() -> None:
    """One rank of the NCCL measurement; rank 0 prints a JSON line per size."""
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    for nbytes in map(int, os.environ["SIZES"].split(",")):
        count = nbytes // 2
        base = torch.arange(count, device=device).remainder(61)
        source = (base + rank).to(torch.bfloat16)
        expected = (base * size + size * (size - 1) // 2).to(torch.bfloat16)
        data = source.clone()
        dist.all_reduce(data)
        wrong = int((data != expected).sum())

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(5):
                dist.all_reduce(data)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(NODES):
                dist.all_reduce(data)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            graph.replay()
            begin.record()
            for _ in range(REPLAYS):
                graph.replay()
            end.record()
        stream.synchronize()
        micros = torch.tensor([begin.elapsed_time(end) * 1e3 / (NODES * REPLAYS)], device=device)

        start = time.perf_counter()
        for _ in range(200):
            dist.all_reduce(data)
        issued = (time.perf_counter() - start) / 200 * 1e6
        torch.cuda.synchronize()
        dist.all_reduce(micros, op=dist.ReduceOp.MAX)
        if rank == 0:
            row = {"bytes": nbytes, "us": float(micros), "eager_cpu_us": issued, "wrong": wrong}
            print("NCCL " + json.dumps(row), flush=True)
        del graph
    dist.barrier()
    os._exit(0)  # NCCL and captured graphs do not agree on the order of their ends


def measure_nccl(ranks: int, sizes: list[int], limit: float) -> dict[int, dict[str, float]]:
    """NCCL's rows by size; those that were measured before anything went wrong."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "SIZES": ",".join(map(str, sizes)),
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "PYTHONUNBUFFERED": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            text=True,
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    try:
        output, _ = processes[0].communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        output, _ = processes[0].communicate()
        print(f"NCCL did not finish within {limit:.0f} s", file=sys.stderr)
    for process in processes:
        process.kill()
        process.wait()
    rows = [json.loads(line[5:]) for line in output.splitlines() if line.startswith("NCCL {")]
    return {row["bytes"]: row for row in rows}


def read_ours(path: Path, ranks: int) -> dict[int, dict[str, dict]]:
    """Our rows of the speed group: {bytes: {algorithm: row}}."""
    ours: dict[int, dict[str, dict]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["test"] == "speed" and row["ranks"] == ranks and row["payload_words"] == 3:
            ours.setdefault(row["bytes"], {})[row["algorithm"]] = row
    return ours


def table(ours: dict[int, dict[str, dict]], nccl: dict[int, dict[str, float]]) -> list[str]:
    lines = [
        "|   bytes | one-shot | two-shot | best shape | NCCL | ratio | NCCL eager CPU | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in sorted(set(ours) | set(nccl)):
        rows = ours.get(size, {})
        best = min(rows.values(), key=lambda row: row["us"], default=None)
        other = nccl.get(size)

        one, two = (
            f"{rows[name]['us']:.2f}" if name in rows else "-" for name in ("one-shot", "two-shot")
        )
        wrong = sum(row["wrong_bytes"] for row in rows.values()) + (other or {}).get("wrong", 0)
        shape = f"{best['blocks']:.0f}x{best['threads']:.0f}" if best else "-"
        ratio = f"{other['us'] / best['us']:.2f}" if best and other else "-"
        lines.append(
            f"| {size:7d} | {one} | {two} | {shape} | "
            + (
                f"{other['us']:.2f} | {ratio} | {other['eager_cpu_us']:.1f}"
                if other
                else f"- | {ratio} | -"
            )
            + f" | {wrong:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build-gpu-all-reduce"))
    parser.add_argument("--ours", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512 << k for k in range(13)])
    parser.add_argument("--nccl-seconds", type=float, default=90)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    ours_path = arguments.ours
    if ours_path is None:
        subprocess.run(
            ["sh", "tests/gpu/litmus/run.sh", arguments.out.resolve(), "all_reduce", "speed"],
            cwd=ROOT,
            check=False,
        )
        ours_path = arguments.out / "litmus.jsonl"
    ours = read_ours(ours_path, arguments.ranks) if ours_path.exists() else {}
    nccl = measure_nccl(arguments.ranks, arguments.sizes, arguments.nccl_seconds)
    lines = table(ours, nccl)
    print("\n".join(lines))
    (arguments.out / "gpu_all_reduce.md").write_text("\n".join(lines) + "\n")
    (arguments.out / "nccl.json").write_text(json.dumps(list(nccl.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
