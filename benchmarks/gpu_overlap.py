"""How well collectives on GPUs hide behind matrix products: backend ctran beside NCCL, in one run.

Usage, with torchcomms installed (or on PYTHONPATH), on a machine with GPUs:
    python3 benchmarks/gpu_overlap.py [--out DIR] [--ranks N] [--ops OP...] [--sizes BYTES...]
        [--budgets N...]

A step is one asynchronous collective of bf16 and, on the current stream, as many products of 4096 x
4096 matrices as last about as long as NCCL's collective; then the stream waits for the collective.
Measured are the collective alone, the products alone and both together: microseconds per step of
20, the slowest rank's, median of five. `exposed` is what the collective adds to the products.

Contenders: ctran with budgets of multiprocessors (CTRAN_GPU_SM_BUDGET), ctran's copy engines
(all_gather; through slots, and by all_gather_p_exec into symmetric memory), NCCL as torch calls it,
and NCCL held to as many blocks (the hint maxCTAs). Results are checked before anything is timed.
NVLink multicast is switched off. Writes gpu_overlap.jsonl, whose first line names the machine, and
.md, and .png where there is matplotlib.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import gpu_common

OPS = ("all_reduce", "all_gather")
SIZES = [64 << 20, 256 << 20]
BUDGETS = [8, 16, 32, 64]
SIDE = 4096
STEPS = 20
SAMPLES = 5
PERSISTENT = "ctran, copy engines into symmetric memory"

Start = Callable[[], Any]  # issues the collective; what it returns has wait()


def _contenders(device: Any, op: str, budgets: list[int]) -> dict[str, Any]:
    """Communicators by name; None is torch's default group."""
    import torchcomms

    made: dict[str, Any] = {"nccl": None}
    for budget in budgets:
        os.environ["CTRAN_GPU_SM_BUDGET"] = str(budget)
        made[f"ctran, {budget} SMs"] = torchcomms.new_comm("ctran", device, f"{op}-{budget}")
        del os.environ["CTRAN_GPU_SM_BUDGET"]
        if budget < 32:  # more than it takes anyway
            hints = {"maxCTAs": str(budget)}
            name = f"{op}-nccl-{budget}"
            made[f"nccl, {budget} blocks"] = torchcomms.new_comm("nccl", device, name, hints=hints)
    if op == "all_gather":
        hints = {"ctran::algorithm": "copy_engine"}
        copies = torchcomms.new_comm("ctran", device, "copies", hints=hints)
        made["ctran, copy engines"] = copies
        made[PERSISTENT] = copies
    return made


class _Case:
    """A collective of so many bytes: its tensors, and what they hold afterwards."""

    def __init__(self, op: str, nbytes: int, rank: int, size: int, device: Any) -> None:
        import torch

        self.op = op
        count = nbytes // 2 // size
        pattern = torch.arange(count * size, device=device).remainder_(61)
        if op == "all_reduce":
            self.source = (pattern + rank).to(torch.bfloat16)
            total = sum((pattern + r).float() for r in range(size))
            self.expected = total.to(torch.bfloat16)
        else:
            self.source = (pattern[:count] + rank).to(torch.bfloat16)
            self.expected = torch.cat([pattern[:count] + r for r in range(size)])
            self.expected = self.expected.to(torch.bfloat16)
        self.result = torch.empty_like(self.expected)

    def start(self, comm: Any) -> Start:
        import torch.distributed as dist

        from torchcomms import ReduceOp

        result, source = self.result, self.source
        if self.op == "all_reduce":
            if comm is None:
                return lambda: dist.all_reduce(result, async_op=True)
            return lambda: comm.all_reduce(result, ReduceOp.SUM, True)
        if comm is None:
            return lambda: dist.all_gather_into_tensor(result, source, async_op=True)
        return lambda: comm.all_gather_single(result, source, True)

    def start_persistent(self, comm: Any) -> tuple[Start, Callable[[], None]]:
        """The all_gather as a persistent one, in tensors the others can map; and what frees it."""
        import torch

        with torch.cuda.use_mem_pool(torch.cuda.MemPool(comm.mem_allocator)):
            self.source, self.result = self.source.clone(), self.result.clone()
        for tensor in (self.source, self.result):
            comm.tensor_register(tensor)
        handle, source = comm.all_gather_p_init(self.result), self.source

        def free() -> None:
            comm.all_gather_p_free(handle)
            for tensor in (self.source, self.result):
                comm.tensor_deregister(tensor)

        return lambda: comm.all_gather_p_exec(handle, source, True), free

    def wrong(self, start: Start) -> int:
        """How many elements the collective leaves wrong."""
        import torch

        if self.op == "all_reduce":
            self.result.copy_(self.source)
        else:
            self.result.fill_(-1)
        start().wait()
        torch.cuda.synchronize()
        return int((self.result != self.expected).sum())


