"""What programs import of backend gloo alone: its communicators are like all others."""

from torchcomms._comms import TorchComm as TorchCommGloo

__all__ = ["TorchCommGloo"]
