"""What is wrong with a program: in which line, on which rank and thread block, and how it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mscclpp.language.plan import LocalPart, Operation, Plan
from mscclpp.language.source import Location
from mscclpp.language.types import BufferType

_SHOWN = 8  # thread blocks of a run
_COPIES = ("begin", "end")  # from and to a caller's buffer


@dataclass(frozen=True)
class Event:
    """An operation of a thread block, in one of several executions in a row."""

    rank: int
    thread_block: int
    operation: str  # its name; "begin" or "end", where the thread blocks of a rank meet
    locations: tuple[Location, ...]
    execution: int

    def __str__(self) -> str:
        where = f" at {self.locations[0]}" if self.locations else ""
        which = f" of execution {self.execution}" if self.execution else ""
        return f"rank {self.rank}, thread block {self.thread_block}: {self.operation}{which}{where}"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    `locations` has the lines that it is about, the one to look at first in front, and `run` the
    shortest run that shows it: the last operation of each thread block that takes part.
    """

    kind: str
    message: str
    rank: int
    thread_block: int
    chunk: str | None
    locations: tuple[Location, ...]
    run: tuple[Event, ...]

    def __str__(self) -> str:
        text = f"{self.locations[0]}: " if self.locations else ""
        text += f"{self.kind}: {self.message}"
        for number, location in enumerate(self.locations):
            text += f"\n  and {location}" if number else ""
            text += f"\n    {location.text()}" if location.text() else ""
        if self.run:
            text += "\n  after"
            text += "".join(f"\n    {event}" for event in self.run[:_SHOWN])
            more = len(self.run) - _SHOWN
            text += f"\n    and {more} other thread blocks" if more > 0 else ""
        return text


@dataclass(frozen=True)
class Proved:
    """A program's plan, the engine's plan that it was lowered to, and what comes from what."""

    plan: Plan
    lowered: dict[str, Any]
    origins: list[list[list[list[int]]]]
    factor: int  # chunks of the engine's plan in one of the program
    location: Location | None  # of the whole program

    def operation(self, rank: int, lane: int, step: int) -> Operation | None:
        operation, inner = self.origins[rank][lane][step]
        if operation < 0:
            return None
        op = self.plan.gpus[rank].threadblocks[lane].ops[operation]
        return op if inner < 0 else op.ops[inner]

    def thread_block(self, rank: int, lane: int) -> int:
        blocks = self.plan.gpus[rank].threadblocks
        return blocks[lane].id if lane < len(blocks) else lane

    def event(self, moment: list[int]) -> Event:
        rank, lane, step, execution = moment
        op = self.operation(rank, lane, step)
        name, lines = (op.name, op.locations) if op else ("end" if step else "begin", ())
        return Event(rank, self.thread_block(rank, lane), name, lines, execution)

    def chunk(self, buffer: str, index: int, rank: int) -> str:
        """A chunk of the engine's plan, as the program has it."""
        if self.plan.collective == "reducescatter" and buffer == "scratch":
            finer = self.lowered["chunks"] // self.plan.gpus[0].output_chunks
            copies = finer * max(gpu.scratch_chunks for gpu in self.plan.gpus)
            if index >= copies:  # of inputs, where the program uses these as scratch
                buffer, index = "input", index - copies
        if buffer == "output" and self.plan.inplace and self._names_input_only():
            buffer = "input"
            if self.plan.collective == "reducescatter":
                index += rank * self.lowered["chunks"]
        return f"{buffer}[{index // self.factor}] of rank {rank}"

    def _names_input_only(self) -> bool:
        ops = [op for gpu in self.plan.gpus for block in gpu.threadblocks for op in block.ops]
        parts = [part for outer in ops for op in (outer, *outer.ops)
                 for part in (*op.src_buff, *op.dst_buff)]  # fmt: skip
        kinds = {part.type for part in parts if isinstance(part, LocalPart)}
        return BufferType.output not in kinds