def _step_us(step: Callable[[], None]) -> float:
    """Median of the means."""
    import torch
    import torch.distributed as dist

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for sample in range(SAMPLES + 1):
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        for _ in range(STEPS):
            step()
        end.record()
        torch.cuda.synchronize()
        if sample:  # the first is the warm-up
            samples.append(begin.elapsed_time(end) * 1e3 / STEPS)
    return median(samples)


def worker() -> None:
    """One rank; rank 0 prints a JSON line per measurement."""
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    gpu_common.say_machine(rank)
    left, right = (torch.randn(SIDE, SIDE, device=device).bfloat16() for _ in range(2))
    product = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device=device)

    def slowest(step: Callable[[], None]) -> float:
        return gpu_common.slowest(_step_us(step), device)

    one = slowest(lambda: torch.mm(left, right, out=product))
    budgets = list(map(int, os.environ["BUDGETS"].split(",")))
    for op in os.environ["OPS"].split(","):
        comms = _contenders(device, op, budgets)
        for nbytes in map(int, os.environ["SIZES"].split(",")):
            case = _Case(op, nbytes, rank, size, device)
            products = 0
            for name, comm in comms.items():  # torch's NCCL first
                free = None
                if name == PERSISTENT:
                    start, free = case.start_persistent(comm)
                else:
                    start = case.start(comm)
                wrong = gpu_common.slowest(case.wrong(start), device)
                alone = slowest(lambda start=start: start().wait())
                products = products or max(1, round(alone / one))

                def compute(products: int = products) -> None:
                    for _ in range(products):
                        torch.mm(left, right, out=product)

                def both(start: Start = start, compute: Callable[[], None] = compute) -> None:
                    work = start()
                    compute()
                    work.wait()

                computing, together = slowest(compute), slowest(both)
                row = {"op": op, "bytes": nbytes, "by": name, "products": products}
                row |= {"alone_us": round(alone, 1), "products_us": round(computing, 1)}
                row |= {"together_us": round(together, 1), "wrong": wrong}
                row["exposed_us"] = round(together - computing, 1)
                gpu_common.say(rank, row)
                if free:
                    free()
            del case, start
            torch.cuda.empty_cache()
        for comm in dict.fromkeys(filter(None, comms.values())):
            comm.finalize()
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| operation | bytes | by | alone | products | together | exposed | wrong |",
        "|---" * 8 + "|",
    ]
    for row in rows:
        if "machine" in row:
            continue
        times = [row[f"{what}_us"] for what in ("alone", "products", "together", "exposed")]
        cells = [row["op"], row["bytes"], row["by"], *times, f"{row['wrong']:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def plot(out: Path, rows: list[dict[str, Any]]) -> None:
    """What each contender adds to the products, and what it takes alone."""
    rows = [row for row in rows if "machine" not in row]
    cases = sorted({(row["op"], row["bytes"]) for row in rows})
    if not cases or not gpu_common.can_plot():
        return
    with gpu_common.figure(out / "gpu_overlap.png", len(cases)) as axes:
        for (op, nbytes), ax in zip(cases, axes, strict=True):
            some = [row for row in rows if (row["op"], row["bytes"]) == (op, nbytes)]
            places = range(len(some))
            ax.barh(places, [row["alone_us"] for row in some], color="lightgray", label="alone")
            ax.barh(places, [row["exposed_us"] for row in some], height=0.4, label="exposed")
            ax.set_yticks(list(places), [row["by"] for row in some])
            ax.set(title=f"{op}, {nbytes >> 20} MB", xlabel="us")
            ax.legend()


def main() -> None:
    parser = gpu_common.parser(__doc__, "overlap", SIZES, seconds=120)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--ops", nargs="+", default=list(OPS), choices=OPS)
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return
    settings = {
        "OPS": ",".join(arguments.ops),
        "SIZES": ",".join(map(str, arguments.sizes)),
        "BUDGETS": ",".join(map(str, arguments.budgets)),
    }
    rows = gpu_common.run_ranks(__file__, arguments.ranks, settings, arguments.seconds)
    gpu_common.write(arguments.out, "gpu_overlap", rows, table(rows))
    plot(arguments.out, rows)


if __name__ == "__main__":
    main()
