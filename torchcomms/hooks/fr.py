"""The flight recorder."""

from torchcomms._comms import FlightRecorderHook

__all__ = ["FlightRecorderHook"]