def finding_of(proved: Proved, raw: dict[str, Any]) -> Finding:
    """What the verifier found in the engine's plan, in the program's words."""
    others = [proved.event(moment) for moment in raw["others"]]
    own = None
    if raw["step"] >= 0:
        own = proved.event([raw["rank"], raw["lane"], raw["step"], raw["execution"]])
    if raw["kind"] == "race" and own is not None and own.operation in _COPIES and others:
        own, others = others[0], [own]
    events = _events(raw["kind"], own, others)
    chunk = proved.chunk(*raw["place"]) if "place" in raw else None
    lines = [line for event in events for line in event.locations]
    if not lines and proved.location is not None:
        lines = [proved.location]
    at = events[0] if events else None
    return Finding(
        kind=raw["kind"],
        message=_message(proved, raw, own, others, chunk),
        rank=at.rank if at else raw["rank"],
        thread_block=at.thread_block if at else proved.thread_block(raw["rank"], raw["lane"]),
        chunk=chunk,
        locations=tuple(dict.fromkeys(lines)),
        run=tuple(proved.event(moment) for moment in raw["run"]),
    )


def _events(kind: str, own: Event | None, others: list[Event]) -> list[Event]:
    """What the user should look at, in this order."""
    if kind in ("wrong result", "bits"):
        return others[::-1]  # who made it, then who brought it there
    if kind == "deadlock" and others:
        return others
    return ([own] if own else []) + others


def _name(event: Event) -> str:
    return f"rank {event.rank}, thread block {event.thread_block}"


def _message(
    proved: Proved,
    raw: dict[str, Any],
    own: Event | None,
    others: list[Event],
    chunk: str | None,
) -> str:
    kind, words = raw["kind"], raw["words"]
    if kind == "race" and own is not None and chunk is not None:
        return _race(own, others, chunk, words)
    if kind == "deadlock" and others:
        waits = "; ".join(f"{_name(event)} waits in {event.operation!r}" for event in others)
        if words == ["each other"]:
            return f"{waits}; and so they wait for each other"
        return f"{waits}; and the thread block that it waits for has ended"
    if kind == "unmatched" and others:
        return _unmatched(others[0])
    if kind in ("uninitialized", "packet") and own is not None:
        return f"{_name(own)} reads {chunk}{words[0]}"
    if kind == "shape" and own is not None:
        return (
            f"{_name(own)} reads {chunk} as another part of the data than was written there; parts "
            "differ in size where the count does not divide"
        )
    if kind == "wrong result":
        return _result(proved, raw, chunk, written=bool(others))
    if kind == "bits":
        return f"{chunk} is reduced in another order than on rank 0: the last bits differ"
    if kind == "modified input":
        return f"{chunk} is modified"
    return str(raw["message"])


def _race(own: Event, others: list[Event], chunk: str, words: list[str]) -> str:
    if words == ["begun"]:
        return (
            f"{_name(own)} uses {chunk}, whose caller may still need it: that rank may not have "
            "begun, so wait for a signal from it first"
        )
    if words == ["returned"]:
        return (
            f"{_name(own)} uses {chunk}, which may have returned to its caller by then: that rank "
            "must wait for a signal that comes after this"
        )
    does, did = words
    (other,) = others
    if other.operation in _COPIES:
        returned = other.operation == "end" or other.execution > own.execution
        return _race(own, [], chunk, ["returned" if returned else "begun"])
    when = ""
    if other.execution != own.execution:
        when = f" in the {'next' if other.execution > own.execution else 'previous'} execution"
    unordered = f"nothing orders that with the {did} of {_name(other)}{when}"
    return f"{_name(own)} {does} {chunk}, and {unordered}"


def _unmatched(event: Event) -> str:
    what = {
        "sem_release": "releases a semaphore that nobody acquires so often",
        "sem_acquire": "acquires a semaphore that nobody releases so often",
        "barrier": "comes to a barrier to which others do not come so often",
    }.get(event.operation)
    if what is None:
        waits = event.operation.endswith("wait")
        what = f"{'waits' if waits else 'signals'} more often than the other end " + (
            "signals" if waits else "waits"
        )
    return f"{_name(event)} {what}"


def _result(proved: Proved, raw: dict[str, Any], chunk: str | None, *, written: bool) -> str:
    def inputs(leaves: list[list[int]]) -> str:
        texts = []
        for rank, index, execution in leaves:
            text = f"input[{index // proved.factor}] of rank {rank}"
            texts.append(text if execution == raw["execution"] else f"{text} of another execution")
        return ", ".join(texts[:_SHOWN]) + (", ..." if len(texts) > _SHOWN else "")

    lacking, surplus = inputs(raw["lacking"]), inputs(raw["surplus"])
    if not written and not surplus:
        return f"nobody writes {chunk}, which should be made of {lacking}"
    if lacking and surplus:
        return f"{chunk} has {surplus} instead of {lacking}"
    return f"{chunk} lacks {lacking}" if lacking else f"{chunk} has {surplus} too often"
