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
    _WHEN_ASKED_FOR = ("device_mesh", "distwrap", "functional", "objcol", "plan", "transport")

    def __getattr__(name):
        # When `import torchcomms` comes before torch, the import of torch below asks this package
        # for a function that is not here yet. It has loaded the compiled module by then.
        if name == "new_comm":
            from torchcomms._comms import new_comm

            return new_comm
        if name in _WHEN_ASKED_FOR:
            import importlib

            return importlib.import_module(f"torchcomms.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


import torch  # noqa: F401  (its libraries must be loaded before ours)

from torchcomms import _c10d, _compile, _requirements

_requirements.check()

from torchcomms import hooks  # noqa: E402
from torchcomms._comms import (  # noqa: E402
    AllGatherOptions,
    AllGatherPreHookArgs,
    AllGatherSingleOptions,
    AllGatherSinglePreHookArgs,
    AllGatherVPreHookArgs,
    AllReduceOptions,
    AllReducePreHookArgs,
    AllToAllOptions,
    AllToAllPreHookArgs,
    AllToAllSingleOptions,
    AllToAllSinglePreHookArgs,
    AllToAllVDynamicPreHookArgs,
    AllToAllvSingleOptions,
    AllToAllVSinglePreHookArgs,
    BarrierOptions,
    BarrierPreHookArgs,
    BatchOpIssuePostHookArgs,
    BatchOpIssuePreHookArgs,
    BatchP2POptions,
    BatchSendRecv,
    BroadcastOptions,
    BroadcastPreHookArgs,
    CollectivePostHookArgs,
    CommOptions,
    FinalizePostHookArgs,
    FinalizePreHookArgs,
    FlushPreHookArgs,
    GatherOptions,
    GatherPreHookArgs,
    GatherSingleOptions,
    GatherSinglePreHookArgs,
    GetPreHookArgs,
    MemAllocator,
    NewWindowPostHookArgs,
    NewWindowPreHookArgs,
    OpName,
    OpPreHookArgs,
    P2POp,
    P2POpType,
    PersistentAllGather,
    PersistentAllToAll,
    PutPreHookArgs,
    ReconfigureOptions,
    ReconfigurePostHookArgs,
    ReconfigurePreHookArgs,
    RecvOptions,
    RecvPreHookArgs,
    RedOpType,
    ReduceOp,
    ReduceOptions,
    ReducePreHookArgs,
    ReduceScatterOptions,
    ReduceScatterPreHookArgs,
    ReduceScatterSingleOptions,
    ReduceScatterSinglePreHookArgs,
    ReduceScatterVPreHookArgs,
    RemovableHandle,
    ScatterOptions,
    ScatterPreHookArgs,
    SendOptions,
    SendPreHookArgs,
    SignalCmpOp,
    SignalPreHookArgs,
    SplitPostHookArgs,
    SplitPreHookArgs,
    TorchComm,
    TorchCommBackend,
    TorchCommWinAccessType,
    TorchCommWindow,
    TorchCommWindowAttr,
    TorchWork,
    WaitSignalPreHookArgs,
    WorkStatus,
    _is_backend_registered,  # noqa: F401
    _retire,
    empty_shared,
    get_mem_allocator,
    new_comm,
    register_backend,
)
from torchcomms._errors import (  # noqa: E402
    AbortedError,
    BackendNotFoundError,
    CommError,
    CommTimeoutError,
    MismatchError,
    PeerLostError,
)
from torchcomms._log import use_python_logging  # noqa: E402
from torchcomms.select import comm_explain, comm_prepare, comm_tune  # noqa: E402
from torchcomms.version import __version__  # noqa: E402

for _name, _method in (
    ("explain", comm_explain),
    ("prepare", comm_prepare),
    ("tune", comm_tune),
):
    setattr(TorchComm, _name, _method)

_c10d.register_when_ready()
_compile.register()

# Operations in flight hold tensors, which must not outlive the interpreter.
atexit.register(_retire)


class Timeout(datetime.timedelta):
    """A timeout. A plain datetime.timedelta serves everywhere as well."""


__all__ = [
    "AbortedError",
    "AllGatherOptions",
    "AllGatherPreHookArgs",
    "AllGatherSingleOptions",
    "AllGatherSinglePreHookArgs",
    "AllGatherVPreHookArgs",
    "AllReduceOptions",
    "AllReducePreHookArgs",
    "AllToAllOptions",
    "AllToAllPreHookArgs",
    "AllToAllSingleOptions",
    "AllToAllSinglePreHookArgs",
    "AllToAllVDynamicPreHookArgs",
    "AllToAllVSinglePreHookArgs",
    "AllToAllvSingleOptions",
    "BackendNotFoundError",
    "BarrierOptions",
    "BarrierPreHookArgs",
    "BatchOpIssuePostHookArgs",
    "BatchOpIssuePreHookArgs",
    "BatchP2POptions",
    "BatchSendRecv",
    "BroadcastOptions",
    "BroadcastPreHookArgs",
    "CollectivePostHookArgs",
    "CommError",
    "CommOptions",
    "CommTimeoutError",
    "FinalizePostHookArgs",
    "FinalizePreHookArgs",
    "FlushPreHookArgs",
    "GatherOptions",
    "GatherPreHookArgs",
    "GatherSingleOptions",
    "GatherSinglePreHookArgs",
    "GetPreHookArgs",
    "MemAllocator",
    "MismatchError",
    "NewWindowPostHookArgs",
    "NewWindowPreHookArgs",
    "OpName",
    "OpPreHookArgs",
    "P2POp",
    "P2POpType",
    "PeerLostError",
    "PersistentAllGather",
    "PersistentAllToAll",
    "PutPreHookArgs",
    "ReconfigureOptions",
    "ReconfigurePostHookArgs",
    "ReconfigurePreHookArgs",
    "RecvOptions",
    "RecvPreHookArgs",
    "RedOpType",
    "ReduceOp",
    "ReduceOptions",
    "ReducePreHookArgs",
    "ReduceScatterOptions",
    "ReduceScatterPreHookArgs",
    "ReduceScatterSingleOptions",
    "ReduceScatterSinglePreHookArgs",
    "ReduceScatterVPreHookArgs",
    "RemovableHandle",
    "ScatterOptions",
    "ScatterPreHookArgs",
    "SendOptions",
    "SendPreHookArgs",
    "SignalCmpOp",
    "SignalPreHookArgs",
    "SplitPostHookArgs",
    "SplitPreHookArgs",
    "Timeout",
    "TorchComm",
    "TorchCommBackend",
    "TorchCommWinAccessType",
    "TorchCommWindow",
    "TorchCommWindowAttr",
    "TorchWork",
    "WaitSignalPreHookArgs",
    "WorkStatus",
    "__version__",
    "built_backends",
    "empty_shared",
    "get_mem_allocator",
    "hooks",
    "is_backend_built",
    "new_comm",
    "register_backend",
    "use_python_logging",
]
