"""Backend gloo when something ends: a wait, a rank, a communicator with work under way."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from gloo_ranks import Ranks, cases

import torchcomms

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0"
)


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = Ranks(3)
    yield made
    made.close()


@pytest.mark.full  # a survivor may first have to wait for Gloo's own deadlines
def test_interrupt_drop_and_kill(ranks: Ranks) -> None:
    # In one test, because starting the processes is what takes long.
    ranks.run(cases.interrupted, ranks=[0, 1])
    ranks.run(cases.dropped, ranks=[0, 1])
    ranks.run(cases.killed, dying={2: signal.SIGKILL})


def test_error_that_nobody_sees(ranks: Ranks) -> None:
    ranks.run(cases.unseen, ranks=[0, 1], dying={0: signal.SIGABRT})
