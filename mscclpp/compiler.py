"""From a function that writes a program to an algorithm that is proved right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mscclpp import engine
from mscclpp.language.plan import Plan
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.source import ProgramError
from mscclpp.language.utils import AlgoSpec
from mscclpp.language.writer import write
from mscclpp.proof import NotProved, Report, lower, prove

__all__ = ["Algorithm", "Registration", "compile"]


_MOST = 2**63 - 1  # bytes of which the engine knows


class Registration:
    """An algorithm that serves calls, until `remove` or the end of a `with` block."""

    def __init__(self, number: int) -> None:
        self._number = number

    def remove(self) -> None:
        """Takes the algorithm away: it is chosen no more."""
        engine.call("remove", number=self._number)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Algorithm:
    """A compiled program. `compile` makes it."""

    def __init__(
        self, program: CollectiveProgram, spec: AlgoSpec | None, rank: int | None, verify: bool
    ) -> None:
        self.name = program.name
        self.collective = program.collective.name
        self.rank = rank
        self.tags: dict[str, int] = dict(spec.tags) if spec is not None else {}
        self.program = program
        self.plan: Plan = program.plan()
        self.message_size_range = (program.min_message_size, program.max_message_size)
        self.report: Report | None = None  # None: it was not verified
        if verify:
            self.report = prove(program)
            if not self.report:
                raise NotProved(self.report)

    def __repr__(self) -> str:
        return f"<{self.collective} {self.name!r} of {self.program.num_ranks} ranks>"

    def is_dsl_algorithm(self) -> bool:
        """Whether it was written in `mscclpp.language`."""
        return True

    def is_native_algorithm(self) -> bool:
        """Whether it was written in C++."""
        return False

    def set_message_size_range(self, min_message_size: int, max_message_size: int) -> None:
        """Which messages it is for, in bytes. Raises ValueError."""
        if not 0 <= min_message_size <= max_message_size < 2**64:
            raise ValueError(f"no message has {min_message_size} to {max_message_size} bytes")
        self.message_size_range = (min_message_size, max_message_size)

    def register(self, communicator: str = "", *, prefer: bool = False) -> Registration:
        """Makes it one of the algorithms for calls of its collective over so many ranks, of
        messages in its range, on torchcomms' communicators of this process, from now on.

        It serves a call if it is preferred, if a hint names it (`plan:` and its name), or if it was
        the fastest when it was measured (`comm.tune`).

        All ranks have to do so before the same call. Inputs and outputs that other ranks reach are
        copied through memory that all have. The calls have any count, type and reduction.

        Args:
            communicator: of that name only.
            prefer: it comes first, except before what the hints of a call name.

        Raises:
            ValueError: it is wrong, as it may be if it was not verified.
            CannotVerify: it says what no plan can say yet.
            EngineError: it cannot be executed here.
        """
        plan = engine.call("stage", plan=lower(self.program))
        # The engine counts what a rank has for one other, or for all.
        parts = 1 if self.collective == "allreduce" else self.program.num_ranks
        least, most = self.message_size_range
        number = engine.call(
            "register",
            plan=plan,
            communicator=communicator,
            min_bytes=min(-(-least // parts), _MOST),
            max_bytes=min(most // parts, _MOST),
            prefer=prefer,
        )
        return Registration(number)

    def to_json(self, indent: int | None = 2) -> str:
        """The execution plan as JSON, which MSCCL++'s executor takes, too."""
        return write(self.plan, indent)


def compile(
    algo: Callable[..., CollectiveProgram] | CollectiveProgram,
    algo_spec: AlgoSpec | None = None,
    rank: int | None = None,
    *,
    verify: bool = True,
    **kwargs: Any,
) -> Algorithm:
    """Compiles a program, and proves it right: for all ranks and thread blocks, any count of
    elements, executed again and again.

    Args:
        algo: the program, or a function that writes it; that is called with `algo_spec`, if there
            is one, and `kwargs`.
        rank: whose algorithm it is. All ranks' programs are compiled whatever it is.
        verify: False to do without the proof.

    Raises:
        NotProved: the program is wrong; the message has the line, the rank, the thread block, the
            chunk and the shortest run to it.
        CannotVerify: it says what the verifier does not know yet, and may be right or wrong.
        ProgramError: it makes no sense.
    """
    program = algo
    if not isinstance(program, CollectiveProgram):
        arguments = () if algo_spec is None else (algo_spec,)
        program = algo(*arguments, **kwargs)  # type: ignore[operator]
        if not isinstance(program, CollectiveProgram):
            raise TypeError(f"{algo!r} must return a CollectiveProgram, not {program!r}")
    elif kwargs:
        raise TypeError(f"a program that is written already takes no {', '.join(kwargs)}")
    if rank is not None and not 0 <= rank < program.num_ranks:
        raise ProgramError(
            f"there is no rank {rank}: the program has {program.num_ranks}", program.location
        )
    return Algorithm(program, algo_spec, rank, verify)
