"""Ranks of their own: the stand-in stays in a process that has taken it."""

from __future__ import annotations

import atexit
from collections.abc import Iterator

import pytest
from harness.ranks import Pool


@pytest.fixture(scope="package")
def _pool() -> Iterator[Pool]:
    pool = Pool()
    atexit.register(pool.end)
    yield pool
    pool.close()
    atexit.unregister(pool.end)
