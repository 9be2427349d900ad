"""The collectives that a program may implement, and the sizes of their buffers in chunks."""

from __future__ import annotations

from mscclpp.language.source import Call

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Collective",
    "ReduceScatter",
    "SendRecv",
    "TestCollective",
]

MOST_RANKS = 1024  # of which the engine has plans


class Collective:
    """What a program computes.

    Args:
        num_ranks: the number of ranks.
        chunk_factor: chunks per part of a rank; the finest piece that a program can name.
        inplace: whether input and output are the same memory. A program in place uses one of the
            two buffers only: the other does not stand for it.
    """

    name = ""
    _input_parts_per_rank = False  # whether the input has one part for each rank, or one in all
    _output_parts_per_rank = False

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        call = Call(type(self).__name__)
        for what, value in (("num_ranks", num_ranks), ("chunk_factor", chunk_factor)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                call.fail(f"{what} must be a positive integer, not {value!r}")
        if num_ranks > MOST_RANKS:
            call.fail(f"{num_ranks} ranks: there are at most {MOST_RANKS}")
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = call.flag("inplace", inplace)

    @property
    def input_chunks(self) -> int:
        return self.chunk_factor * (self.num_ranks if self._input_parts_per_rank else 1)

    @property
    def output_chunks(self) -> int:
        return self.chunk_factor * (self.num_ranks if self._output_parts_per_rank else 1)


class AllReduce(Collective):
    """Every rank gets the reduction of all inputs."""

    name = "allreduce"
    _input_parts_per_rank = True
    _output_parts_per_rank = True


class AllGather(Collective):
    """Every rank gets the inputs of all, in the order of ranks."""

    name = "allgather"
    _output_parts_per_rank = True


class ReduceScatter(Collective):
    """Rank r gets part r of the reduction of all inputs."""

    name = "reducescatter"
    _input_parts_per_rank = True


class AllToAll(Collective):
    """Rank r gets part r of every input, in the order of ranks."""

    name = "alltoall"
    _input_parts_per_rank = True
    _output_parts_per_rank = True


class SendRecv(Collective):
    """One part goes from rank to rank, as the program says: no result is promised."""

    name = "sendrecv"


class TestCollective(Collective):
    """Buffers of any size, and no promise of a result: for trying things out."""

    __test__ = False  # pytest: no class of tests
    name = "test"

    def __init__(self, num_ranks: int, input_size: int, output_size: int) -> None:
        super().__init__(num_ranks, 1, False)
        for what, value in (("input_size", input_size), ("output_size", output_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                Call(type(self).__name__).fail(f"{what} must be a number of chunks, not {value!r}")
        self._sizes = (input_size, output_size)

    @property
    def input_chunks(self) -> int:
        return self._sizes[0]

    @property
    def output_chunks(self) -> int:
        return self._sizes[1]
