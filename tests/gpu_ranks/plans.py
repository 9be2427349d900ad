"""Registered plans serve calls on GPUs: the native results, eager and replayed, and errors."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from harness import Rank
from harness.devices import has_gpu
from harness.failing import error_of

import torchcomms
from gpu_ranks import BACKEND, Make, case
from torchcomms import ReduceOp, WorkStatus, plan

SOON = timedelta(seconds=1)
EXAMPLE = Path(__file__).parents[2] / "examples" / "plan.py"
COUNTS = (1, 1001, 70_001)
# On the stand-ins each rank compiles each kernel: one plan for each collective.
SOME = (
    "all_reduce.two_shot",
    "all_gather.ring",
    "reduce_scatter.direct",
    "all_to_all.direct",
    "broadcast.binomial",
)


def _call(
    comm: torchcomms.TorchComm, kind: str, count: int, rank: Rank
) -> tuple[Callable[[], Any], torch.Tensor, torch.Tensor]:
    """The call, its input and its output."""
    device = rank.device(BACKEND)
    size = rank.size
    source = torch.zeros(count * (size if kind in ("reduce_scatter", "all_to_all") else 1))
    source = source.to(device)
    output = torch.zeros(count * (size if kind in ("all_gather", "all_to_all") else 1))
    output = output.to(device)

    def call() -> None:
        if kind == "all_reduce":
            output.copy_(source)
            rank.synchronize(BACKEND)
            comm.all_reduce(output, ReduceOp.SUM, async_op=False)
        elif kind == "all_gather":
            comm.all_gather_single(output, source, async_op=False)
        elif kind == "reduce_scatter":
            comm.reduce_scatter_single(output, source, ReduceOp.SUM, async_op=True).wait()
        elif kind == "all_to_all":
            comm.all_to_all_single(output, source, async_op=True).wait()
        else:
            output.copy_(source)
            rank.synchronize(BACKEND)
            comm.broadcast(output, rank.size - 1, async_op=False)

    return call, source, output


def _fill(rank: Rank, tensor: torch.Tensor, round_: int) -> None:
    values = torch.arange(tensor.numel()).remainder_(1009).add_(7 * rank.rank + round_)
    tensor.copy_(values.float().div_(3))
    rank.synchronize(BACKEND)


def _serves(rank: Rank, names: list[str]) -> None:
    """Bit for bit what the native kernels give: sums are in rank order in both."""
    comm = rank.comm(BACKEND)
    for name in names:
        kind = name.split(".")[0]
        made = plan.make(name, rank.size)
        exact = kind not in ("all_reduce", "reduce_scatter") or made.verify().rank_order
        for number, count in enumerate(COUNTS):
            call, source, output = _call(comm, kind, count, rank)
            _fill(rank, source, number)
            call()
            rank.synchronize(BACKEND)
            wanted = output.cpu().clone()
            output.fill_(-1)
            with made.register(prefer=True):
                contributed = source.nbytes
                assert comm.explain(kind, contributed).algorithm == f"plan:{name}"
                call()
            rank.synchronize(BACKEND)
            got = output.cpu()
            close = torch.equal(got, wanted) if exact else torch.allclose(got, wanted)
            assert close, (name, count, got[:5], wanted[:5])


@case(world=2)
def plans_give_the_native_results(make: Make) -> None:
    names = list(plan.library()) if has_gpu() else list(SOME)
    make(2).run(_serves, names)


def _ring(size: int) -> plan.Plan:
    """As the documentation writes it."""
    spec = importlib.util.spec_from_file_location("example_plan", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: plan.Plan = module.ring(size)
    return made


# Sums of these depend on the order: who reduces tells by what comes out.
CANCELLING = (1e8, 1.0, -1e8, 0.0)


def _example(rank: Rank) -> list[list[float]]:
    comm = rank.new_comm(BACKEND, "example")
    mine = _ring(4)
    source = torch.full((64,), CANCELLING[rank.rank]).to(rank.device(BACKEND))
    results = []

    def call() -> list[float]:
        tensor = source.clone()
        rank.synchronize(BACKEND)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        return [float(value) for value in tensor.cpu()]

    results.append(call())
    with mine.register("example", prefer=True):
        results.append(call())
        # Average, and lists, and odd counts, in place and not.
        tensor = torch.arange(4001.0).to(rank.device(BACKEND))
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        assert torch.equal(tensor.cpu(), 4 * torch.arange(4001.0))
    results.append(call())
    comm.finalize()
    return results


@case(world=4)
def a_plan_of_ones_own_serves_all_reduce(make: Make) -> None:
    for native, planned, again in make(4).run(_example):
        assert native == again == [0.0] * 64
        # Around the ring the second piece is (-1e8 + 0 + 1e8) + 1, and the third 0 + 1e8 + 1 - 1e8.
        assert planned == [0.0] * 16 + [1.0] * 16 + [0.0] * 32, planned


def _ordered(rank: Rank) -> None:
    """A plan that sums in another order than the ranks' does not serve where that is asked for."""
    device = rank.device(BACKEND)
    comm = rank.new_comm(BACKEND, "ordered")
    strict = rank.new_comm(BACKEND, "strict", hints={"ctran::deterministic": "rank_order"})
    order = {"ctran::deterministic": "rank_order"}
    size = 4096
    with plan.make("all_reduce.ring", rank.size).register(prefer=True):
        told = comm.explain("all_reduce", size)
        assert (told.algorithm, told.why) == ("plan:all_reduce.ring", "a plan is preferred for it")
        assert [one.why_not for one in told.alternatives if one.algorithm == told.algorithm] == [""]
        for one, hints in ((comm, order), (strict, None)):
            told = one.explain("all_reduce", size, hints=hints)
            assert not told.algorithm.startswith("plan:"), told
            reasons = [a.why_not for a in told.alternatives if a.algorithm.startswith("plan:")]
            assert reasons == ["the hint ctran::deterministic asks for the order of the ranks"]
            tensor = torch.full((48,), [-1e8, 0.0, 1e8, 1.0][rank.rank], device=device)
            one.all_reduce(tensor, ReduceOp.SUM, False, hints=hints)
            rank.synchronize(BACKEND)
            assert (tensor.cpu() == 1).all(), tensor
    comm.finalize()
    strict.finalize()


