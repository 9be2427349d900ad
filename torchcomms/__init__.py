"""Communication for PyTorch: groups of ranks, and operations on tensors among them.

    import torch, torchcomms

    comm = torchcomms.new_comm("ctran", torch.device("cpu"))
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    comm.finalize()

`import torch` itself may import this package half-way through its own start. So what is at the top
level here uses of torch only what exists then, starts nothing, and raises nothing but ImportError.
"""

import atexit
import datetime
from typing import TYPE_CHECKING

from torchcomms._backends import _load_backend, built_backends, is_backend_built  # noqa: F401

if not TYPE_CHECKING:

    def __getattr__(name):
        # When `import torchcomms` comes before torch, the import of torch below asks this package
        # for a function that is not here yet. It has loaded the compiled module by then.
        if name == "new_comm":
            from torchcomms._comms import new_comm

            return new_comm
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


import torch  # noqa: F401  (its libraries must be loaded before ours)

from torchcomms import _c10d, _requirements

_requirements.check()

from torchcomms._comms import (  # noqa: E402
    AllGatherOptions,
    AllGatherSingleOptions,
    AllReduceOptions,
    AllToAllOptions,
    AllToAllSingleOptions,
    AllToAllvSingleOptions,
    BarrierOptions,
    BatchP2POptions,
    BatchSendRecv,
    BroadcastOptions,
    CommOptions,
    GatherOptions,
    GatherSingleOptions,
    OpName,
    P2POp,
    P2POpType,
    RecvOptions,
    RedOpType,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ReduceScatterSingleOptions,
    ScatterOptions,
    SendOptions,
    TorchComm,
    TorchCommBackend,
    TorchWork,
    WorkStatus,
    _is_backend_registered,  # noqa: F401
    _retire,
    new_comm,
    register_backend,
)
from torchcomms._errors import (  # noqa: E402
    AbortedError,
    CommError,
    CommTimeoutError,
    MismatchError,
    PeerLostError,
)
from torchcomms.version import __version__  # noqa: E402

_c10d.register_when_ready()

# Operations in flight hold tensors, which must not outlive the interpreter.
atexit.register(_retire)


class Timeout(datetime.timedelta):
    """A timeout. A plain datetime.timedelta serves everywhere as well."""


__all__ = [
    "AbortedError",
    "AllGatherOptions",
    "AllGatherSingleOptions",
    "AllReduceOptions",
    "AllToAllOptions",
    "AllToAllSingleOptions",
    "AllToAllvSingleOptions",
    "BarrierOptions",
    "BatchP2POptions",
    "BatchSendRecv",
    "BroadcastOptions",
    "CommError",
    "CommOptions",
    "CommTimeoutError",
    "GatherOptions",
    "GatherSingleOptions",
    "MismatchError",
    "OpName",
    "P2POp",
    "P2POpType",
    "PeerLostError",
    "RecvOptions",
    "RedOpType",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ReduceScatterSingleOptions",
    "ScatterOptions",
    "SendOptions",
    "Timeout",
    "TorchComm",
    "TorchCommBackend",
    "TorchWork",
    "WorkStatus",
    "__version__",
    "built_backends",
    "is_backend_built",
    "new_comm",
    "register_backend",
]
