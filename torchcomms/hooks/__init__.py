"""Hooks that are ready to use: `hook.register_with_comm(comm)` installs them.

FlightRecorderHook remembers the last operations and dumps them when a communicator breaks, clog
writes a log, NanCheckHook raises where a NaN would be sent.
"""

from torchcomms.hooks.clog import clog
from torchcomms.hooks.fr import FlightRecorderHook
from torchcomms.hooks.nan_check import NanCheckHook

__all__ = ["FlightRecorderHook", "NanCheckHook", "clog"]