@case(world=4)
def plans_keep_the_order_that_is_asked_for(make: Make) -> None:
    make(4).run(_ordered)


def _named_at_creation(rank: Rank) -> None:
    device = rank.device(BACKEND)
    with plan.make("all_reduce.two_shot", rank.size).register("named"):
        hints = {"ctran::algorithm": "all_reduce=plan:all_reduce.two_shot"}
        comm = rank.new_comm(BACKEND, "named", hints=hints)
        told = comm.explain("all_reduce", 4000)
        assert told.algorithm == "plan:all_reduce.two_shot", told
        assert told.why == "the hint ctran::algorithm", told
        tensor = torch.full((1000,), float(rank.rank + 1), device=device)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        assert (tensor.cpu() == rank.size * (rank.size + 1) / 2).all()
        comm.barrier(async_op=False)
    rank.synchronize(BACKEND)
    error = str(error_of(lambda: comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)))
    assert "no plan of that name is registered" in error, error
    comm.finalize()


@case(world=2)
def a_plan_that_is_named_at_creation_serves(make: Make) -> None:
    make(2).run(_named_at_creation)


def _tuned(rank: Rank, directory: str) -> None:
    os.environ["CTRAN_TUNING_DIR"] = directory
    comm = rank.new_comm(BACKEND, "tuned")
    device = rank.device(BACKEND)
    name, size = "plan:all_reduce.ring", 1024
    by_size = comm.explain("all_reduce", size)
    assert by_size.why.startswith("by size"), by_size
    with plan.make("all_reduce.ring", rank.size).register():
        said: list[float] = []
        path = comm.tune(0.01, lambda done, _: said.append(done))
        assert said[-1] == 1.0
        told = comm.explain("all_reduce", size)
        assert "when this machine was tuned" in told.why, told
        measured = {one.algorithm: one.measured_us for one in told.alternatives}
        assert measured[name] is not None, told
        known = {one: us for one, us in measured.items() if us is not None}
        assert told.algorithm == min(known, key=lambda one: known[one]), told
        comm.barrier(async_op=False)
        rank.synchronize(BACKEND)
        if rank.rank == 0:  # as if the plan had been the fastest by far
            table = json.loads(path.read_text())
            for row in table["measured"]:
                row["us"] |= {name: 0.001} if name in row["us"] else {}
            path.write_text(json.dumps(table))
        comm.barrier(async_op=False)
        rank.synchronize(BACKEND)
        again = rank.new_comm(BACKEND, "again")
        assert again.explain("all_reduce", size).algorithm == name
        tensor = torch.full((size // 4,), [-1e8, 0.0, 1e8, 1.0][rank.rank], device=device)
        again.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        assert not (tensor.cpu() == 1).all(), "the order of the ring"
    assert again.explain("all_reduce", size).algorithm != name  # it is gone
    if rank.rank == 1:
        os.environ["CTRAN_TUNING_DIR"] = directory + "/nothing"
    alone = rank.new_comm(BACKEND, "alone")
    assert alone.explain("all_reduce", size) == by_size  # not all ranks have the table
    for one in (comm, again, alone):
        one.finalize()


@case(world=4, apart=True)
def plans_on_gpus_compete_by_measurement(make: Make) -> None:
    with tempfile.TemporaryDirectory() as directory:
        make(4).run(_tuned, directory)


def _replayed(rank: Rank) -> None:
    """Set up within the capture, then replayed, with eager calls and native ones between."""
    comm = rank.new_comm(BACKEND, "captured")
    device = rank.device(BACKEND)
    large = torch.zeros(300_001, device=device)
    native = torch.zeros(1000, device=device)
    with plan.make("all_reduce.two_shot", rank.size).register(
        "captured", min_bytes=1 << 16, prefer=True
    ):

        def step() -> None:
            comm.all_reduce(large, ReduceOp.SUM, async_op=True).wait()
            comm.all_reduce(native, ReduceOp.SUM, async_op=False)

        replay = rank.gpu().capture(step)
    for number in range(20):
        large.fill_(float(number + rank.rank))
        native.fill_(float(rank.rank))
        rank.synchronize(BACKEND)
        replay()
        rank.synchronize(BACKEND)
        total = rank.size * (rank.size - 1) / 2
        assert (large.cpu() == number * rank.size + total).all(), number
        assert (native.cpu() == total).all(), number
        if number % 5 == 0:
            with plan.make("all_reduce.two_shot", rank.size).register("captured", prefer=True):
                comm.all_reduce(native, ReduceOp.SUM, async_op=False)
            rank.synchronize(BACKEND)
            assert (native.cpu() == total * rank.size).all(), number
    comm.finalize()


@case(world=2)
def plans_are_captured_and_replayed(make: Make) -> None:
    make(2).run(_replayed)


def _lists(rank: Rank) -> None:
    """Blocks that lie anywhere, and in place."""
    comm = rank.comm(BACKEND)
    device = rank.device(BACKEND)
    own = torch.full((501,), float(rank.rank + 1), device=device)
    with plan.make("all_gather.ring", rank.size).register(prefer=True):
        apart = [torch.zeros(501, device=device) for _ in range(rank.size)]
        comm.all_gather(apart, own, async_op=False)
        whole = torch.zeros(rank.size * 501, device=device)
        place = whole[rank.rank * 501 : (rank.rank + 1) * 501]
        place.copy_(own)
        rank.synchronize(BACKEND)
        comm.all_gather_single(whole, place, async_op=False)
        rank.synchronize(BACKEND)
    for r in range(rank.size):
        assert (apart[r].cpu() == r + 1).all()
        assert (whole[r * 501 : (r + 1) * 501].cpu() == r + 1).all()
    with plan.make("reduce_scatter.direct", rank.size).register(prefer=True):
        parts = [torch.full((77,), float(r), device=device) for r in range(rank.size)]
        sum_ = torch.zeros(77, device=device)
        comm.reduce_scatter(sum_, parts, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        assert (sum_.cpu() == rank.rank * rank.size).all()


@case(world=2)
def plans_take_blocks_that_lie_anywhere(make: Make) -> None:
    make(2).run(_lists)


def _hinted(rank: Rank) -> None:
    """A plan that is neither preferred nor measured serves the calls whose hints name it."""
    comm = rank.comm(BACKEND)
    hints = {"ctran::algorithm": "plan:all_reduce.two_shot"}
    source = torch.arange(1001.0).add_(rank.rank).to(rank.device(BACKEND))
    tensor = source.clone()
    rank.synchronize(BACKEND)

    def call() -> None:
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints=hints)
        rank.synchronize(BACKEND)

    def served(**more: Any) -> str:
        return comm.explain("all_reduce", 4004, torch.float32, **more).algorithm

    with plan.make("all_reduce.two_shot", rank.size).register():
        assert served(hints=hints) == "plan:all_reduce.two_shot"
        assert not served().startswith("plan:")
        call()
    total = rank.size * (rank.size - 1) / 2
    assert torch.equal(tensor.cpu(), rank.size * torch.arange(1001.0) + total)
    told = error_of(call)
    assert "plan of that name" in str(told), told


@case(world=2)
def hints_of_a_call_name_plans(make: Make) -> None:
    make(2).run(_hinted)


def _late(rank: Rank, first: bool) -> Any:
    """A rank does not come: to the first call, for which the ranks meet, or to a later one."""
    comm = rank.new_comm(BACKEND, "late")
    tensor = torch.ones(1000, device=rank.device(BACKEND))
    with plan.make("all_reduce.two_shot", rank.size).register("late", prefer=True):
        comm.barrier(async_op=False)
        if not first:
            comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        comm.set_timeout(SOON)  # kernels have been compiled by now
        if rank.rank == 1:
            rank.listen()  # until the other has given up
            return []

        def call() -> None:
            work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True, timeout=SOON)
            try:
                work.wait_blocking()
            finally:
                assert work.status == WorkStatus.TIMEDOUT

        error = error_of(call, torchcomms.CommTimeoutError)
    assert comm.is_aborted()
    rank.synchronize(BACKEND)  # the stream is free again
    rank.say("gave up")
    return error.ranks


@case(world=2, breaks=True)
def a_rank_late_for_a_plan_is_named(make: Make) -> None:
    for first in (False, True):
        job = make(2).start(_late, first)
        assert job.hear(0) == "gave up"
        job.say(1)
        assert job.results()[0] == [1], first


def _aborted(rank: Rank) -> Any:
    comm = rank.new_comm(BACKEND, "aborted")
    tensor = torch.ones(100_000, device=rank.device(BACKEND))
    with plan.make("all_reduce.two_shot", rank.size).register("aborted", prefer=True):
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        rank.synchronize(BACKEND)
        if rank.rank == 1:
            rank.listen()
            comm.abort()
            return [1]
        work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
        rank.say("waiting")
        error = error_of(work.wait_blocking, torchcomms.AbortedError)
    rank.synchronize(BACKEND)
    return error.ranks


@case(world=2, breaks=True)
def an_abort_ends_a_plan(make: Make) -> None:
    job = make(2).start(_aborted)
    job.hear(0)
    job.say(1)
    assert job.results() == [[1], [1]]


def _disagrees(rank: Rank) -> str:
    """One rank has a plan, the other has none."""
    comm = rank.new_comm(BACKEND, "disagree")
    tensor = torch.ones(1000, device=rank.device(BACKEND))
    comm.barrier(async_op=False)
    rank.synchronize(BACKEND)

    def call() -> None:
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait_blocking()

    if rank.rank == 0:
        with plan.make("all_reduce.ring", 2).register("disagree", prefer=True):
            return str(error_of(call, torchcomms.MismatchError))
    return str(error_of(call, torchcomms.MismatchError))


@case(world=2, breaks=True)
def ranks_with_other_plans_are_told(make: Make) -> None:
    for told in make(2).run(_disagrees):
        assert "by another plan" in told or "all_reduce" in told, told
