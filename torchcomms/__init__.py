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

import torch  # noqa: F401  (its libraries must be loaded before ours)

from torchcomms import _requirements

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
    _is_backend_registered,
    _registered_backends,
    _retire,
    empty_shared,
    get_mem_allocator,
    new_comm,
)
from torchcomms._errors import (  # noqa: E402
    AbortedError,
    CommError,
    CommTimeoutError,
    MismatchError,
    PeerLostError,
)
from torchcomms.version import __version__  # noqa: E402

# Operations in flight hold tensors, which must not outlive the interpreter.
atexit.register(_retire)


class Timeout(datetime.timedelta):
    """A timeout. A plain datetime.timedelta serves everywhere as well."""


def _backend_entry_points() -> "dict[str, object]":
    # Imported when asked for: it costs more than the rest of this package.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="torchcomms.backends")}


def _load_backend(name: str) -> None:
    """Makes the backend `name` known to new_comm().

    Backends of other packages are found by their entry points of the group `torchcomms.backends`,
    each naming a module that registers the backend when it is imported.

    Raises:
        ModuleNotFoundError: no installed package has such a backend.
    """
    if _is_backend_registered(name):
        return
    entry = _backend_entry_points().get(name)
    if entry is None:
        raise ModuleNotFoundError(
            f"failed to find backend {name}, is it registered via entry_points.txt?"
        )
    entry.load()  # type: ignore[attr-defined]
    if not _is_backend_registered(name):
        raise ModuleNotFoundError(f"{entry} does not register a backend {name}")


def is_backend_built(name: str) -> bool:
    """Whether new_comm() can make the backend `name`."""
    try:
        _load_backend(name)
    except ImportError:
        return False
    return True


def built_backends() -> list[str]:
    """The names of the backends that new_comm() can make."""
    names = set(_registered_backends()) | set(_backend_entry_points())
    return sorted(name for name in names if is_backend_built(name))


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
    "AllToAllVSinglePreHookArgs",
    "AllToAllvSingleOptions",
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
]
