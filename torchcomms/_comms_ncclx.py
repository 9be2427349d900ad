"""What programs import of backend ncclx alone: here every communicator has its operations."""

from torchcomms._comms import TorchComm as TorchCommNCCLX

__all__ = ["TorchCommNCCLX"]
