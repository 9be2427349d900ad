"""Execution plans, of the DSL or from files, and who executes them."""

from __future__ import annotations

from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mscclpp import _runtime
from mscclpp.compiler import PlanAlgorithm
from mscclpp.language.reader import read
from mscclpp.types import PacketType, ReduceOp

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator

__all__ = ["ExecutionPlan", "Executor"]


class ExecutionPlan:
    """A plan that is read from a file, as the DSL of MSCCL++ writes it.

    Args:
        plan_path: of the file.
        rank: of this process.
        verify: False to execute it without a proof, as `mscclpp.compile` has it.

    Raises:
        PlanFormatError: it is no plan.
        ValueError: it has no such rank.
    """

    def __init__(self, plan_path: str | Path, rank: int, *, verify: bool = True) -> None:
        plan = read(Path(plan_path).read_bytes())
        if index(rank) not in range(len(plan.gpus)):
            raise ValueError(f"there is no rank {rank}: the plan has {len(plan.gpus)}")
        self.algorithm = PlanAlgorithm(plan, verify=verify)

    def name(self) -> str:
        """Of the plan."""
        return self.algorithm.name

    def collective(self) -> str:
        """What it does."""
        return self.algorithm.collective

    def min_message_size(self) -> int:
        """Bytes, from which a selector should take it."""
        return self.algorithm.message_size_range[0]

    def max_message_size(self) -> int:
        """Bytes, up to which a selector should take it."""
        return self.algorithm.message_size_range[1]

    def is_in_place(self) -> bool:
        """Whether its author wrote it for one buffer. It is executed out of place as well."""
        return self.algorithm.plan.inplace


class Executor:
    """Executes plans on a communicator.

    Args:
        comm: `CommGroup.communicator`.
        scratch_buffer: is left alone: the engine has its own.
    """

    def __init__(self, comm: Communicator, scratch_buffer: Any = None) -> None:
        if not isinstance(comm, _runtime.Communicator):
            raise TypeError(
                f"an Executor takes a Communicator, as CommGroup.communicator is, not {comm!r}"
            )
        self.communicator = comm

    def execute(
        self,
        rank: int,
        send_buff: int,
        recv_buff: int,
        send_buff_size: int,
        recv_buff_size: int,
        dtype: int,
        plan: ExecutionPlan,
        stream: int = 0,
        packet_type: PacketType = PacketType.LL16,
    ) -> int:
        """Executes a plan, as `Algorithm.execute` does."""
        if rank != self.communicator.rank:
            raise ValueError(f"this is rank {self.communicator.rank}, not {rank!r}")
        if not isinstance(plan, ExecutionPlan):
            raise TypeError(f"plan must be an ExecutionPlan, not {type(plan).__name__}")
        return plan.algorithm.execute(
            self.communicator,
            send_buff,
            recv_buff,
            send_buff_size,
            recv_buff_size,
            dtype,
            ReduceOp.NOP,
            stream,
            self,
        )
