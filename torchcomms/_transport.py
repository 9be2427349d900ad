"""torchcomms.transport in the spelling of Meta's `torchcomms._transport`: write() and read() wait
for the end and return 0."""

from __future__ import annotations

from torchcomms import transport
from torchcomms.transport import (
    RdmaMemory,
    RdmaMemoryView,
    RdmaMutableMemoryView,
    RdmaRemoteBuffer,
)

__all__ = [
    "RdmaMemory",
    "RdmaMemoryView",
    "RdmaMutableMemoryView",
    "RdmaRemoteBuffer",
    "RdmaTransport",
]


class RdmaTransport(transport.RdmaTransport):
    """transport.RdmaTransport, whose write() and read() wait."""

    def write(  # type: ignore[override]
        self, view: RdmaMemoryView, remote: RdmaRemoteBuffer, notify: bool = False
    ) -> int:
        """Returns 0 when the data are in the peer's memory; raises CommError."""
        super().write(view, remote, notify).result()
        return 0

    def read(  # type: ignore[override]
        self, view: RdmaMutableMemoryView, remote: RdmaRemoteBuffer
    ) -> int:
        """Returns 0 when the data are here; raises CommError."""
        super().read(view, remote).result()
        return 0
