"""Backend gloo: communicators that come, split, fail and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from gloo_ranks import Ranks, cases

import torchcomms

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0"
)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(4)
    yield made
    made.close()


@pytest.mark.parametrize("world", [3, 4])
def test_split(ranks: Ranks, world: int) -> None:
    for _ in range(2):
        ranks.run(cases.splits, ranks=range(world))


def test_several_of_one_name(ranks: Ranks) -> None:
    ranks.run(cases.same_name_again)
    ranks.run(cases.same_name_again, ranks=[2, 0])


def test_finalize(ranks: Ranks) -> None:
    ranks.run(cases.finalized)


def test_hints(ranks: Ranks) -> None:
    ranks.run(cases.hints, ranks=[0, 1])


def test_missing_rank_is_named(ranks: Ranks) -> None:
    texts = ranks.run(cases.missing_rank, ranks=[0, 1, 2])
    assert all("missing: 3" in text for text in texts)
    # Nothing of it is in the way of a second try.
    ranks.run(cases.missing_rank, ranks=[0, 1, 2])
    ranks.run(cases.missing_first, ranks=[1, 2, 3])


@pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
def test_rank_that_does_not_call(ranks: Ranks, async_op: bool) -> None:
    ranks.run(cases.late_collective, async_op, ranks=[0, 1, 2])


def test_message_that_does_not_come(ranks: Ranks) -> None:
    ranks.run(cases.late_receive, ranks=[0, 1])


def test_wrong_calls(ranks: Ranks) -> None:
    ranks.run(cases.wrong_calls)


@pytest.mark.skipif(torch.cuda.is_available(), reason="tensors of GPUs go by way of the host")
def test_cuda_is_refused(ranks: Ranks) -> None:
    (text,) = ranks.run(cases.on_cuda, ranks=[0])
    assert "no support for device 'cuda'" in text
