"""Fixtures that tests share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from harness.ranks import Pool, Ranks, open_pool

# A shell's background jobs ignore Ctrl-C, and so would every program that the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NO_TIME = "no time is left for tests: TEST_DEADLINE"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Bounds how long a slow machine takes; what is left out is told below."""
    if time.time() > float(os.environ.get("TEST_DEADLINE") or "inf"):
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if left := sum(NO_TIME in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"LEFT OUT, for lack of time: {left} tests")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests compile and prove is not left in the user's.

    All workers and their ranks share it: compilers take seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "MSCCLPP_CACHE_DIR" not in os.environ:
            own = tmp_path_factory.getbasetemp()
            shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
            patch.setenv("MSCCLPP_CACHE_DIR", str(shared / "mscclpp"))
        yield


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
