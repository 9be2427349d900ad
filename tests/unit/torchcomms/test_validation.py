"""What a wrong argument is told, before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import torchcomms
from torchcomms import CommError, RedOpType, ReduceOp, TorchComm, _comms

SIZE = 4
SUM = ReduceOp.SUM
Make = Callable[..., TorchComm]
Wrong = Callable[[TorchComm], object]
Every = Callable[[TorchComm, torch.Tensor], list[Callable[[], object]]]


def t(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def each(count: int, size: int = SIZE) -> list[torch.Tensor]:
    return [t(count) for _ in range(size)]


RANGES: list[tuple[str, Callable[[TorchComm, int], object]]] = [
    ("dst", lambda c, r: c.send(t(2), r, False)),
    ("src", lambda c, r: c.recv(t(2), r, False)),
    ("root", lambda c, r: c.broadcast(t(2), r, False)),
    ("root", lambda c, r: c.reduce(t(2), r, SUM, False)),
    ("root", lambda c, r: c.scatter(t(2), each(2), r, False)),
    ("root", lambda c, r: c.gather(each(2), t(2), r, False)),
    ("root", lambda c, r: c.gather_single(t(8), t(2), r, False)),
]


@pytest.mark.parametrize("rank", [-1, SIZE, 2**40, -(2**40), 2**70])
@pytest.mark.parametrize(("what", "call"), RANGES)
def test_ranks_out_of_range(
    fake: Make, what: str, call: Callable[[TorchComm, int], object], rank: int
) -> None:
    with pytest.raises(CommError, match=rf"^{what} must be in range \[0, 4\), but got {rank}$"):
        call(fake(), rank)


def test_messages_of_a_batch_are_checked_as_they_are_added(fake: Make) -> None:
    batch = fake().batch_op_create()
    for name, add in {"dst": batch.send, "src": batch.recv}.items():
        for rank in (-1, SIZE, 2**40):
            message = rf"{name} must be in range \[0, 4\), but got {rank}$"
            with pytest.raises(CommError, match=message):
                add(t(2), rank)
        with pytest.raises(CommError, match="tag must fit into 32 bits, but is 9223"):
            add(t(2), 0, tag=2**63)
        with pytest.raises(CommError, match="contiguous"):
            add(t(4)[::2], 0)
    assert batch.ops == []
    batch.ops = [_comms.P2POp(_comms.P2POpType.SEND, t(1), SIZE)]
    with pytest.raises(CommError, match=r"dst must be in range \[0, 4\), but got 4"):
        batch.issue(False)


SIZES: list[tuple[str, Wrong]] = [
    (
        "tensor_list size must equal comm_size for all_gather",
        lambda c: c.all_gather(each(2, 3), t(2), False),
    ),
    (
        "All tensors in tensor_list must have same size as input tensor",
        lambda c: c.all_gather([*each(2, 3), t(3)], t(2), False),
    ),
    (
        "tensor_list size must equal comm_size for all_gather_v",
        lambda c: c.all_gather_v(each(2, 5), t(2), False),
    ),
    (
        "Output tensor size must equal input tensor size for all_gather_v",
        lambda c: c.all_gather_v([t(1), t(2), t(3), t(4)], t(3), False),
    ),
    (
        "Output tensor size must be input_size * comm_size for all_gather_single",
        lambda c: c.all_gather_single(t(9), t(2), False),
    ),
    (
        "input_list size must equal comm_size for reduce_scatter",
        lambda c: c.reduce_scatter(t(2), each(2, 3), SUM, False),
    ),
    (
        "All input tensors must have same size as output tensor",
        lambda c: c.reduce_scatter(t(2), [t(3), *each(2, 3)], SUM, False),
    ),
    (
        "input_list size must equal comm_size for reduce_scatter_v",
        lambda c: c.reduce_scatter_v(t(2), [], SUM, False),
    ),
    (
        "Output tensor size must equal input tensor size for reduce_scatter_v",
        lambda c: c.reduce_scatter_v(t(2), [t(1), t(1), t(1), t(1)], SUM, False),
    ),
    (
        "Input tensor size must be output_size * comm_size for reduce_scatter_single",
        lambda c: c.reduce_scatter_single(t(2), t(2), SUM, False),
    ),
    (
        "Input and output tensors must have same size for all_to_all_single",
        lambda c: c.all_to_all_single(t(8), t(4), False),
    ),
    (
        "Tensor size must be divisible by comm_size for all_to_all_single",
        lambda c: c.all_to_all_single(t(6), t(6), False),
    ),
    (
        "input_split_sizes length must equal comm_size for all_to_all_v_single",
        lambda c: c.all_to_all_v_single(t(4), t(4), [1, 1, 1, 1], [4], False),
    ),
    (
        "output_split_sizes length must equal comm_size for all_to_all_v_single",
        lambda c: c.all_to_all_v_single(t(4), t(4), [4], [1, 1, 1, 1], False),
    ),
    (
        "Sum of input_split_sizes exceeds input tensor size for all_to_all_v_single",
        lambda c: c.all_to_all_v_single(t(4), t(4), [1, 1, 1, 1], [1, 1, 1, 2], False),
    ),
    (
        "Sum of output_split_sizes exceeds output tensor size for all_to_all_v_single",
        lambda c: c.all_to_all_v_single(t(4), t(4), [2, 1, 1, 1], [1, 1, 1, 1], False),
    ),
    (
        "Sum of input_split_sizes exceeds input tensor size for all_to_all_v_single",
        lambda c: c.all_to_all_v_single(
            t(4), t(4), [1, 1, 1, 1], [2**63 - 1, 1, 2**63 - 1, 2], False
        ),
    ),
    (
        "Rows of input and output must have same size for all_to_all_v_single",
        lambda c: c.all_to_all_v_single(t(4, 2), t(4), [1, 1, 1, 1], [1, 1, 1, 1], False),
    ),
    (
        "input tensor must have at least one dimension for all_to_all_v_single",
        lambda c: c.all_to_all_v_single(t(4), torch.tensor(0.0), [1, 1, 1, 1], [0, 0, 0, 1], False),
    ),
    (
        "What a rank sends to itself must have one size",
        lambda c: c.all_to_all_v_single(t(4), t(4), [1, 1, 1, 1], [1, 0, 1, 1], False),
    ),
    (
        "Tensor list sizes must equal comm_size for all_to_all",
        lambda c: c.all_to_all(each(2), each(2, 3), False),
    ),
    (
        "Tensor list sizes must equal comm_size for all_to_all",
        lambda c: c.all_to_all(each(2, 5), each(2), False),
    ),
    (
        "What a rank sends to itself must have same size",
        lambda c: c.all_to_all(each(2), each(3), False),
    ),
    (
        "input_tensor_list size must equal comm_size for scatter",
        lambda c: c.scatter(t(2), each(2, 3), 1, False),
    ),
    (
        "All input tensors must have same size as output tensor",
        lambda c: c.scatter(t(2), each(3), 1, False),
    ),
    (
        "output_tensor_list size must equal comm_size for gather",
        lambda c: c.gather([], t(2), 1, False),
    ),
    (
        "All output tensors must have same size as input tensor",
        lambda c: c.gather(each(3), t(2), 1, False),
    ),
    (
        "Output tensor size must be input_size * comm_size for gather_single",
        lambda c: c.gather_single(t(2), t(2), 1, False),
    ),
    (
        "Cannot issue empty batch operation",
        lambda c: c.batch_op_create().issue(False),
    ),
    (
        "PREMUL_SUM needs a factor",
        lambda c: c.all_reduce(t(2), ReduceOp(RedOpType.PREMUL_SUM), False),
    ),
]


@pytest.mark.parametrize(("message", "wrong"), SIZES)
def test_sizes(fake: Make, message: str, wrong: Wrong) -> None:
    with pytest.raises(CommError, match="^" + re.escape(message)):
        wrong(fake())


def test_lists_matter_at_the_root_alone(fake: Make) -> None:
    comm = fake(rank=1)
    for nothing in ([], None, each(7)):
        comm.scatter(t(2), nothing, 0, False)
        comm.gather(nothing, t(2), 0, False)


INTS = t(8, dtype=torch.int32)
TYPES: list[tuple[str, Wrong]] = [
    ("all_gather", lambda c: c.all_gather([*each(2, 3), INTS[:2]], t(2), False)),
    ("all_gather_v", lambda c: c.all_gather_v([*each(2, 3), INTS[:2]], t(2), False)),
    ("all_gather_single", lambda c: c.all_gather_single(t(8), INTS[:2], False)),
    ("reduce_scatter", lambda c: c.reduce_scatter(INTS[:2], each(2), SUM, False)),
    ("reduce_scatter_v", lambda c: c.reduce_scatter_v(INTS[:2], each(2), SUM, False)),
    ("reduce_scatter_single", lambda c: c.reduce_scatter_single(INTS[:2], t(8), SUM, False)),
    ("all_to_all_single", lambda c: c.all_to_all_single(t(8), INTS, False)),
    (
        "all_to_all_v_single",
        lambda c: c.all_to_all_v_single(t(8), INTS, [2] * 4, [2] * 4, False),
    ),
    ("all_to_all", lambda c: c.all_to_all(each(2), [*each(2, 3), INTS[:2]], False)),
    ("all_to_all", lambda c: c.all_to_all([*each(2, 3), INTS[:2]], each(2), False)),
    ("scatter", lambda c: c.scatter(INTS[:2], each(2), 1, False)),
    ("gather", lambda c: c.gather(each(2), INTS[:2], 1, False)),
    ("gather_single", lambda c: c.gather_single(t(8), INTS[:2], 1, False)),
]


@pytest.mark.parametrize(("op", "wrong"), TYPES)
def test_tensors_of_a_call_have_one_dtype(fake: Make, op: str, wrong: Wrong) -> None:
    message = (
        rf"All tensors of {op} must have the same dtype, but got (Float and Int|Int and Float)"
    )
    with pytest.raises(CommError, match=message) as raised:
        wrong(fake())
    assert raised.value.op == op


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (t(8, 2)[:, 0], "Tensor must be contiguous for fake operations"),
        (t(1).expand(8), "Tensor must be contiguous for fake operations"),
        (t(8).to_sparse(), "Tensor must be dense for fake operations"),
        (torch.zeros(8, dtype=torch.complex64).conj(), "conjugation or negation"),
        (torch.zeros(8, device="meta"), "Expected tensor on cpu but found tensor on meta"),
    ],
    ids=["strided", "expanded", "sparse", "conjugated", "meta"],
)
def test_tensors_are_usable(
    fake: Make, every_operation: Every, bad: torch.Tensor, message: str
) -> None:
    for call in every_operation(fake(), bad):
        with pytest.raises(CommError, match=message):
            call()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_are_plain(fake: Make, every_operation: Every) -> None:
    nested = torch._nested_tensor_from_tensor_list([t(3), t(5)])
    quantized = torch._empty_affine_quantized([8], scale=1.0, zero_point=0, dtype=torch.qint8)
    for bad, message in ((nested, "Tensor must be dense"), (quantized, "int_repr")):
        for call in every_operation(fake(), bad):
            with pytest.raises(CommError, match=message):
                call()


def test_tensors_are_on_the_device_of_the_communicator(fake: Make, every_operation: Every) -> None:
    comm = fake(device=torch.device("cuda", 1))
    assert comm.get_device() == torch.device("cuda", 1)
    for call in every_operation(comm, t(8)):
        with pytest.raises(CommError, match="Expected tensor on cuda but found tensor on cpu"):
            call()


def test_overlap_other_than_in_place(fake: Make) -> None:
    comm = fake(rank=1)
    whole = t(8)
    comm.all_gather_single(whole, whole[2:4], False)
    comm.reduce_scatter_single(whole[2:4], whole, SUM, False)
    comm.gather_single(whole, whole[2:4], 1, False)
    comm.all_to_all_single(whole, whole, False)
    long = t(12)
    for call in (
        lambda: comm.all_gather_single(whole, whole[:2], False),
        lambda: comm.reduce_scatter_single(whole[1:3], whole, SUM, False),
        lambda: comm.gather_single(whole, whole[6:], 1, False),
        lambda: comm.all_to_all_single(long[:8], long[4:], False),
    ):
        with pytest.raises(CommError, match=r"overlap: \[0x\w+, 0x\w+\) and \[0x\w+, 0x\w+\)"):
            call()


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([0, 2], "Current rank 1 is not included in the provided ranks list"),
        ([1, 1], "Rank 1 appears multiple times in ranks"),
        ([1, 4], "Invalid rank 4 in ranks. Valid ranks are 0 to 3"),
        ([1, 2**40], f"Invalid rank {2**40} in ranks. Valid ranks are 0 to 3"),
        ([-1, 1], "Invalid rank -1 in ranks. Valid ranks are 0 to 3"),
        ([[0, 1], [1, 2]], "Rank 1 appears multiple times in ranks"),
    ],
)
def test_split(fake: Make, ranks: list[int], message: str) -> None:
    with pytest.raises(CommError, match="^" + re.escape(message)):
        fake(rank=1).split(ranks, "part")


RANKS = r"argument '%s' must be a list of ranks, or a list of such lists, but is or has a %s$"
CALLS: list[tuple[str, Wrong]] = [
    (RANKS % ("ranks", "str"), lambda c: c.split("01")),  # type: ignore[arg-type]
    (RANKS % ("ranks", "int"), lambda c: c.split(1)),  # type: ignore[arg-type]
    (RANKS % ("ranks", "float"), lambda c: c.split([0, 1.0])),  # type: ignore[list-item]
    (RANKS % ("ranks", "NoneType"), lambda c: c.split([None])),  # type: ignore[list-item]
    (RANKS % ("rank_groups", "str"), lambda c: c.split(rank_groups=[[0], "1"])),  # type: ignore[list-item]
    (RANKS % ("rank_groups", "int"), lambda c: c.split(rank_groups=[[0], 1])),  # type: ignore[list-item]
    (
        r"all_reduce\(\): argument 'tensor' must be Tensor, not list",
        lambda c: c.all_reduce([1.0], SUM, False),  # type: ignore[arg-type]
    ),
    (
        r"all_reduce\(\): argument 'op' must be ReduceOp, not str",
        lambda c: c.all_reduce(t(2), "sum", False),  # type: ignore[arg-type]
    ),
    (
        r"all_reduce\(\) missing required argument 'async_op'",
        lambda c: c.all_reduce(t(2), SUM),  # type: ignore[call-arg]
    ),
    (
        r"all_reduce\(\) got an unexpected keyword argument 'tenser'",
        lambda c: c.all_reduce(tenser=t(2), op=SUM, async_op=False),  # type: ignore[call-arg]
    ),
    (
        r"all_reduce\(\) got multiple values for argument 'op'",
        lambda c: c.all_reduce(t(2), SUM, False, op=SUM),  # type: ignore[misc]
    ),
    (
        r"barrier\(\) takes at most 3 positional arguments \(4 given\)",
        lambda c: c.barrier(False, None, None, None),  # type: ignore[misc]
    ),
    (
        r"send\(\): argument 'dst' must be int, not str",
        lambda c: c.send(t(2), "1", False),  # type: ignore[arg-type]
    ),
    (
        r"all_gather\(\): argument 'tensor_list' must be a list of Tensors, not Tensor",
        lambda c: c.all_gather(t(8), t(2), False),  # type: ignore[arg-type]
    ),
    (
        r"all_gather\(\): argument 'tensor_list' must be a list of Tensors",
        lambda c: c.all_gather([t(2), None], t(2), False),  # type: ignore[list-item]
    ),
    (
        r"all_to_all_v_single\(\): argument 'output_split_sizes' must be a list of ints",
        lambda c: c.all_to_all_v_single(t(4), t(4), [1.0], [4], False),  # type: ignore[list-item]
    ),
    (
        r"barrier\(\): argument 'hints' must be a dict of str to str",
        lambda c: c.barrier(False, hints={"a": 1}),  # type: ignore[dict-item]
    ),
    (
        r"^hints must be a dict of str to str, not int$",
        lambda c: c.set_hints(3),  # type: ignore[arg-type]
    ),
    (
        r"^hint a must be a str, not int$",
        lambda c: c.split([1], "x", hints={"a": 1}),  # type: ignore[dict-item]
    ),
    (
        r"register_pre_hook\(\): argument 'callback' must be callable, not int$",
        lambda c: c.register_pre_hook(3),  # type: ignore[arg-type]
    ),
    (
        r"register_abort_hook\(\): argument 'callback' must be callable, not NoneType$",
        lambda c: c.register_abort_hook(None),  # type: ignore[arg-type]
    ),
    (
        r"add_done_callback\(\): argument 'callback' must be callable, not str$",
        lambda c: c.barrier(False).add_done_callback("f"),  # type: ignore[arg-type]
    ),
    (
        r"new_window\(\): argument 'tensor' must be Tensor, not list$",
        lambda c: c.new_window([1.0]),  # type: ignore[arg-type]
    ),
    (
        r"put\(\): argument 'tensor' must be Tensor, not int$",
        lambda c: c.window_allocate(8).put(1, 0, 0, False),  # type: ignore[call-overload]
    ),
    (
        r"tensor_register\(\): argument 'tensor' must be Tensor, not NoneType$",
        lambda c: c.tensor_register(None),  # type: ignore[arg-type]
    ),
    (
        r"send\(\): argument 'tensor' must be Tensor, not list$",
        lambda c: c.batch_op_create().send([1.0], 0),  # type: ignore[arg-type]
    ),
    (
        r"all_gather_p_init\(\): argument 'output' must be Tensor, not int$",
        lambda c: c.all_gather_p_init(3),  # type: ignore[arg-type]
    ),
    (
        r"timeout must be datetime.timedelta, not int",
        lambda c: c.barrier(False, timeout=3),  # type: ignore[arg-type]
    ),
    (
        r"barrier\(\): argument 'options' must be the options of this method",
        lambda c: c.barrier(False, options={}),  # type: ignore[arg-type]
    ),
]


@pytest.mark.parametrize(("message", "wrong"), CALLS)
def test_calls_of_another_shape(fake: Make, message: str, wrong: Wrong) -> None:
    with pytest.raises(TypeError, match=message):
        wrong(fake())


NEW_COMM = {
    "argument 'backend' must be str, not NoneType": {"backend": None},
    "argument 'name' must be str, not int": {"name": 3},
    "argument 'store' must be torch.distributed.Store, not str": {"store": "x"},
    "argument 'options' must be CommOptions, not dict": {"options": {}},
    "device": {"device": 3.5},
    "timeout must be datetime.timedelta, not int": {"timeout": 3},
    "hints must be a dict of str to str, not list": {"hints": []},
}


@pytest.mark.parametrize("message", NEW_COMM)
def test_arguments_of_new_comm(message: str) -> None:
    right = {"backend": "fake", "device": "cpu"}
    with pytest.raises(TypeError, match=message) as raised:
        torchcomms.new_comm(**{**right, **NEW_COMM[message]})  # type: ignore[arg-type]
    assert "incompatible function arguments" not in str(raised.value)


def test_negative_split_sizes(fake: Make) -> None:
    with pytest.raises(ValueError, match="'input_split_sizes' has a negative size"):
        fake().all_to_all_v_single(t(4), t(4), [1] * 4, [-1, 1, 1, 1], False)
    with pytest.raises(ValueError, match="'output_split_sizes' has a size beyond 64 bits"):
        fake().all_to_all_v_single(t(4), t(4), [2**70, 1, 1, 1], [1] * 4, False)
