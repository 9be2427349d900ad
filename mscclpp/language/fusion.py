"""Fusion: neighbouring operations of a thread block that one instruction can do become one.

The threads of the block meet less often, and a reduction whose result is sent on is not read again.
Each rule takes two neighbours and gives what does both, or None. What does both never has more
channels and chunks than MSCCL++'s executor can hold.
"""

from __future__ import annotations

from dataclasses import replace

from mscclpp.language.accesses import accesses
from mscclpp.language.instructions import INSTRUCTIONS
from mscclpp.language.limits import fits
from mscclpp.language.plan import Gpu, LocalPart, Operation, SwitchPart, ThreadBlock
from mscclpp.language.references import channel_ids
from mscclpp.language.types import ChannelType, SyncType

_ON_CHANNELS = {"signal", "rlxsignal", "wait", "rlxwait", "flush"}
_LISTS = {"put", "pws", "pwsf", "ppkt", "get"}
_REDUCTIONS = {"re", "rre", "repkt"}
# (a reduction, what is done with its result) -> what does both.
_SENT_ON = {
    ("re", "put"): "res",
    ("res", "put"): "res",
    ("rre", "put"): "rres",
    ("rres", "put"): "rres",
    ("repkt", "cpkt"): "recpkt",
    ("repkt", "ppkt"): "respkt",
    ("respkt", "ppkt"): "respkt",
    ("recpkt", "ppkt"): "recspkt",
    ("recspkt", "ppkt"): "recspkt",
}


def fused(gpu: Gpu, block: ThreadBlock, ops: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The operations of a thread block, fused from first to last."""
    result: list[Operation] = []
    for op in ops:
        both = _both(gpu, block, result[-1], op) if result else None
        if both is not None and fits(both):
            lines = dict.fromkeys((*result[-1].locations, *op.locations))
            result[-1] = replace(both, locations=tuple(lines))
        else:
            result.append(op)
    return tuple(result)


def _both(gpu: Gpu, block: ThreadBlock, first: Operation, then: Operation) -> Operation | None:
    if first.tbg_info != then.tbg_info or {first.name, then.name} & {"pipeline", "barrier"}:
        return None
    if (first.name, then.name) in _SENT_ON:
        return _sent_on(gpu, block, first, then)
    if (first.name, then.name) == ("glre", "gstore"):
        return _reduced_and_stored(gpu, block, first, then)
    if first.name != then.name or first.channel_type is not then.channel_type:
        return None
    if first.name == "nop":
        return first
    if first.name in _ON_CHANNELS:
        return _on_more_channels(first, then)
    if first.name in _LISTS:
        return _one_list(gpu, block, first, then)
    if first.name in _REDUCTIONS:
        return _of_more_sources(first, then)
    return None


def _on_more_channels(first: Operation, then: Operation) -> Operation | None:
    """Signals, waits or flushes of distinct channels: a thread for each."""
    if first.data_sync is not then.data_sync or set(first.channel_ids) & set(then.channel_ids):
        return None
    if first.name.endswith("signal") and first.data_sync is SyncType.after:
        return None  # their meeting between the two is what the second one tells of
    return replace(first, channel_ids=first.channel_ids + then.channel_ids)


def _one_list(gpu: Gpu, block: ThreadBlock, first: Operation, then: Operation) -> Operation | None:
    """Copies that have nothing to do with each other."""
    earlier, later = accesses(gpu, block, first), accesses(gpu, block, then)
    if any(a.conflicts(b) for a in earlier for b in later):
        return None
    if INSTRUCTIONS[first.name].signals and set(first.channel_ids) & set(then.channel_ids):
        return None  # the signal of the second could be taken for that of the first
    return replace(
        first,
        src_buff=first.src_buff + then.src_buff,
        dst_buff=first.dst_buff + then.dst_buff,
        channel_ids=first.channel_ids + then.channel_ids,
    )


def _of_more_sources(first: Operation, then: Operation) -> Operation | None:
    """A reduction that goes on with the result of the one before."""
    (result,) = first.dst_buff
    goes_on = then.src_buff[0] == result and then.dst_buff == (result,)
    if not goes_on or first.reduce_op is not then.reduce_op:
        return None
    if any(_touch(result, part) for part in then.src_buff[1:]):
        return None
    return replace(first, src_buff=first.src_buff + then.src_buff[1:])


def _touch(part: object, other: object) -> bool:
    if not isinstance(part, LocalPart) or not isinstance(other, LocalPart):
        return False
    ends = part.index + part.size, other.index + other.size
    return part.type is other.type and part.index < ends[1] and other.index < ends[0]


def _sent_on(gpu: Gpu, block: ThreadBlock, first: Operation, then: Operation) -> Operation | None:
    """A reduction whose result is put to other ranks, or copied as packets, as it is made.

    A thread writes an element of all destinations when it has read that element of all sources.
    So a destination may be a source, but not lie across one.
    """
    if then.channel_type not in (None, ChannelType.memory):
        return None  # a host thread copies what is in memory, not what is in registers
    if then.src_buff != first.dst_buff[:1]:
        return None
    earlier, later = accesses(gpu, block, first), accesses(gpu, block, then)
    sent = [access for access in later if access.writes]
    if any(a.overlaps(b) and a.extent != b.extent for a in earlier for b in sent):
        return None
    return replace(
        first,
        name=_SENT_ON[first.name, then.name],
        dst_buff=first.dst_buff + then.dst_buff,
        channel_type=first.channel_type or then.channel_type,
    )


def _reduced_and_stored(
    gpu: Gpu, block: ThreadBlock, first: Operation, then: Operation
) -> Operation | None:
    """A reduction over a switch channel whose result is stored to all ranks of one.

    The result does not go to this rank's own chunk any more, so that must be one of those that are
    stored to anyway.
    """
    (result,), (stored,) = first.dst_buff, then.dst_buff
    assert isinstance(stored, SwitchPart)
    assert isinstance(result, LocalPart)
    number = channel_ids(block, ChannelType.switch)[stored.switch_channel_id]
    buffer, ranks = gpu.switches()[number]
    own = gpu.id in ranks and buffer is result.type and stored.index == result.index
    if then.src_buff != (result,) or not own:
        return None
    return replace(first, name="glres", dst_buff=(stored,))
