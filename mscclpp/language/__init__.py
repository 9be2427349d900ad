"""The language: a collective as a Python program, and the execution plan that it becomes."""

from mscclpp.language.channel import MemoryChannel, PortChannel, SwitchChannel
from mscclpp.language.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    ReduceScatter,
    SendRecv,
    TestCollective,
)
from mscclpp.language.general import JSON
from mscclpp.language.limits import exceeded
from mscclpp.language.loop import LoopIterationContext
from mscclpp.language.plan import Plan
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import BaseBuffer, Buffer, Rank, Semaphore
from mscclpp.language.reader import PlanFormatError, read
from mscclpp.language.source import Location, ProgramError
from mscclpp.language.thread_block_group import ThreadBlockGroup
from mscclpp.language.types import BufferType, ChannelType, Chunk, ReduceOperationType, SyncType
from mscclpp.language.utils import AlgoSpec, ReplicationPolicy
from mscclpp.language.writer import write

__all__ = [
    "JSON",
    "AlgoSpec",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "BaseBuffer",
    "Buffer",
    "BufferType",
    "ChannelType",
    "Chunk",
    "Collective",
    "CollectiveProgram",
    "Location",
    "LoopIterationContext",
    "MemoryChannel",
    "Plan",
    "PlanFormatError",
    "PortChannel",
    "ProgramError",
    "Rank",
    "ReduceOperationType",
    "ReduceScatter",
    "ReplicationPolicy",
    "Semaphore",
    "SendRecv",
    "SwitchChannel",
    "SyncType",
    "TestCollective",
    "ThreadBlockGroup",
    "exceeded",
    "read",
    "write",
]
