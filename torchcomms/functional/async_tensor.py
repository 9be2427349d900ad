"""Results that are on their way, by the name that they have in other libraries."""

from torchcomms.functional._async_tensor import AsyncTensor as TorchCommsAsyncTensor

__all__ = ["TorchCommsAsyncTensor"]
