"""Fixtures that tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from harness.ranks import Pool, Ranks, open_pool

# A shell's background jobs ignore Ctrl-C, and so would every program that the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def _pool() -> Iterator[Pool]:
    with open_pool() as pool:
        yield pool


@pytest.fixture
def ranks(_pool: Pool) -> Callable[[int], Ranks]:
    """`ranks(size)`: that many ranks, with the communicators they had in earlier tests."""
    return _pool.ranks


@pytest.fixture
def fresh_ranks() -> Iterator[Callable[[int], Ranks]]:
    """`fresh_ranks(size)`: ranks of this test alone, which may break them."""
    pools: list[Pool] = []

    def make(size: int) -> Ranks:
        pools.append(Pool())
        return pools[-1].ranks(size)

    yield make
    for pool in pools:
        pool.end()
