"""From a function that writes a program to an algorithm that is proved right."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mscclpp import _runtime, engine
from mscclpp.algorithm import KINDS, Algorithm, Constraint, gpu_hints
from mscclpp.language.plan import Plan
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.source import ProgramError
from mscclpp.language.types import ReduceOperationType
from mscclpp.language.utils import AlgoSpec
from mscclpp.language.writer import write
from mscclpp.proof import (
    NotProved,
    Report,
    lower_unproved,
    prove,
    prove_kept,
)
from mscclpp.types import AlgorithmType, CollectiveBufferMode, ReduceOp

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator, Operation

__all__ = ["DslAlgorithm", "PlanAlgorithm", "compile"]


_MOST = 2**63 - 1  # bytes of which the engine knows
OPEN = ("sendrecv", "test")  # collectives that promise no result
# On GPUs, for calls that a plan cannot serve.
_INSTEAD = {"allreduce": "pipeline", "reducescatter": "pipeline"}


class PlanAlgorithm(Algorithm):
    """What an execution plan says, executed by the engine. `ExecutionPlan` and `compile` make
    it."""

    def __init__(
        self, plan: Plan, *, tags: dict[str, int] | None = None, verify: bool = True
    ) -> None:
        super().__init__(
            plan.name,
            plan.collective,
            message_size_range=(plan.min_message_size, plan.max_message_size),
            tags=tags,
            buffer_mode=(
                CollectiveBufferMode.IN_PLACE if plan.inplace else CollectiveBufferMode.ANY
            ),
            constraint=Constraint(world_size=len(plan.gpus)),
        )
        self._plan = plan
        self._verify = verify
        self._needs_executor = True
        kind = _reduction(plan)
        if kind is not None:
            self._own_op = ReduceOp[kind.value.upper()]
            self._only_op = None if self._own_op is ReduceOp.SUM else self._own_op

    @property
    def type(self) -> AlgorithmType:
        """What it is written in."""
        return AlgorithmType.DSL

    @property
    def plan(self) -> Plan:
        """The execution plan."""
        return self._plan

    def to_json(self, indent: int | None = 2) -> str:
        """The execution plan as JSON, which MSCCL++'s executor takes, too."""
        return write(self.plan, indent)

    def register(self, communicator: str = "", *, prefer: bool = False) -> engine.Registration:
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
            ValueError: it is wrong, as it may be if it was not verified: `execute` alone does that.
            CannotVerify: it says what no plan can say yet.
            EngineError: it cannot be executed here.
        """
        if self.collective in OPEN:
            raise ValueError(
                f"{self.name!r} is a program of {self.collective!r}, which promises no result: it "
                f"can be executed, but serves no calls"
            )
        # The engine counts what a rank has for one other, or for all.
        parts = 1 if self.collective == "allreduce" else len(self.plan.gpus)
        least, most = self.message_size_range
        number = engine.call(
            "register",
            plan=self._lowered(),
            stage=True,
            communicator=communicator,
            min_bytes=min(-(-least // parts), _MOST),
            max_bytes=min(most // parts, _MOST),
            prefer=prefer,
        )
        return engine.Registration(number)

    def _lowered(self) -> dict[str, Any]:
        return prove_kept(self.plan).lowered if self._verify else lower_unproved(self.plan)

    def _operation(self, comm: Communicator) -> Operation:
        if self.collective not in OPEN:
            return super()._operation(comm)
        sizes = self._lowered()["open"]
        name = self._registered(comm, comm.name)
        hints = {"ctran::algorithm": f"all_reduce={name}"}
        return _runtime.prepare(comm, "all_reduce", hints, sizes["inputs"], sizes["outputs"], name)

    def _hints(self, comm: Communicator) -> dict[str, str]:
        name = self._registered(comm, comm.name)
        return {"ctran::algorithm": f"{KINDS[self.collective]}={name}"}

    def _gpu_hints(self, comm: Communicator) -> dict[str, str]:
        name = self._registered(comm, comm.gpu_name)
        if self.collective in OPEN:  # nothing else does what it does
            return {"ctran::algorithm": f"all_reduce={name}"}
        return gpu_hints(self.collective, name, _INSTEAD.get(self.collective, "direct"))

    def _registered(self, comm: Communicator, communicator: str) -> str:
        """Makes it a plan for the communicator of that name as long as `comm` is there; returns
        the plan's name."""
        plan = dict(self._lowered())
        # Two plans of one name are two algorithms; ranks with different ones are told so.
        digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:12]
        plan["name"] = f"{re.sub('[^A-Za-z0-9_.-]', '_', self.name)}-{digest}"
        number = engine.call(
            "register", plan=plan, stage=True, communicator=communicator, proved=self._verify
        )
        for owner in (comm, self):
            self._when_gone(owner, _remove, number)
        return f"plan:{plan['name']}"


