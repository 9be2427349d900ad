"""Ranks of their own: the stand-in stays in a process that has taken it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.ranks import Pool, open_pool


@pytest.fixture(scope="package")
def _pool() -> Iterator[Pool]:
    with open_pool() as pool:
        yield pool
