"""The table of NCCL's ways that `torchcomms tune --backend nccl` writes."""

from __future__ import annotations

from typing import Any

from torchcomms.select import _nccl


def row(collective: str, nbytes: int, **us: float) -> dict[str, Any]:
    ways = {way.replace("_", "/"): time for way, time in us.items()}
    return {"collective": collective, "bytes": nbytes, "us": ways}


def test_neighbours_that_are_alike_are_one_line() -> None:
    rows = [
        row("all_reduce", 65536, own=9, tree_ll=5, ring_simple=8),
        row("all_reduce", 1024, own=9, tree_ll=5, ring_simple=8),
        row("all_reduce", 1 << 20, own=9, tree_ll=8, ring_simple=5),
    ]
    assert _nccl.table(rows, 1, 8).splitlines()[1:] == [
        "all_reduce, 0, 262144, tree, ll, , 1, 8",
        "all_reduce, 262145, , ring, simple, , 1, 8",
    ]


def test_what_is_not_faster_than_nccl_by_itself_is_left_out() -> None:
    rows = [
        row("broadcast", 1024, own=10, ring_ll=9.9),
        row("broadcast", 4096, own=10, ring_ll=5),
        row("broadcast", 16384, own=10, ring_ll=11),
    ]
    assert _nccl.table(rows, 2, 16).splitlines()[1:] == ["broadcast, 2049, 8192, ring, ll, , 2, 16"]


def test_bytes_are_those_of_the_full_buffer() -> None:
    rows = [row("all_gather", 1024, own=9, ring_ll=5), row("all_gather", 4096, own=5, ring_ll=9)]
    assert _nccl.table(rows, 1, 8).splitlines()[1:] == ["all_gather, 0, 16384, ring, ll, , 1, 8"]
