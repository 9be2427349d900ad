"""objcol: collectives of Python objects."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import objcol

MakeRanks = Callable[[int], Ranks]
SIZE = 3


class Custom:
    """Something that a receiver has to run code for."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


def of(rank: int) -> dict[str, Any]:
    """Of another size on every rank."""
    some = {"rank": rank, "none": None, "list": [1, 2.5, (rank,)]}
    return {**some, "text": "x" * (100 * rank), "bytes": b"x" * rank}


def exchanges(rank: Rank, backend: str) -> None:
    comm = rank.comm(backend)
    everything: list[Any] = [None] * SIZE
    objcol.all_gather_object(comm, everything, of(rank.rank))
    assert everything == [of(r) for r in range(SIZE)]
    tensors: list[Any] = [None] * SIZE
    objcol.all_gather_object(comm, tensors, torch.full((2, rank.rank), 1.5), weights_only=True)
    assert [t.shape for t in tensors] == [(2, r) for r in range(SIZE)]
    gathered: list[Any] | None = [None] * SIZE if rank.rank == 1 else None
    objcol.gather_object(comm, of(rank.rank), 1, gathered)
    assert gathered is None or gathered == [of(r) for r in range(SIZE)]
    told = [of(7), "word", 3] if rank.rank == 2 else [None] * 3
    objcol.broadcast_object_list(comm, told, 2)
    assert told == [of(7), "word", 3]
    own: list[Any] = [None]
    given = [of(r) for r in range(SIZE)] if rank.rank == 0 else None
    objcol.scatter_object_list(comm, 0, own, given)
    assert own == [of(rank.rank)]
    if rank.rank == 0:
        objcol.send_object_list(comm, [of(1), None], 2)
        objcol.send_object_list(comm, [], 2)
    if rank.rank == 2:
        received: list[Any] = [0, 0]
        objcol.recv_object_list(comm, received, 0)
        assert received == [of(1), None]
        objcol.recv_object_list(comm, nothing := [], 0)
        assert nothing == []


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_objects_arrive(ranks: MakeRanks, backend: str) -> None:
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"built without {backend}")
    ranks(SIZE).run(exchanges, backend)


def brings_a_list_everywhere(rank: Rank) -> None:
    comm = rank.comm("ctran")
    gathered: list[Any] = ["mine"] * (SIZE if rank.rank != 2 else 1)
    objcol.gather_object(comm, rank.rank, 0, gathered)
    assert gathered == (list(range(SIZE)) if rank.rank == 0 else ["mine"] * len(gathered))


def test_a_list_is_looked_at_by_the_root_alone(ranks: MakeRanks) -> None:
    ranks(SIZE).run(brings_a_list_everywhere)


def trusts_nobody(rank: Rank) -> None:
    comm = rank.comm("ctran")
    everything: list[Any] = [None] * SIZE
    mine: Any = Custom(5) if rank.rank == 1 else 5
    with pytest.raises(pickle.UnpicklingError, match=r"rank 1 sent .*weights_only=False"):
        objcol.all_gather_object(comm, everything, mine)
    assert everything == [None] * SIZE
    objcol.all_gather_object(comm, everything, mine, weights_only=False)
    assert everything == [5, Custom(5), 5]
    told = [Custom(1)] if rank.rank == 0 else [None]
    if rank.rank == 0:
        objcol.broadcast_object_list(comm, told, 0)
    else:
        with pytest.raises(pickle.UnpicklingError, match="rank 0 sent"):
            objcol.broadcast_object_list(comm, told, 0)


def test_code_runs_only_when_trusted(ranks: MakeRanks) -> None:
    ranks(SIZE).run(trusts_nobody)


def loads_while_another_thread_does(rank: Rank) -> None:
    comms = [rank.new_comm("ctran", f"of thread {number}") for number in range(2)]
    load, begun, ended = torch.load, threading.Event(), threading.Event()

    def overlapping(*args: Any, **options: Any) -> Any:
        if threading.current_thread().name.startswith("other"):
            begun.set()
            assert ended.wait(60)
        return load(*args, **options)

    theirs: list[Any] = [None] * SIZE
    ours: list[Any] = [None] * SIZE
    with (
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(1, thread_name_prefix="other") as other,
    ):
        patch.setattr(torch, "load", overlapping)
        loading = other.submit(objcol.all_gather_object, comms[0], theirs, b"")
        try:
            assert begun.wait(60)
            objcol.all_gather_object(comms[1], ours, b"")
        finally:
            ended.set()
        loading.result()
    assert theirs == ours == [b""] * SIZE


def test_threads_load_at_the_same_time(ranks: MakeRanks) -> None:
    ranks(SIZE).run(loads_while_another_thread_does)


def pickles(rank: Rank) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHCOMMS_SERIALIZATION", "pickle")
        exchanges(rank, "ctran")
        everything: list[Any] = [None] * SIZE
        objcol.all_gather_object(rank.comm("ctran"), everything, Custom(rank.rank))
        assert everything == [Custom(r) for r in range(SIZE)]
        patch.setenv("TORCHCOMMS_SERIALIZATION", "xml")
        with pytest.raises(ValueError, match="not xml"):
            objcol.all_gather_object(rank.comm("ctran"), everything, 1)


def test_pickle_by_choice(ranks: MakeRanks) -> None:
    ranks(SIZE).run(pickles)


def miscounts(rank: Rank) -> None:
    comm = rank.comm("ctran")
    with pytest.raises(ValueError, match=r"object_list must have 3 entries.*got 2"):
        objcol.all_gather_object(comm, [None, None], 1)
    with pytest.raises(ValueError, match="object_gather_list"):
        objcol.gather_object(comm, 1, rank.rank, None)
    with pytest.raises(ValueError, match="an entry"):
        objcol.scatter_object_list(comm, 0, [])
    with pytest.raises(ValueError, match="got None"):
        objcol.scatter_object_list(comm, rank.rank, [None])
    none: Any = None
    text: Any = "abc"
    for name, call in (
        ("object_list", lambda: objcol.all_gather_object(comm, none, 1)),
        ("object_list", lambda: objcol.broadcast_object_list(comm, none, 0)),
        ("object_list", lambda: objcol.broadcast_object_list(comm, text, 0)),
        ("object_list", lambda: objcol.send_object_list(comm, none, 0)),
        ("object_list", lambda: objcol.recv_object_list(comm, none, 0)),
        ("object_gather_list", lambda: objcol.gather_object(comm, 1, rank.rank, text)),
        ("scatter_object_output_list", lambda: objcol.scatter_object_list(comm, 0, none)),
        (
            "scatter_object_input_list",
            lambda: objcol.scatter_object_list(comm, rank.rank, [None], text),
        ),
    ):
        with pytest.raises(TypeError, match=f"{name} must be a list, not (NoneType|str)"):
            call()
    comm.barrier(False)


def test_wrong_lists_are_refused_before_anything_is_sent(ranks: MakeRanks) -> None:
    ranks(SIZE).run(miscounts)
