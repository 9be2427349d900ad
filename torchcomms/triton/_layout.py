"""DeviceWindowLayout.hpp for Triton: where in a struct its fields lie, in bytes, and numbers with
a meaning. A test compares all of them with the header."""

import triton.language as tl

STATE_RANK = tl.constexpr(0)
STATE_RANKS = tl.constexpr(4)
STATE_SIGNALS = tl.constexpr(8)
STATE_COUNTERS = tl.constexpr(16)
STATE_BARRIERS = tl.constexpr(24)
STATE_TIMEOUT_NANOS = tl.constexpr(32)
STATE_PEERS = tl.constexpr(40)
STATE_COUNTS = tl.constexpr(48)
STATE_ROUNDS = tl.constexpr(56)
STATE_FAILED = tl.constexpr(64)
STATE_REPORT = tl.constexpr(72)

PEER_BASE = tl.constexpr(0)
PEER_SIZE = tl.constexpr(8)
PEER_WORDS = tl.constexpr(16)
SIZE_OF_PEER = tl.constexpr(24)

BUFFER_BASE = tl.constexpr(0)
BUFFER_SIZE = tl.constexpr(8)

REPORT_ABORT = tl.constexpr(0)
REPORT_STATUS = tl.constexpr(4)
REPORT_WHAT = tl.constexpr(8)
REPORT_PEER = tl.constexpr(12)
REPORT_VALUE = tl.constexpr(16)
REPORT_LIMIT = tl.constexpr(24)
REPORT_BYTES = tl.constexpr(32)

# What a failure is about.
SIGNAL = tl.constexpr(0)
COUNTER = tl.constexpr(1)
BARRIER = tl.constexpr(2)
RANK = tl.constexpr(3)
DESTINATION = tl.constexpr(4)
SOURCE = tl.constexpr(5)

# What calls return.
OK = tl.constexpr(0)
ABORTED = tl.constexpr(1)
TIMED_OUT = tl.constexpr(2)
OUT_OF_RANGE = tl.constexpr(3)

# What a signal does to the word of its sender.
SET = tl.constexpr(0)
ADD = tl.constexpr(1)

# How a wait compares what is there with its value.
EQ = tl.constexpr(0)
NE = tl.constexpr(1)
LT = tl.constexpr(2)
LE = tl.constexpr(3)
GT = tl.constexpr(4)
GE = tl.constexpr(5)
