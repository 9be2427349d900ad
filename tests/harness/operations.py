"""Every operation of a communicator: how a test calls it, and what it has to give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import torchcomms
from harness import reference
from harness.data import Guarded, bits, concat, values
from harness.devices import ON_STREAMS, ONLY_TO_OTHERS, XCCL


@dataclass(frozen=True)
class Arguments:
    """What all ranks agree on in one call."""

    dtype: torch.dtype
    op: str | None
    root: int
    counts: tuple[int, ...]  # elements of each rank's block; all alike but for v-operations
    in_place: bool
    salt: int = 0


@dataclass
class Call:
    """One rank's call: make it, wait, and `problems()` says what is wrong with the result."""

    rank: int
    size: int
    args: Arguments
    backend: str
    device: torch.device | str = "cpu"
    issue: Callable[[bool], torchcomms.TorchWork] = field(init=False)
    _buffers: list[Guarded] = field(default_factory=list)
    _expected: list[tuple[str, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def of(self, rank: int, to: int = 0, count: int | None = None) -> torch.Tensor:
        """What a rank contributes, to whom if that matters."""
        count = self.args.counts[rank] if count is None else count
        return values(rank, count, self.args.dtype, self.args.salt * 131 + to)

    def output(self, count: int) -> torch.Tensor:
        """A poisoned tensor."""
        self._buffers.append(Guarded(count, self.args.dtype, self.device))
        return self._buffers[-1].tensor

    def input(self, data: torch.Tensor) -> torch.Tensor:
        """A tensor of that content, which the operation has to leave as it is."""
        tensor = self.output(data.numel())
        tensor.copy_(data)
        self.expect("input", tensor, data)
        return tensor

    def expect(self, what: str, tensor: torch.Tensor, content: torch.Tensor) -> None:
        """Replaces what was expected of parts of the same memory before."""
        same = tensor.data_ptr()
        self._expected = [e for e in self._expected if not e[1].numel() or e[1].data_ptr() != same]
        self._expected.append((what, tensor, content))

    def reduced(self, contributions: Sequence[torch.Tensor]) -> torch.Tensor:
        assert self.args.op is not None
        return reference.reduce(contributions, self.args.op)

    def reduce_op(self) -> Any:
        own = reference.factor(self.rank)
        if self.args.op == "PREMUL":
            return torchcomms.ReduceOp.PREMUL_SUM(own)
        if self.args.op == "PREMUL_TENSOR":
            return torchcomms.ReduceOp.PREMUL_SUM(factor_tensor(own, self.device))
        assert self.args.op is not None
        return getattr(torchcomms.ReduceOp, self.args.op)

    def problems(self, equal: Callable[[torch.Tensor, torch.Tensor], bool]) -> list[str]:
        """In words; empty if everything is as it should be."""
        found = []
        for what, tensor, content in self._expected:
            if not equal(tensor.cpu(), content):
                found.append(f"{what} of rank {self.rank}: {_difference(tensor.cpu(), content)}")
        if not all(buffer.is_intact() for buffer in self._buffers):
            found.append(f"rank {self.rank}: bytes beside a tensor were written")
        return found

    def results(self) -> list[torch.Tensor]:
        return [tensor.cpu() for what, tensor, _ in self._expected if what != "input"]


def factor_tensor(value: float, device: torch.device | str) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64, device=device)


def _difference(tensor: torch.Tensor, content: torch.Tensor) -> str:
    differ = bits(tensor) != bits(content)
    if tensor.element_size() == 16:
        differ = differ.any(-1)
    at = int(differ.nonzero()[0]) if differ.any() else 0
    return (
        f"{int(differ.sum())} of {tensor.numel()} elements differ, the first at {at}: "
        f"{tensor[at].item()} instead of {content[at].item()}"
    )


Comm = Any  # torchcomms.TorchComm, whose methods are called with either spelling


def all_reduce(comm: Comm, c: Call) -> None:
    tensor = c.output(c.args.counts[0])
    tensor.copy_(c.of(c.rank))
    c.expect("result", tensor, c.reduced([c.of(r) for r in range(c.size)]))
    c.issue = lambda async_op: comm.all_reduce(tensor, c.reduce_op(), async_op)


def reduce(comm: Comm, c: Call) -> None:
    tensor = c.input(c.of(c.rank))
    if c.rank == c.args.root:
        c.expect("result", tensor, c.reduced([c.of(r) for r in range(c.size)]))
    c.issue = lambda async_op: comm.reduce(tensor, c.args.root, c.reduce_op(), async_op)


def broadcast(comm: Comm, c: Call) -> None:
    tensor = c.output(c.args.counts[0])
    if c.rank == c.args.root:
        tensor.copy_(c.of(c.rank))
    c.expect("result", tensor, c.of(c.args.root))
    c.issue = lambda async_op: comm.broadcast(tensor, c.args.root, async_op)


def _gathered(c: Call) -> tuple[list[torch.Tensor], torch.Tensor]:
    """A list for everybody's blocks and the own block, which is in the list if in place."""
    outputs = [c.output(c.args.counts[r]) for r in range(c.size)]
    if c.args.in_place:
        own = outputs[c.rank]
        own.copy_(c.of(c.rank))
    else:
        own = c.input(c.of(c.rank))
    for r in range(c.size):
        c.expect(f"block {r}", outputs[r], c.of(r))
    return outputs, own


def all_gather(comm: Comm, c: Call) -> None:
    outputs, own = _gathered(c)
    c.issue = lambda async_op: comm.all_gather(outputs, own, async_op)


def all_gather_v(comm: Comm, c: Call) -> None:
    outputs, own = _gathered(c)
    c.issue = lambda async_op: comm.all_gather_v(outputs, own, async_op)


def _gathered_single(c: Call) -> tuple[torch.Tensor, torch.Tensor]:
    count = c.args.counts[0]
    whole = c.output(count * c.size)
    own = whole[c.rank * count : (c.rank + 1) * count]
    if c.args.in_place:
        own.copy_(c.of(c.rank))
    else:
        own = c.input(c.of(c.rank))
    c.expect("result", whole, concat([c.of(r) for r in range(c.size)]))
    return whole, own


def all_gather_single(comm: Comm, c: Call) -> None:
    whole, own = _gathered_single(c)
    c.issue = lambda async_op: comm.all_gather_single(whole, own, async_op)


def _scatter_reduced(c: Call) -> tuple[torch.Tensor, list[torch.Tensor]]:
    inputs = [c.input(c.of(c.rank, to, c.args.counts[to])) for to in range(c.size)]
    own = inputs[c.rank] if c.args.in_place else c.output(c.args.counts[c.rank])
    mine = [c.of(r, c.rank, c.args.counts[c.rank]) for r in range(c.size)]
    c.expect("result", own, c.reduced(mine))
    return own, inputs


def reduce_scatter(comm: Comm, c: Call) -> None:
    own, inputs = _scatter_reduced(c)
    c.issue = lambda async_op: comm.reduce_scatter(own, inputs, c.reduce_op(), async_op)


def reduce_scatter_v(comm: Comm, c: Call) -> None:
    own, inputs = _scatter_reduced(c)
    c.issue = lambda async_op: comm.reduce_scatter_v(own, inputs, c.reduce_op(), async_op)


def reduce_scatter_single(comm: Comm, c: Call) -> None:
    count = c.args.counts[0]
    mine = c.reduced([c.of(r, c.rank) for r in range(c.size)])
    content = concat([c.of(c.rank, to) for to in range(c.size)])
    if c.args.in_place:
        whole = c.output(count * c.size)
        whole.copy_(content)
        # The other parts of the input stay as they were.
        before, after = content[: c.rank * count], content[(c.rank + 1) * count :]
        own = whole[c.rank * count : (c.rank + 1) * count]
        c.expect("result", whole, concat([before, mine, after]))
    else:
        whole = c.input(content)
        own = c.output(count)
        c.expect("result", own, mine)
    c.issue = lambda async_op: comm.reduce_scatter_single(own, whole, c.reduce_op(), async_op)


def all_to_all(comm: Comm, c: Call) -> None:
    inputs = [c.input(c.of(c.rank, to)) for to in range(c.size)]
    outputs = inputs if c.args.in_place else [c.output(c.args.counts[0]) for _ in inputs]
    for r in range(c.size):
        c.expect(f"block {r}", outputs[r], c.of(r, c.rank))
    c.issue = lambda async_op: comm.all_to_all(outputs, inputs, async_op)


def all_to_all_single(comm: Comm, c: Call) -> None:
    whole = c.input(concat([c.of(c.rank, to) for to in range(c.size)]))
    output = whole if c.args.in_place else c.output(whole.numel())
    c.expect("result", output, concat([c.of(r, c.rank) for r in range(c.size)]))
    c.issue = lambda async_op: comm.all_to_all_single(output, whole, async_op)


def pair_count(args: Arguments, sender: int, receiver: int) -> int:
    """How much one rank sends to another in all_to_all_v_single: in place as much as it gets."""
    both = sender + receiver if args.in_place else sender + 2 * receiver
    return args.counts[both % len(args.counts)]


def all_to_all_v_single(comm: Comm, c: Call) -> None:
    sends = [pair_count(c.args, c.rank, to) for to in range(c.size)]
    receives = [pair_count(c.args, r, c.rank) for r in range(c.size)]
    whole = c.input(concat([c.of(c.rank, to, n) for to, n in enumerate(sends)]))
    output = whole if c.args.in_place else c.output(sum(receives))
    c.expect("result", output, concat([c.of(r, c.rank, n) for r, n in enumerate(receives)]))
    c.issue = lambda async_op: comm.all_to_all_v_single(output, whole, receives, sends, async_op)


def scatter(comm: Comm, c: Call) -> None:
    inputs: list[torch.Tensor] = []
    own = None
    if c.rank == c.args.root:
        inputs = [c.input(c.of(c.rank, to)) for to in range(c.size)]
        own = inputs[c.rank] if c.args.in_place else None
    own = c.output(c.args.counts[0]) if own is None else own
    c.expect("result", own, c.of(c.args.root, c.rank))
    c.issue = lambda async_op: comm.scatter(own, inputs, c.args.root, async_op)


def gather(comm: Comm, c: Call) -> None:
    if c.rank == c.args.root:
        outputs, own = _gathered(c)
    else:
        outputs, own = [], c.input(c.of(c.rank))
    c.issue = lambda async_op: comm.gather(outputs, own, c.args.root, async_op)


def gather_single(comm: Comm, c: Call) -> None:
    if c.rank == c.args.root:
        whole, own = _gathered_single(c)
    else:
        whole, own = c.output(0), c.input(c.of(c.rank))
    c.issue = lambda async_op: comm.gather_single(whole, own, c.args.root, async_op)


def batch(comm: Comm, c: Call) -> None:
    """Everybody exchanges with everybody else, and with itself where that is possible."""
    ops = comm.batch_op_create()
    for peer in range(c.size):
        if peer == c.rank and c.backend in ONLY_TO_OTHERS:
            continue  # cannot send to itself
        ops.send(c.input(c.of(c.rank, peer)), peer)
        incoming = c.output(c.args.counts[0])
        c.expect(f"from {peer}", incoming, c.of(peer, c.rank))
        ops.recv(incoming, peer)
    c.issue = lambda async_op: ops.issue(async_op)


class _Both:
    """Two works as one."""

    def __init__(self, *works: Any) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def send_recv(comm: Comm, c: Call) -> None:
    """Each rank sends to the next, which receives while itself sending."""
    after, before = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    outgoing = c.input(c.of(c.rank))
    incoming = c.output(c.args.counts[0])
    c.expect("received", incoming, c.of(before))

    def issue(async_op: bool) -> Any:
        # On streams, what a rank does runs in order, asynchronous or not.
        if c.rank == 0 and (not async_op or c.backend in (*ON_STREAMS, XCCL)):
            return _Both(
                comm.send(outgoing, after, async_op), comm.recv(incoming, before, async_op)
            )
        return _Both(comm.recv(incoming, before, async_op), comm.send(outgoing, after, async_op))

    c.issue = issue


@dataclass(frozen=True)
class Operation:
    prepare: Callable[[Comm, Call], None]
    reduces: bool = False
    in_place: bool = True  # whether that is possible
    varying: bool = False  # whether ranks' blocks may differ in size
    least: int = 1  # ranks


OPERATIONS = {
    "all_reduce": Operation(all_reduce, reduces=True, in_place=False),
    "reduce": Operation(reduce, reduces=True, in_place=False),
    "broadcast": Operation(broadcast, in_place=False),
    "all_gather": Operation(all_gather),
    "all_gather_v": Operation(all_gather_v, varying=True),
    "all_gather_single": Operation(all_gather_single),
    "reduce_scatter": Operation(reduce_scatter, reduces=True),
    "reduce_scatter_v": Operation(reduce_scatter_v, reduces=True, varying=True),
    "reduce_scatter_single": Operation(reduce_scatter_single, reduces=True),
    "all_to_all": Operation(all_to_all),
    "all_to_all_single": Operation(all_to_all_single),
    "all_to_all_v_single": Operation(all_to_all_v_single, varying=True),
    "scatter": Operation(scatter),
    "gather": Operation(gather),
    "gather_single": Operation(gather_single),
    "batch": Operation(batch, in_place=False),
    "send_recv": Operation(send_recv, in_place=False, least=2),
}
