"""Collectives of bf16 on GPUs: backend ctran beside NCCL as torch calls it, in one run.

Usage, with torchcomms installed (or on PYTHONPATH), on a machine with GPUs:
    python3 benchmarks/gpu_collectives.py [--out DIR] [--ranks N] [--ops OP...] [--sizes BYTES...]
        [--also ncclx plan symm ...]

Microseconds per operation by replay of a CUDA graph, the slowest rank's mean; and of eager calls,
the CPU time of a call and of a call with its end. Bytes are those of the full buffer: of one block
times the number of ranks. Outputs are poisoned and checked before anything is timed. NVLink
multicast is switched off. Writes gpu_collectives.jsonl, whose first line names the machine, .md
and, where there is matplotlib, .png.

--also: what else is measured, in columns of its own: backend ncclx; `plan`, the operation by a plan
of the library; `copies`, by copy engines (all_gather, all_to_all), through slots and, in a column
`persistent`, by all_gather_p_exec and all_to_all_p_exec into symmetric memory; `direct`, backend
ctran on its symmetric memory (comm.mem_allocator); `symm`, all_reduce of torch's symmetric memory,
one-shot or two-shot, the faster.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpu_common

OPS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
SIZES = [512 << (2 * k) for k in range(11)] + [1 << 30]
EAGER_SIZE = 8192
# Plans of the library, and up to how many bytes of a block; of several that fit, the last.
PLANS: dict[str, list[tuple[str, int | None]]] = {
    "all_reduce": [("all_reduce.two_shot", None), ("all_reduce.one_shot", 512 << 10)],
    "reduce_scatter": [("reduce_scatter.direct", None)],
    "all_gather": [("all_gather.direct", None)],
    "all_to_all": [("all_to_all.direct", None)],
    "broadcast": [("broadcast.scatter_gather", None), ("broadcast.direct", 512 << 10)],
}
COPIED = ("all_gather", "all_to_all")
ALSO = ("ncclx", "plan", "copies", "direct", "symm")
COLUMNS = ("ctran", "nccl", "ncclx", "plan", "copies", "persistent", "direct", "symm")


class _Case:
    """An operation of so many bytes on this rank: its tensors, and what they hold afterwards."""

    def __init__(self, op: str, nbytes: int, rank: int, size: int) -> None:
        import torch

        self.op, self.nbytes, self.rank, self.size = op, nbytes, rank, size
        device = torch.device("cuda", rank)
        count = max(nbytes // 2 // size, 1)
        whole = count * size

        def data(of: int, n: int) -> torch.Tensor:
            return (torch.arange(n, device=device).remainder_(61) + of).to(torch.bfloat16)

        own = slice(rank * count, (rank + 1) * count)
        self.source = data(rank, count if op == "all_gather" else whole)
        if op == "all_reduce":
            self.result = self.source.clone()
            total = sum(data(r, whole).float() for r in range(size))
            self.expected = total.to(torch.bfloat16)
        elif op == "broadcast":
            self.result = self.source.clone()
            self.expected = data(0, whole)
        elif op == "reduce_scatter":
            self.result = torch.empty(count, dtype=torch.bfloat16, device=device)
            total = sum(data(r, whole)[own].float() for r in range(size))
            self.expected = total.to(torch.bfloat16)
        else:
            self.result = torch.empty(whole, dtype=torch.bfloat16, device=device)
            gathers = op == "all_gather"
            parts = [data(r, count) if gathers else data(r, whole)[own] for r in range(size)]
            self.expected = torch.cat(parts)

    def moved_to(self, comm: Any, pool: Any) -> None:
        """Gives it tensors of a pool that the other ranks can map."""
        import torch

        with torch.cuda.use_mem_pool(pool):
            self.source, self.result = self.source.clone(), self.result.clone()
        for tensor in (self.source, self.result):
            comm.tensor_register(tensor)

    def of_comm(self, comm: Any) -> Callable[[], Any]:
        """As torchcomms makes it."""
        from torchcomms import ReduceOp

        result, source = self.result, self.source
        return {
            "all_reduce": lambda: comm.all_reduce(result, ReduceOp.SUM, False),
            "broadcast": lambda: comm.broadcast(result, 0, False),
            "reduce_scatter": lambda: comm.reduce_scatter_single(
                result, source, ReduceOp.SUM, False
            ),
            "all_gather": lambda: comm.all_gather_single(result, source, False),
            "all_to_all": lambda: comm.all_to_all_single(result, source, False),
        }[self.op]

    def of_handle(self, comm: Any) -> tuple[Callable[[], Any], Callable[[], None]]:
        """As a persistent operation, and what frees that."""
        init, execute, free = (
            getattr(comm, f"{self.op}_p_{what}") for what in ("init", "exec", "free")
        )
        handle, source = init(self.result), self.source
        return lambda: execute(handle, source, False), lambda: free(handle)

    def of_torch(self) -> Callable[[], Any]:
        """As torch makes it, with NCCL."""
        import torch.distributed as dist

        result, source = self.result, self.source
        return {
            "all_reduce": lambda: dist.all_reduce(result),
            "broadcast": lambda: dist.broadcast(result, 0),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(result, source),
            "all_gather": lambda: dist.all_gather_into_tensor(result, source),
            "all_to_all": lambda: dist.all_to_all_single(result, source),
        }[self.op]

    def wrong(self, call: Callable[[], Any]) -> int:
        """How many elements the call leaves wrong."""
        import torch

        if self.op == "all_reduce" or (self.op == "broadcast" and self.rank == 0):
            self.result.copy_(self.source)
        else:
            self.result.fill_(-1)
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        return int((self.result != self.expected).sum())


def _symmetric_us(nbytes: int, device: Any) -> float:
    """All-reduce of torch's symmetric memory, without multicast."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem

    buffer = symm_mem.empty(max(nbytes // 2, 1), dtype=torch.bfloat16, device=device)
    group = dist.group.WORLD.group_name
    symm_mem.rendezvous(buffer, group)
    buffer.fill_(1)
    times = []
    if nbytes <= 4 << 20:
        times.append(
            gpu_common.replay_us(
                lambda: torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", group), nbytes
            )
        )
    times.append(
        gpu_common.replay_us(
            lambda: torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", group), nbytes
        )
    )
    return min(times)


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
    import torchcomms.plan
    from torchcomms import ReduceOp

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    gpu_common.say_machine(rank)
    torch.zeros(1, device=device)
    torch.cuda.synchronize()
    start = time.perf_counter()
    comm = torchcomms.new_comm("ctran", device, "bench")
    tensor = torch.ones(4096, dtype=torch.bfloat16, device=device)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    torch.cuda.synchronize()
    created = (time.perf_counter() - start) * 1e3

    say = partial(gpu_common.say, rank)
    slowest = partial(gpu_common.slowest, device=device)
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
    also = [name for name in os.environ["ALSO"].split(",") if name]
    comms = {"ctran": comm}
    if "ncclx" in also:
        comms["ncclx"] = torchcomms.new_comm("ncclx", device, "faster")
    if "plan" in also:
        comms["plan"] = torchcomms.new_comm("ctran", device, "plans")
    if "copies" in also:
        hints = {"ctran::algorithm": "copy_engine"}
        comms["copies"] = torchcomms.new_comm("ctran", device, "copies", hints=hints)
    if "direct" in also:
        comms["direct"] = torchcomms.new_comm("ctran", device, "direct")
    pool = torch.cuda.MemPool(comm.mem_allocator)
    registered = []
    for op in os.environ["OPS"].split(","):
        if "plan" in also:
            for name, most in PLANS[op]:
                plan = torchcomms.plan.make(name, size)
                registered.append(plan.register("plans", max_bytes=most, prefer=True))
        for nbytes in map(int, os.environ["SIZES"].split(",")):
            case = _Case(op, nbytes, rank, size)
            row: dict[str, Any] = {"op": op, "bytes": nbytes, "wrong": 0.0}
            for name, one in comms.items():
                if name == "direct" or (name == "copies" and op not in COPIED):
                    continue
                call = case.of_comm(one)
                errors = slowest(case.wrong(call))
                if errors:
                    row["wrong"] += errors
                    row[f"{name}_wrong"] = errors
                row[f"{name}_us"] = round(slowest(gpu_common.replay_us(call, nbytes)), 2)
            if os.environ["NCCL"] == "1":
                row["nccl_us"] = round(slowest(gpu_common.replay_us(case.of_torch(), nbytes)), 2)
            # After the others, who have ordinary tensors.
            if "copies" in also and op in COPIED:
                copies = comms["copies"]
                case.moved_to(copies, pool)
                call, free = case.of_handle(copies)
                row["wrong"] += slowest(case.wrong(call))
                if "copy engines alone" in copies.explain(op, 1).why:
                    row["persistent_us"] = round(slowest(gpu_common.replay_us(call, nbytes)), 2)
                free()
                for tensor in (case.source, case.result):
                    copies.tensor_deregister(tensor)
            if "direct" in also:
                direct = comms["direct"]
                case.moved_to(direct, pool)
                call = case.of_comm(direct)
                row["wrong"] += slowest(case.wrong(call))
                row["direct_us"] = round(slowest(gpu_common.replay_us(call, nbytes)), 2)
                for tensor in (case.source, case.result):
                    direct.tensor_deregister(tensor)
            if "ncclx" in also:
                row["ncclx_is"] = comms["ncclx"].explain(op, case.source.nbytes).algorithm
            if "symm" in also and op == "all_reduce" and nbytes <= 1 << 28:
                try:
                    row["symm_us"] = round(slowest(_symmetric_us(nbytes, device)), 2)
                except RuntimeError as error:  # of all ranks alike: this torch cannot
                    print(f"symmetric memory: {error}", file=sys.stderr)
                    also.remove("symm")
            say(row)
            del case, call
            torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)  # NCCL and captured graphs do not agree on the order of their ends


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    settings = {
        "OPS": ",".join(arguments.ops),
        "SIZES": ",".join(map(str, arguments.sizes)),
        "NCCL": "0" if arguments.without_nccl else "1",
        "ALSO": ",".join(arguments.also),
    }
    return gpu_common.run_ranks(__file__, arguments.ranks, settings, arguments.seconds)


def table(rows: list[dict[str, Any]]) -> list[str]:
    columns = [name for name in COLUMNS if any(f"{name}_us" in row for row in rows)]
    lines = [
        "| operation | bytes | " + " | ".join(columns) + " | nccl / ctran | wrong |",
        "|---" * (len(columns) + 4) + "|",
    ]
    for row in rows:
        if "ctran_us" not in row:
            continue
        times = [str(row.get(f"{name}_us", "-")) for name in columns]
        nccl = row.get("nccl_us")
        ratio = f"{nccl / row['ctran_us']:.2f}" if nccl else "-"
        lines.append(
            f"| {row['op']} | {row['bytes']} | {' | '.join(times)} | {ratio} | {row['wrong']:.0f} |"
        )
    others = [row for row in rows if "ctran_us" not in row and "machine" not in row]
    lines += ["", *map(json.dumps, others)]
    return lines


def plot(out: Path, rows: list[dict[str, Any]]) -> None:
    """Microseconds over bytes, for each operation and column."""
    timed = [row for row in rows if "ctran_us" in row]
    ops = sorted({row["op"] for row in timed}, key=OPS.index)
    if not ops or not gpu_common.can_plot():
        return
    with gpu_common.figure(out / "gpu_collectives.png", len(ops)) as axes:
        for op, ax in zip(ops, axes, strict=True):
            for name in COLUMNS:
                points = [
                    (row["bytes"], row[f"{name}_us"])
                    for row in timed
                    if row["op"] == op and f"{name}_us" in row
                ]
                if points:
                    ax.plot(*zip(*points, strict=True), label=name, marker=".")
            ax.set(title=op, xscale="log", yscale="log", xlabel="bytes", ylabel="us")
            ax.legend()


def main() -> None:
    parser = gpu_common.parser(__doc__, "collectives", SIZES, seconds=150)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--ops", nargs="+", default=list(OPS), choices=OPS)
    parser.add_argument("--without-nccl", action="store_true")
    parser.add_argument("--also", nargs="*", default=[], choices=ALSO)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return
    rows = measure(arguments)
    gpu_common.write(arguments.out, "gpu_collectives", rows, table(rows))
    plot(arguments.out, rows)


if __name__ == "__main__":
    main()