def _remove(number: int) -> None:
    engine.call("remove", number=number)


def _reduction(plan: Plan) -> ReduceOperationType | None:
    """What a plan reduces with, if it reduces. Raises ProgramError if that is not the same
    everywhere."""
    blocks = (block for gpu in plan.gpus for block in gpu.threadblocks)
    ops = (op for block in blocks for outer in block.ops for op in (outer, *outer.ops))
    reductions = [(op.reduce_op, op.locations[:1]) for op in ops if op.reduce_op is not None]
    for kind, line in reductions:
        first, first_line = reductions[0]
        if kind is not first:
            raise ProgramError(
                f"{plan.name!r} reduces with {kind.value} here, and with {first.value} elsewhere: "
                f"a call has one reduction, so write a program for each",
                *line,
                *first_line,
            )
    return reductions[0][0] if reductions else None


class DslAlgorithm(PlanAlgorithm):
    """A compiled program. `compile` makes it.

    Attributes:
        program: that was compiled.
        report: what the verifier found; None if it was not verified.
        rank: for whom it was compiled.
    """

    def __init__(
        self, program: CollectiveProgram, spec: AlgoSpec | None, rank: int | None, verify: bool
    ) -> None:
        tags = spec.tags if spec is not None else None
        super().__init__(program.written(), tags=tags, verify=verify)
        self.rank = rank
        self.program = program
        self.report: Report | None = None
        if verify:
            self.report = prove(self._plan, program.passes, program.location)
            if not self.report:
                raise NotProved(self.report)
        else:
            program.plan()  # raises what it raises

    def __repr__(self) -> str:
        return f"<{self.collective} {self.name!r} of {self.program.num_ranks} ranks>"

    @functools.cached_property
    def plan(self) -> Plan:
        """The execution plan. It is made when it is asked for: a proof that is read needs none."""
        return self.program.passes.applied(self._plan)

    def _lowered(self) -> dict[str, Any]:
        if self.report:
            return self.report.lowered
        return lower_unproved(self.plan, self.program.location)


def compile(
    algo: Callable[..., CollectiveProgram] | CollectiveProgram,
    algo_spec: AlgoSpec | None = None,
    rank: int | None = None,
    *,
    verify: bool = True,
    **kwargs: Any,
) -> DslAlgorithm:
    """Compiles a program, and proves it right: for all ranks and thread blocks, any count of
    elements, executed again and again.

    Args:
        algo: the program, or a function that writes it; that is called with `algo_spec`, if there
            is one, and `kwargs`.
        rank: whose algorithm it is. All ranks' programs are compiled whatever it is.
        verify: False to do without the proof. What is wrong is executed, too: the results may be
            wrong, or the call runs into its deadline, but it reaches no memory other than its own.

    Raises:
        NotProved: the program is wrong; the message has the line, the rank, the thread block, the
            chunk and the shortest run to it.
        CannotVerify: it says what the verifier does not know yet, and may be right or wrong.
        ProgramError: it makes no sense.
    """
    program = algo
    if not isinstance(program, CollectiveProgram):
        if not callable(algo):
            raise TypeError(f"compile takes a program, or a function that writes one, not {algo!r}")
        arguments = () if algo_spec is None else (algo_spec,)
        program = algo(*arguments, **kwargs)
        if not isinstance(program, CollectiveProgram):
            raise TypeError(f"{algo!r} must return a CollectiveProgram, not {program!r}")
    elif kwargs:
        raise TypeError(f"a program that is written already takes no {', '.join(kwargs)}")
    if rank is not None and rank not in range(program.num_ranks):
        raise ProgramError(
            f"there is no rank {rank!r}: the program has {program.num_ranks}", program.location
        )
    return DslAlgorithm(program, algo_spec, rank, verify)
