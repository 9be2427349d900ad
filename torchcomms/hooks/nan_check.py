"""The search for NaNs."""

from torchcomms._comms import NanCheckHook

__all__ = ["NanCheckHook"]
