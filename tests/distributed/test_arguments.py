"""What operations take, in either spelling, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def _sum(comm: torchcomms.TorchComm) -> float:
    tensor = torch.full((3,), comm.get_rank() + 1.0)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    return tensor[0].item()


def takes_either_spelling(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    one = [torch.ones(2) for _ in range(rank.size)]
    other = [torch.zeros(2) for _ in range(rank.size)]
    whole, room = torch.ones(2 * rank.size), torch.zeros(2 * rank.size)
    sizes = [2] * rank.size
    comm.all_to_all(output_tensor_list=other, input_tensor_list=one, async_op=False)
    comm.all_to_all(output_list=other, input_list=one, async_op=False)
    comm.all_to_all_v_single(
        output=room,
        input=whole,
        output_split_sizes=sizes,
        input_split_sizes=sizes,
        async_op=False,
    )
    comm.all_to_all_v_single(
        output=room, input=whole, output_splits=sizes, input_splits=sizes, async_op=False
    )
    own = torch.zeros(2)
    comm.scatter(output_tensor=own, input_tensor_list=one, root=0, async_op=False)
    comm.scatter(output=own, input_list=one, root=0, async_op=False)
    comm.gather(output_tensor_list=other, input_tensor=own, root=0, async_op=False)
    comm.gather(output_list=other, input=own, root=0, async_op=False)
    none: Any = None
    comm.scatter(own, one if rank.rank == 0 else none, root=0, async_op=False)
    comm.gather(other if rank.rank == 0 else none, own, root=0, async_op=False)
    with pytest.raises(TypeError, match=r"all_reduce\(\).*unexpected.*'tensr'"):
        comm.all_reduce(tensr=own, op=ReduceOp.SUM, async_op=False)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"all_reduce\(\).*missing.*'async_op'"):
        comm.all_reduce(own, ReduceOp.SUM)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"all_reduce\(\).*'tensor'.*Tensor.*int"):
        comm.all_reduce(3, ReduceOp.SUM, False)  # type: ignore[arg-type]


def test_both_spellings(ranks: MakeRanks) -> None:
    ranks(2).run(takes_either_spelling)


def _calls(comm: torchcomms.TorchComm) -> dict[str, Callable[..., Any]]:
    """Every operation with arguments that fit a world of 2."""
    a, b, whole, room = torch.ones(2), torch.ones(2), torch.ones(4), torch.ones(4)
    list_a, list_b = [torch.ones(2), torch.ones(2)], [torch.ones(2), torch.ones(2)]
    peer = 1 - comm.get_rank()
    first = comm.get_rank() == 0

    def exchange(**options: Any) -> None:
        comm.send(a, peer, async_op=False, **options)
        comm.recv(b, peer, async_op=False, **options)

    def in_turn(**options: Any) -> None:
        if first:
            comm.send(tensor=a, dst=1, async_op=True, **options).wait()
        else:
            comm.recv(tensor=b, src=0, async_op=True, **options).wait()

    return {
        "send and recv": exchange,
        "send or recv": in_turn,
        "broadcast": lambda **o: comm.broadcast(a, 0, False, **o),
        "all_reduce": lambda **o: comm.all_reduce(a, ReduceOp.SUM, False, **o),
        "reduce": lambda **o: comm.reduce(a, 0, ReduceOp.SUM, False, **o),
        "all_gather": lambda **o: comm.all_gather(list_a, a, False, **o),
        "all_gather_v": lambda **o: comm.all_gather_v(list_a, a, False, **o),
        "all_gather_single": lambda **o: comm.all_gather_single(whole, a, False, **o),
        "reduce_scatter": lambda **o: comm.reduce_scatter(a, list_a, ReduceOp.SUM, False, **o),
        "reduce_scatter_v": lambda **o: comm.reduce_scatter_v(a, list_a, ReduceOp.SUM, False, **o),
        "reduce_scatter_single": lambda **o: comm.reduce_scatter_single(
            a, whole, ReduceOp.SUM, False, **o
        ),
        "all_to_all_single": lambda **o: comm.all_to_all_single(room, whole, False, **o),
        "all_to_all_v_single": lambda **o: comm.all_to_all_v_single(
            room, whole, [2, 2], [2, 2], False, **o
        ),
        "all_to_all": lambda **o: comm.all_to_all(list_b, list_a, False, **o),
        "barrier": lambda **o: comm.barrier(False, **o),
        "scatter": lambda **o: comm.scatter(a, list_a if first else [], 0, False, **o),
        "gather": lambda **o: comm.gather(list_b if first else [], a, 0, False, **o),
        "gather_single": lambda **o: comm.gather_single(whole, a, 0, False, **o),
    }


def takes_hints_and_timeouts(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    for call in _calls(comm).values():
        call(hints={"some": "hint"})
        call(timeout=timedelta(seconds=20))
        call(timeout=torchcomms.Timeout(seconds=20), hints={})
        call(hints=None, timeout=None)
        with pytest.raises(TypeError, match="hints"):
            call(hints={"a": 1})
        with pytest.raises(TypeError, match="timeout"):
            call(timeout=3.0)
    options = torchcomms.AllReduceOptions(timeout=timedelta(seconds=20), hints={"a": "b"})
    comm.all_reduce(torch.ones(2), ReduceOp.SUM, False, options=options)
    with pytest.raises(TypeError, match="options"):
        comm.broadcast(torch.ones(2), 0, False, options=options)  # type: ignore[call-overload]


def test_hints_and_timeouts_on_each_operation(ranks: MakeRanks) -> None:
    ranks(2).run(takes_hints_and_timeouts)


def refuses(rank: Rank) -> None:
    """Before anything is sent: the communicator is as good as before."""
    comm = rank.comm(BACKEND)
    n = rank.size
    t, two, three = torch.ones(2), torch.ones(2 * n), torch.ones(3)
    lists = [torch.ones(2) for _ in range(n)]
    odd = [torch.ones(2) for _ in range(n - 1)] + [torch.ones(3)]
    short = lists[1:]
    op = ReduceOp.SUM
    room = torch.ones(2 * n + 1)
    strided = torch.ones(4)[::2]
    meta = torch.ones(2, device="meta")
    empty = comm.batch_op_create()
    wrong_peer = comm.batch_op_create()
    wrong_peer.send(t, n)
    calls: list[tuple[str, Callable[[], Any]]] = [
        (rf"dst must be in range \[0, {n}\), but got {n}", lambda: comm.send(t, n, False)),
        (rf"src must be in range \[0, {n}\), but got -1", lambda: comm.recv(t, -1, False)),
        (rf"root must be in range \[0, {n}\), but got 9", lambda: comm.broadcast(t, 9, False)),
        (rf"root must be in range \[0, {n}\)", lambda: comm.reduce(t, n, op, False)),
        (rf"root must be in range \[0, {n}\)", lambda: comm.scatter(t, lists, n, False)),
        (rf"root must be in range \[0, {n}\)", lambda: comm.gather(lists, t, n, False)),
        (rf"dst must be in range \[0, {n}\)", lambda: wrong_peer.issue(False)),
        ("Cannot issue empty batch operation", lambda: empty.issue(False)),
        ("Tensor must be contiguous for ctran", lambda: comm.all_reduce(strided, op, False)),
        ("Tensor must be contiguous for ctran", lambda: comm.all_gather(lists, strided, False)),
        ("Tensor must be contiguous for ctran", lambda: comm.send(strided, 0, False)),
        ("Tensor must be contiguous", lambda: comm.all_to_all_single(two, two[::2], False)),
        ("Tensor must be dense", lambda: comm.all_reduce(t.to_sparse(), op, False)),
        (
            "Expected tensor on cpu but found tensor on meta",
            lambda: comm.all_reduce(meta, op, False),
        ),
        (
            "tensor_list size must equal comm_size for all_gather",
            lambda: comm.all_gather(short, t, False),
        ),
        (
            "All tensors in tensor_list must have same size as input tensor",
            lambda: comm.all_gather(odd, t, False),
        ),
        (
            "Output tensor size must be input_size . comm_size for all_gather_single",
            lambda: comm.all_gather_single(three, t, False),
        ),
        (
            "input_list size must equal comm_size for reduce_scatter",
            lambda: comm.reduce_scatter(t, short, op, False),
        ),
        (
            "input_list size must equal comm_size for reduce_scatter_v",
            lambda: comm.reduce_scatter_v(t, short, op, False),
        ),
        (
            "All input tensors must have same size as output tensor",
            lambda: comm.reduce_scatter(t, odd, op, False),
        ),
        (
            "Input tensor size must be output_size . comm_size for reduce_scatter_single",
            lambda: comm.reduce_scatter_single(t, three, op, False),
        ),
        (
            "Input and output tensors must have same size for all_to_all_single",
            lambda: comm.all_to_all_single(t, three, False),
        ),
        (
            "Tensor size must be divisible by comm_size for all_to_all_single",
            lambda: comm.all_to_all_single(torch.ones(n + 1), torch.ones(n + 1), False),
        ),
        (
            "input_split_sizes length must equal comm_size for all_to_all_v_single",
            lambda: comm.all_to_all_v_single(two, two, [2] * n, [2], False),
        ),
        (
            "Sum of input_split_sizes exceeds input tensor size for all_to_all_v_single",
            lambda: comm.all_to_all_v_single(two, two, [2] * n, [3] * n, False),
        ),
        (
            "Sum of output_split_sizes exceeds output tensor size for all_to_all_v_single",
            lambda: comm.all_to_all_v_single(two, two, [2**62] * n, [2] * n, False),
        ),
        (
            "Tensor list sizes must equal comm_size for all_to_all",
            lambda: comm.all_to_all(lists, short, False),
        ),
        ("same dtype", lambda: comm.all_gather_single(two.int(), t, False)),
        ("same dtype", lambda: comm.all_gather([x.double() for x in lists], t, False)),
        ("overlap", lambda: comm.all_gather_single(two, two[1:3], False)),
        ("overlap", lambda: comm.all_to_all_single(room[1:], room[:-1], False)),
        (
            "avg of bool is not defined",
            lambda: comm.all_reduce(torch.ones(2, dtype=torch.bool), ReduceOp.AVG, False),
        ),
        (
            "premul_sum of int32 is not defined",
            lambda: comm.all_reduce(two.int(), ReduceOp.PREMUL_SUM(2.0), False),
        ),
        ("band of float32 is not defined", lambda: comm.all_reduce(t, ReduceOp.BAND, False)),
        (
            "max of complex64 is not defined",
            lambda: comm.all_reduce(torch.ones(2, dtype=torch.complex64), ReduceOp.MAX, False),
        ),
        (
            "Unsupported scalar data type",
            lambda: comm.all_reduce(torch.ones(2).to(torch.float8_e4m3fnuz), op, False),
        ),
        (
            "PREMUL_SUM",
            lambda: comm.all_reduce(t, ReduceOp(torchcomms.RedOpType.PREMUL_SUM), False),
        ),
    ]
    if rank.rank == 0:
        calls += [
            (
                "input_tensor_list size must equal comm_size for scatter",
                lambda: comm.scatter(t, short, 0, False),
            ),
            (
                "output_tensor_list size must equal comm_size for gather",
                lambda: comm.gather(short, t, 0, False),
            ),
            ("output_size|comm_size", lambda: comm.gather_single(three, t, 0, False)),
        ]
    for message, call in calls:
        with pytest.raises(RuntimeError, match=message) as error:
            call()
        assert isinstance(error.value, torchcomms.CommError)
        assert not comm.is_aborted()
    with pytest.raises(ValueError, match="negative"):
        comm.all_to_all_v_single(two, two, [2] * n, [-1] * n, False)
    _sum(comm)


class Elsewhere(torch.Tensor):
    """As DTensor and FakeTensor are made: a tensor that keeps its elements in others."""

    @staticmethod
    def __new__(cls) -> Elsewhere:
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(cls, (4,), dtype=torch.float32)  # type: ignore[attr-defined]
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        raise NotImplementedError(function)


def refuses_what_has_no_memory(rank: Rank, backend: str) -> None:
    """Such tensors say that they are dense and on the CPU."""
    comm = rank.comm(backend)
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    cut = torch.ones(1 << 20)
    cut.untyped_storage().resize_(4)
    for wrong in (freed, cut, Elsewhere()):
        for call in (
            lambda t=wrong: comm.all_reduce(t, ReduceOp.SUM, False),
            lambda t=wrong: comm.broadcast(t, 0, True),
            lambda t=wrong: comm.send(t, 1 - rank.rank, False),
            lambda t=wrong: comm.all_gather([t, torch.ones(4)], torch.ones(t.shape), False),
        ):
            with pytest.raises(torchcomms.CommError, match=r"not in its storage.*\n.*plain tensor"):
                call()
    assert _sum(comm) == 3


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_tensors_without_memory(ranks: MakeRanks, backend: str) -> None:
    ranks(2).run(refuses_what_has_no_memory, backend)


def refuses_long_names(rank: Rank) -> None:
    comm = rank.comm(BACKEND)
    for make in (
        lambda name: rank.new_comm(BACKEND, name),
        lambda name: rank.new_comm("gloo", name),
        lambda name: comm.split([0, 1], name),
        comm.dup,
    ):
        with pytest.raises(torchcomms.CommError, match="at most 1024 bytes, and this one 1025"):
            make("n" * 1025)
    longest = rank.new_comm("gloo", "n" * 1024)
    part = longest.split([0, 1], "m" * 1024)
    assert _sum(longest) == _sum(part) == 3
    for one in (part, longest):
        one.finalize()


def test_names_have_a_limit(ranks: MakeRanks) -> None:
    ranks(2).run(refuses_long_names)
