"""The log of operations."""

from torchcomms._comms import clog

__all__ = ["clog"]
