"""Data types, reductions and codes, by their numbers."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = [
    "AlgorithmType",
    "CollectiveBufferMode",
    "CommResult",
    "DataType",
    "PacketType",
    "ReduceOp",
]


class DataType(IntEnum):
    """Of the elements of a buffer."""

    int32 = 0
    uint32 = 1
    float16 = 2
    float32 = 3
    bfloat16 = 4
    float8_e4m3 = 5  # without infinities
    float8_e4m3fn = 5  # the same
    float8_e5m2 = 6
    uint8 = 7
    int8 = 8
    int16 = 9
    int64 = 10
    uint16 = 11
    uint64 = 12
    float64 = 13
    bool = 14
    complex64 = 15
    complex128 = 16


class ReduceOp(IntEnum):
    """How contributions are put together."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    NOP = 255  # what the algorithm does by itself: a sum, unless its author says otherwise


class CommResult(IntEnum):
    """What `Algorithm.execute` returns."""

    COMM_SUCCESS = 0
    COMM_UNHANDLED_CUDA_ERROR = 1
    COMM_SYSTEM_ERROR = 2
    COMM_INTERNAL_ERROR = 3
    COMM_INVALID_ARGUMENT = 4
    COMM_INVALID_USAGE = 5
    COMM_REMOTE_ERROR = 6
    COMM_IN_PROGRESS = 7


class CollectiveBufferMode(Enum):
    """Whether input and output may, or have to, be the same memory."""

    ANY = "any"
    IN_PLACE = "in_place"
    OUT_OF_PLACE = "out_of_place"


class AlgorithmType(Enum):
    """What an algorithm is written in."""

    NATIVE = "native"
    DSL = "dsl"


class PacketType(Enum):
    """Of packets on GPUs; the CPU has one kind."""

    LL8 = "LL8"
    LL16 = "LL16"
