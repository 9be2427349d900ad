"""Processes that act as the ranks of tests, and what the tests compare results with.

A test asks for ranks (the `ranks` and `fresh_ranks` fixtures) and hands them a function, which runs
on all of them with a `Rank` as its first argument:

    def sum_of_ones(rank: Rank, count: int) -> float:
        tensor = torch.ones(count)
        rank.comm("ctran").all_reduce(tensor, ReduceOp.SUM, async_op=False)
        return tensor[0].item()

    def test_sum(ranks):
        assert ranks(3).run(sum_of_ones, 10) == [3.0] * 3

The processes and their communicators stay from test to test, so that a case costs milliseconds.
They are forked from a server (multiprocessing's) that has imported torch and has one thread: as
clean as a fresh interpreter, in a hundredth of the time. What needs an interpreter of its own from
start to end is in `harness.programs`.
"""

from harness.ranks import Died, Job, Outcome, Raised, Ranks, RanksFailed, Returned
from harness.worker import Rank

__all__ = ["Died", "Job", "Outcome", "Raised", "Rank", "Ranks", "RanksFailed", "Returned"]
