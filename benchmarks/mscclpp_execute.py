"""Programs of mscclpp's DSL beside the engine's own all_reduce of the same shape, on the CPU.

    torchrun --standalone --nproc-per-node 2 benchmarks/mscclpp_execute.py

Both reduce in two steps: each rank its part, from all, and then all get it. They take turns at
every size; a time is the slowest rank's median of some batches, in microseconds. The first line is
what a call costs with nobody to wait for: in Python and the engine together; the second one what it
takes to write and compile that program for 8 ranks with 8 instances, with the proof, and again.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

import mscclpp
from mscclpp.language import AllReduce, CollectiveProgram, MemoryChannel, Rank

SIZES = [1 << i for i in range(13, 25)]
BATCHES, BATCH_SECONDS = 9, 0.03


def two_shot(ranks: int, instances: int = 1) -> CollectiveProgram:
    collective = AllReduce(ranks, 1, True)
    with CollectiveProgram("two_shot", collective, ranks, instances=instances) as program:
        to = {(p, me): MemoryChannel(p, me) for me in range(ranks) for p in range(ranks) if p != me}

        def exchange() -> None:
            for channel in to.values():
                channel.signal(tb=0)
            for channel in to.values():
                channel.wait(tb=0)

        exchange()
        for me in range(ranks):
            mine = Rank(me).get_input_buffer()[me : me + 1]
            peers = [peer for peer in range(ranks) if peer != me]
            theirs = {peer: Rank(peer).get_input_buffer()[me : me + 1] for peer in peers}
            for peer in peers:
                to[peer, me].reduce(mine, [theirs[peer]], tb=0)
            for peer in peers:
                to[peer, me].put(theirs[peer], mine, tb=0)
        exchange()
    return program


def seconds(run: Callable[[], None], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def call_alone() -> float:
    """Of one rank: microseconds of an execute whose communicator has nobody else."""
    from mscclpp import _runtime

    comm = _runtime.alone("alone")
    (packet,) = (a for a in defaults() if a.name == "default_allreduce_packet")
    tensor = torch.zeros(64)
    address = tensor.data_ptr()

    def run() -> None:
        packet.execute(comm, address, address, 256, 256, mscclpp.DataType.float32, 0)

    run()
    return min(seconds(run, 20_000) for _ in range(5)) * 1e6


def compiled() -> tuple[float, float]:
    """Milliseconds of writing and compiling a program: with the proof, and when that is kept."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MSCCLPP_CACHE_DIR"] = folder
        times = [seconds(lambda: mscclpp.compile(two_shot(8, 8)) and None, 1) for _ in range(6)]
        del os.environ["MSCCLPP_CACHE_DIR"]
    return times[0] * 1e3, min(times[1:]) * 1e3


def defaults() -> mscclpp.AlgorithmCollection:
    return mscclpp.AlgorithmCollectionBuilder().build_default_algorithms()


def main() -> None:
    group = mscclpp.CommGroup()
    comm, ranks = group.communicator, group.nranks
    algorithms = {
        "native": next(a for a in defaults() if a.name == "default_allreduce_packet"),
        "dsl": mscclpp.compile(two_shot(ranks)),
    }
    executor = mscclpp.Executor(comm)
    largest = algorithms["native"]

    def slowest(own: float) -> float:
        worst = torch.tensor([own], dtype=torch.float64)
        address = worst.data_ptr()
        largest.execute(
            comm, address, address, 8, 8, mscclpp.DataType.float64, mscclpp.ReduceOp.MAX
        )
        return float(worst)

    alone = call_alone()
    if group.my_rank == 0:
        print(f"execute, alone: {alone:.2f} us")
        first, again = compiled()
        print(f"compile, 8 ranks, 8 instances: {first:.0f} ms, and again {again:.1f} ms")
        print(f"{'bytes':>10} {'native us':>10} {'dsl us':>10} {'dsl/native':>10}")
    for size in SIZES:
        tensor = torch.zeros(size, dtype=torch.uint8).view(torch.float32)
        address = tensor.data_ptr()

        def run(name: str, address: int = address, size: int = size) -> None:
            algorithms[name].execute(
                comm, address, address, size, size, mscclpp.DataType.float32,
                mscclpp.ReduceOp.SUM, executor=executor,
            )  # fmt: skip

        tensor.fill_(1.0)
        run("dsl")
        run("native")
        assert tensor.eq(ranks * ranks).all()
        tensor.zero_()
        calls = max(3, int(BATCH_SECONDS / slowest(seconds(lambda: run("dsl"), 20))))
        times: dict[str, list[float]] = {name: [] for name in algorithms}
        for _ in range(BATCHES):
            for name, taken in times.items():
                group.barrier()
                taken.append(slowest(seconds(lambda name=name: run(name), calls)))  # type: ignore[misc]
        native, dsl = (statistics.median(times[name]) * 1e6 for name in ("native", "dsl"))
        if group.my_rank == 0:
            print(f"{size:>10} {native:>10.1f} {dsl:>10.1f} {dsl / native:>10.2f}", flush=True)
    group.finalize()


if __name__ == "__main__":
    main()
