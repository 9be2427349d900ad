"""Random programs: operations of any kind, size and type, on several communicators and streams.

Eager and captured, waited for at once, later or by the graph; tensors at any alignment, in ordinary
and in symmetric memory; now and then one rank is late. All ranks draw the same program from a seed,
but where their tensors lie is each rank's own affair. Data and comparison stay on the GPU: results
are looked at by the stream that has waited for them, and the host reads what they found only now
and then.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from harness import Rank
from harness.data import POISON, bits, values
from harness.devices import has_gpu
from harness.operations import OPERATIONS, Arguments, Call
from harness.reference import is_defined

from gpu_ranks import BACKEND, Make, case
from torchcomms import TorchComm

SEED = int(os.environ.get("STRESS_SEED", "20261122"))
# How many, if not as many as usual: see tests/gpu/ctran/run.py.
operations: int | None = None
# Positions by which contributions of different ranks and calls are shifted against each other.
SHIFTS = 4099
GUARD_BYTES = 64
# The host looks after so many operations.
LOOK_EVERY = 250


@dataclass(frozen=True)
class Extent:
    """How far the draws reach."""

    operations: int
    most: int  # elements of a block
    dtypes: tuple[str, ...]
    reduced: tuple[tuple[str, str], ...]  # what is reduced: each is a kernel of its own
    graphs: int  # captures; each costs torch a collection of garbage
    replayed: float  # part of the steps that are replays


ON_GPU = Extent(
    operations=3000,
    most=1 << 22,
    dtypes=("float32", "bfloat16", "uint8", "int64", "complex64"),
    reduced=(
        ("float32", "SUM"),
        ("bfloat16", "SUM"),
        ("bfloat16", "AVG"),
        ("int64", "MAX"),
        ("uint8", "BXOR"),
        ("complex64", "SUM"),
    ),
    graphs=12,
    replayed=0.12,
)
ON_STAND_IN = Extent(
    operations=80,
    most=20_000,
    dtypes=("float32", "bfloat16"),
    reduced=(("float32", "SUM"), ("bfloat16", "SUM")),
    graphs=2,
    replayed=0.1,
)


class Heap:
    """Where a rank's tensors come from, and what they contain."""

    def __init__(self, rank: Rank, comm: TorchComm, extent: Extent, seed: int) -> None:
        self.device = rank.device(BACKEND)
        self._own = Random(seed * 1000 + rank.rank)
        count = extent.most + SHIFTS
        self._content = {
            name: values(0, count, getattr(torch, name), seed).to(self.device)
            for name in extent.dtypes
        }
        self._pool = torch.cuda.MemPool(comm.mem_allocator) if rank.gpu().is_real else None
        self._wrong = torch.zeros(LOOK_EVERY * 2, dtype=torch.int64, device=self.device)

    def content(self, dtype: torch.dtype, count: int, shift: int) -> torch.Tensor:
        start = shift % SHIFTS
        return self._content[str(dtype).removeprefix("torch.")][start : start + count]

    def region(self, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Bytes, and a tensor among them: aligned or not, as this rank likes."""
        start = GUARD_BYTES + self._own.choice((0, 0, 16, dtype.itemsize * self._own.randrange(16)))
        end = start + count * dtype.itemsize
        symmetric = self._pool is not None and self._own.random() < 0.3
        with torch.cuda.use_mem_pool(self._pool) if symmetric else nullcontext():
            raw = torch.empty(end + GUARD_BYTES, dtype=torch.uint8, device=self.device)
        return raw, raw[start:end].view(dtype)

    def note(self, slot: int, differ: torch.Tensor) -> None:
        self._wrong[slot : slot + 1] += differ.sum()

    def look(self) -> list[int]:
        """The slots in which something wrong was noted, and clears them."""
        found = self._wrong.cpu().nonzero().flatten().tolist()
        self._wrong.zero_()
        return found


@dataclass
class Step(Call):
    """A call whose data and comparison stay on the device, and that can be made again."""

    heap: Heap = field(kw_only=True)
    name: str = field(kw_only=True)
    comm: TorchComm = field(kw_only=True)
    async_op: bool = field(kw_only=True)
    _regions: list[torch.Tensor] = field(default_factory=list)
    _tensors: list[torch.Tensor] = field(default_factory=list)
    _taken: int = 0

    def of(self, rank: int, to: int = 0, count: int | None = None) -> torch.Tensor:
        count = self.args.counts[rank] if count is None else count
        return self.heap.content(self.args.dtype, count, rank * 911 + to * 577 + self.args.salt)

    def output(self, count: int) -> torch.Tensor:
        if self._taken == len(self._regions):
            raw, tensor = self.heap.region(count, self.args.dtype)
            self._regions.append(raw)
            self._tensors.append(tensor)
        self._regions[self._taken].fill_(POISON)
        self._taken += 1
        return self._tensors[self._taken - 1]

    def prepare(self, salt: int) -> None:
        """Fills its tensors, with other data each time."""
        self.args = replace(self.args, salt=salt)
        self._expected.clear()
        self._taken = 0
        OPERATIONS[self.name].prepare(self.comm, self)

    def check(self, slot: int) -> None:
        """By the current stream."""
        for _, tensor, content in self._expected:
            self.heap.note(slot, bits(tensor) != bits(content))
        for raw, tensor in zip(self._regions, self._tensors, strict=True):
            start = tensor.storage_offset() * tensor.element_size()
            beside = torch.cat((raw[:start], raw[start + tensor.nbytes :]))
            self.heap.note(slot, beside != POISON)

    def __str__(self) -> str:
        kind = f"{self.name}, {self.args.dtype}, {self.args.op}, root {self.args.root}"
        how = "async" if self.async_op else "sync"
        place = ", in place" if self.args.in_place else ""
        return f"{kind}, {self.args.counts}{place}, {how} on '{self.comm.get_name()}'"


@dataclass
class Graph:
    steps: list[Step]
    replay: Callable[[], None]


class Program:
    """What one rank does; all draw the same."""

    def __init__(self, rank: Rank, extent: Extent, seed: int) -> None:
        self._rank, self._extent, self._draw = rank, extent, Random(seed)
        self._gpu = rank.gpu()
        self._comms = _communicators(rank)
        self._heap = Heap(rank, self._comms[0], extent, seed)
        self._streams = [self._gpu.new_stream() for _ in range(3)]
        self._pending: deque[tuple[Step, Any, Any, int]] = deque()
        self._graphs: list[Graph] = []
        self._captures = extent.graphs
        self._checked: list[str] = []  # what each slot is about
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        rank.synchronize(BACKEND)

    def run(self) -> None:
        captures_at = max(1, self._extent.operations // (self._extent.graphs + 1))
        made = 0
        while made < self._extent.operations and not self.problems:
            if self._captures and made >= captures_at * (self._extent.graphs - self._captures + 1):
                self._capture()
                self._captures -= 1
            if self._graphs and self._draw.random() < self._extent.replayed:
                made += self._replay()
            else:
                made += self._eager()
            if len(self._checked) > LOOK_EVERY:
                self._look()
        self._meet()
        self._look()

    def close(self) -> None:
        self._graphs.clear()
        self._rank.synchronize(BACKEND)
        for comm in reversed(self._comms):
            comm.finalize()

    def _look(self) -> None:
        self._rank.synchronize(BACKEND)
        for slot in self._heap.look():
            self.problems.append(self._checked[slot])
        # What is not checked yet begins anew.
        kept = [self._checked[slot] for *_, slot in self._pending]
        self._pending = deque((*rest, slot) for slot, (*rest, _) in enumerate(self._pending))
        self._checked = kept

    def _slot(self, step: Step, how: str) -> int:
        self.done[step.name] += 1
        self.done[how] += 1
        self._checked.append(f"operation {sum(self.done.values()) // 2}, {how}: {step}")
        return len(self._checked) - 1

    def _drawn(self) -> Step:
        draw, size = self._draw, self._rank.size
        name = draw.choice([n for n, o in OPERATIONS.items() if o.least <= size])
        operation = OPERATIONS[name]
        dtype, op = draw.choice(self._extent.dtypes), None
        if operation.reduces:
            dtype, op = draw.choice(self._extent.reduced)
            if op == "AVG" and size & (size - 1):
                op = "SUM"  # whose division torch rounds otherwise
            assert is_defined(op, getattr(torch, dtype))
        count = self._count()
        counts = (count,) * size
        if operation.varying and draw.random() < 0.7:
            counts = tuple(draw.choice((0, count, draw.randint(0, count))) for _ in range(size))
        comm = draw.choice(self._comms)
        return Step(
            comm.get_rank(),
            size,
            Arguments(
                getattr(torch, dtype),
                op,
                draw.randrange(size),
                counts,
                operation.in_place and draw.random() < 0.3,
            ),
            BACKEND,
            self._heap.device,
            heap=self._heap,
            name=name,
            comm=comm,
            async_op=draw.random() < 0.5,
        )

    def _count(self) -> int:
        """Mostly little; all orders of magnitude."""
        draw, most = self._draw, self._extent.most
        how = draw.random()
        if how < 0.3:
            return draw.randint(0, 40)
        if how < 0.6:
            return draw.randint(0, 5000)
        if how < 0.98:
            return int(10 ** (6 * draw.random())) % (most // 8)
        return draw.randint(0, most)

    def _salt(self) -> int:
        return self._draw.randrange(SHIFTS)

    def _settle(self) -> None:
        """Streams of the stand-in do not run what torch does: the host waits."""
        if not self._gpu.is_real:
            self._rank.synchronize(BACKEND)

    def _eager(self) -> int:
        step = self._drawn()
        salt, late = self._salt(), self._draw.random() < 0.002
        stream = self._draw.choice(self._streams)
        with self._gpu.on(stream):
            step.prepare(salt)
            self._gpu.delay(late and salt % self._rank.size == self._rank.rank, 1_000_000)
            work = step.issue(step.async_op)
            slot = self._slot(step, "eager")
            if step.async_op:
                self._pending.append((step, work, stream, slot))
            else:
                self._settle()
                step.check(slot)
        for _ in range(min(self._draw.randint(0, 2), len(self._pending))):
            self._finish()
        return 1

    def _finish(self) -> None:
        step, work, stream, slot = self._pending.popleft()
        with self._gpu.on(stream):
            work.wait()
            self._settle()
            step.check(slot)

    def _meet(self) -> None:
        """A replay is behind all that was issued before it, on whichever stream."""
        while self._pending:
            self._finish()
        self._gpu.meet(self._streams)

    def _capture(self) -> None:
        self._meet()
        steps = [self._drawn() for _ in range(self._draw.randint(2, 9))]
        for step in steps:
            step.prepare(0)
        self._rank.synchronize(BACKEND)

        def body() -> None:
            for step in steps:
                work = step.issue(step.async_op)
                if step.async_op and step.args.root:
                    work.wait()  # changes nothing

        if len(self._graphs) == 4:
            self._graphs.pop(0)
        self._graphs.append(Graph(steps, self._gpu.capture(body)))

    def _replay(self) -> int:
        graph = self._draw.choice(self._graphs)
        salts = [self._salt() for _ in graph.steps]
        self._meet()
        with self._gpu.on(self._draw.choice(self._streams)):
            for step, salt in zip(graph.steps, salts, strict=True):
                step.prepare(salt)
            self._settle()
            graph.replay()
            self._settle()
            for step in graph.steps:
                step.check(self._slot(step, "replayed"))
        self._meet()
        return len(graph.steps)


def _communicators(rank: Rank) -> list[TorchComm]:
    """Three, of which any two fit onto a GPU side by side; the last has its ranks turned round."""
    wide = rank.new_comm(BACKEND, "stress")
    os.environ["CTRAN_GPU_SM_BUDGET"] = "24"
    try:
        narrow = rank.new_comm(BACKEND, "stress-narrow")
        turned = narrow.split(list(reversed(range(rank.size))), "stress-turned")
    finally:
        del os.environ["CTRAN_GPU_SM_BUDGET"]
    assert turned is not None
    return [wide, narrow, turned]


def _stress(rank: Rank, extent: Extent, seed: int) -> dict[str, int]:
    program = Program(rank, extent, seed)
    program.run()
    assert not program.problems, "\n".join(program.problems[:10])
    done = dict(program.done)
    program.close()
    return done


def run(make: Make, world: int, extent: Extent, seed: int) -> None:
    first, *others = make(world).start(_stress, extent, seed).results(guard=900)
    assert all(other == first for other in others)
    assert first["eager"] + first["replayed"] >= extent.operations
    assert extent.operations < 1000 or set(OPERATIONS) <= set(first)
    print(f"       {first['eager']} operations eager, {first['replayed']} replayed")


@case(world=2)
def stress_of_random_operations(make: Make) -> None:
    extent = ON_GPU if has_gpu() else ON_STAND_IN
    run(make, 2, replace(extent, operations=operations or extent.operations), SEED)


@case(world=4, real=True)
def stress_of_random_operations_of_four(make: Make) -> None:
    run(make, 4, replace(ON_GPU, operations=operations or ON_GPU.operations), SEED)
