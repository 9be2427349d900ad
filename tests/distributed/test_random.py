"""Shapes, splits and whole programs that nobody thought of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from harness import Rank, Ranks
from harness.data import COMPLEX, same_bits
from harness.exchange import Exchange, run_exchange
from harness.matrix import DTYPES, makes_sense, prepared
from harness.operations import OPERATIONS, Arguments
from harness.reference import OPS
from harness.sequences import Step, run_program
from hypothesis import HealthCheck, given, settings

BACKEND = "ctran"
# The ranks stay from example to example, which is what the health check is about.
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LONG = settings(QUICK, max_examples=3000, derandomize=False)

worlds = st.sampled_from((1, 2, 3, 4, 7, 8))
# Mostly small, sometimes beyond what a slot or a round takes.
counts = st.one_of(st.integers(0, 40), st.integers(0, 5000), st.integers(0, 200_000))


def run_call(
    rank: Rank, operation: str, dtype: str, op: str | None, blocks: Any, in_place: bool
) -> list[str]:
    arguments = Arguments(DTYPES[dtype], op, 0, tuple(blocks), in_place)
    call = prepared(rank, operation, arguments, BACKEND)
    call.issue(False)
    return call.problems(same_bits)


@st.composite
def blocks_and_type(draw: st.DrawFn, *, reduces: bool) -> tuple[str, str | None, list[int]]:
    op = draw(st.sampled_from(OPS)) if reduces else None
    fits = [
        name
        for name in DTYPES
        if op is None or makes_sense({"operation": "all_reduce", "op": op, "dtype": name})
    ]
    size = draw(worlds)
    return draw(st.sampled_from(fits)), op, draw(st.lists(counts, min_size=size, max_size=size))


@pytest.mark.parametrize("operation", [n for n, o in OPERATIONS.items() if o.varying])
def test_any_sizes_of_blocks(ranks: Callable[[int], Ranks], operation: str) -> None:
    @QUICK
    @given(blocks_and_type(reduces=OPERATIONS[operation].reduces), st.booleans())
    def check(case: tuple[str, str | None, list[int]], in_place: bool) -> None:
        dtype, op, blocks = case
        for problems in ranks(len(blocks)).run(run_call, operation, dtype, op, blocks, in_place):
            assert not problems

    check()


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    size = draw(worlds)
    # Some ranks' rows fit into a slot, others' do not.
    of_pair = st.one_of(st.integers(0, 30), st.integers(0, 3000))
    rows = [[draw(of_pair) for _ in range(size)] for _ in range(size)]
    in_place = draw(st.booleans())
    if in_place:
        rows = [[rows[min(i, j)][max(i, j)] for j in range(size)] for i in range(size)]
    return Exchange(
        draw(st.sampled_from(tuple(DTYPES))), draw(st.sampled_from((1, 3, 64))), rows, in_place
    )


@QUICK
@given(exchange=exchanges())
def test_any_splits_between_pairs(ranks: Callable[[int], Ranks], exchange: Exchange) -> None:
    assert all(ranks(len(exchange.rows)).run(run_exchange, exchange, BACKEND))


@st.composite
def step(draw: st.DrawFn, size: int) -> Step:
    names = [name for name, operation in OPERATIONS.items() if operation.least <= size]
    name = draw(st.sampled_from(names))
    operation = OPERATIONS[name]
    dtype = draw(st.sampled_from(("float32", "int64", "bfloat16", "uint8", "complex64")))
    op = None
    if operation.reduces:
        op = draw(st.sampled_from(("SUM",) if DTYPES[dtype] in COMPLEX else ("SUM", "MAX")))
    count = draw(counts)
    return Step(
        operation=name,
        dtype=dtype,
        op=op,
        root=draw(st.integers(0, size - 1)),
        counts=(count,) * size,
        in_place=operation.in_place and draw(st.booleans()),
        async_op=draw(st.booleans()),
        waits=draw(st.integers(0, 3)),
    )


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, list[Step]]:
    size = draw(worlds)
    return size, draw(st.lists(step(size), min_size=1, max_size=25))


def check_program(ranks: Callable[[int], Ranks], program: tuple[int, list[Step]]) -> None:
    size, steps = program
    for problems in ranks(size).run(run_program, BACKEND, steps):
        assert not problems


@QUICK
@given(program=programs())
def test_any_program(ranks: Callable[[int], Ranks], program: tuple[int, list[Step]]) -> None:
    check_program(ranks, program)


@pytest.mark.full
@pytest.mark.timeout(3600)
@LONG
@given(program=programs())
def test_many_programs(ranks: Callable[[int], Ranks], program: tuple[int, list[Step]]) -> None:
    check_program(ranks, program)
