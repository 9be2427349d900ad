"""Writing plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchcomms.plan._plan import Plan


@dataclass(frozen=True)
class Chunks:
    """Some chunks of a buffer of a rank, next to each other."""

    rank: int
    buffer: str
    index: int
    count: int = 1

    def _at(self, rank: int) -> list[Any]:
        return [self.buffer, self.index] + ([self.rank] if self.rank != rank else [])


@dataclass(frozen=True)
class Buffer:
    """A buffer of a rank: `buffer[i]` is a chunk of it, `buffer[i:j]` are several."""

    rank: int
    name: str
    size: int
    first: int = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, which: int | slice) -> Chunks:
        if isinstance(which, slice) and which.step not in (None, 1):
            raise IndexError(f"chunks lie side by side; the step {which.step} is not possible")
        begin, end = (which, which + 1) if isinstance(which, int) else which.indices(self.size)[:2]
        if not 0 <= begin < end <= self.size:
            raise IndexError(f"{self.name} of rank {self.rank} has chunks 0 to {self.size - 1}")
        return Chunks(self.rank, self.name, self.first + begin, end - begin)


@dataclass
class Channel:
    """Counting signals from one lane to another: one producer, one consumer."""

    number: int
    credits: int = 0


@dataclass
class Link:
    """A way between two lanes, through slots of the receiver's scratch that are used in turns.

    As the destination of a move it means the next message; as a source, the next one to arrive,
    whose slot is free again when the move has ended. Who reaches other ranks through links alone
    cannot race.
    """

    sender: tuple[int, int]
    receiver: tuple[int, int]
    chunks: int
    data: Channel
    credit: Channel
    sent: int = 0
    received: int = 0
    uses: list[tuple[list[Any], int]] = field(default_factory=list)  # place, message


Place = Chunks | Link


class Lane:
    """What a rank does, step by step. Lanes of a rank run beside each other."""

    def __init__(self, builder: Builder, rank: int, number: int) -> None:
        self.rank, self.number = rank, number
        self._builder = builder
        self._steps: list[dict[str, Any]] = []

    def move(
        self,
        *sources: Place,
        to: Place | Sequence[Place],
        wait: Iterable[Channel] = (),
        signal: Iterable[Channel] = (),
        part: int | None = None,
        packet: bool = False,
    ) -> None:
        """Stores the sources in every place of `to`; several are reduced, in that order.

        Waits for signals of `wait` before, and signals `signal` after. `part` has to be given where
        only scratch takes part and blocks have several parts: which part of a block it is.
        """
        targets = [to] if isinstance(to, (Chunks, Link)) else list(to)
        counts = {
            place.chunks if isinstance(place, Link) else place.count
            for place in [*sources, *targets]
        }
        if len(counts) != 1:
            raise ValueError(f"a move needs sources and destinations of one size, not {counts}")
        waits = [[channel.number, 1] for channel in wait]
        signals = [channel.number for channel in signal]
        step: dict[str, Any] = {"to": [], "from": []}
        for key, places in (("to", targets), ("from", sources)):
            for place in places:
                if isinstance(place, Link):
                    step[key].append(self._pass(place, key == "to", waits, signals))
                    continue
                step[key].append(place._at(self.rank))
                if place.buffer != "scratch" and part is None:
                    part = place.index % self._builder.chunks
        if part:
            step["part"] = part
        if counts != {1}:
            step["count"] = counts.pop()
        if packet:
            step["packet"] = True
        self._add(step, waits, signals)

    def wait(self, *channels: Channel) -> None:
        """Waits for a signal on each of the channels."""
        self._add({}, [[channel.number, 1] for channel in channels], [])

    def signal(self, *channels: Channel) -> None:
        """Gives a signal on each of the channels; what this lane did before comes first."""
        self._add({}, [], [channel.number for channel in channels])

    def _add(self, step: dict[str, Any], waits: list[list[int]], signals: list[int]) -> None:
        if waits:
            step["wait"] = waits
        if signals:
            step["signal"] = signals
        self._steps.append(step)

    def _pass(
        self, link: Link, puts: bool, waits: list[list[int]], signals: list[int]
    ) -> list[Any]:
        """Lets the step put to a link, or take from it; returns the place, settled in the end."""
        end = link.sender if puts else link.receiver
        if end != (self.rank, self.number):
            raise ValueError(f"lane {(self.rank, self.number)} is not the end {end} of the link")
        slot = Chunks(link.receiver[0], "scratch", 0)._at(self.rank)
        if puts:
            waits.append([link.credit.number, 1])
            signals.append(link.data.number)
            link.uses.append((slot, link.sent))
            link.sent += 1
        else:
            waits.append([link.data.number, 1])
            signals.append(link.credit.number)
            link.uses.append((slot, link.received))
            link.received += 1
        return slot


class Rank(Lane):
    """A rank: its buffers, and its lanes. Used as a lane, it is its lane 0."""

    def __init__(self, builder: Builder, rank: int, inputs: int, outputs: int) -> None:
        super().__init__(builder, rank, 0)
        self.input = Buffer(rank, "output" if builder.in_place else "input", inputs)
        self.output = Buffer(rank, "output", outputs)
        self._lanes: list[Lane] = [self]
        self._scratch = 0

    def lane(self, number: int) -> Lane:
        """Another lane; lanes are numbered from 0."""
        while len(self._lanes) <= number:
            self._lanes.append(Lane(self._builder, self.rank, len(self._lanes)))
        return self._lanes[number]

    def scratch(self, chunks: int) -> Buffer:
        """Scratch that nobody else is given."""
        self._scratch += chunks
        return Buffer(self.rank, "scratch", chunks, self._scratch - chunks)


class Builder:
    """Makes a plan, rank by rank and step by step.

    Args:
        name: for people.
        collective: all_reduce, all_gather, reduce_scatter, all_to_all or broadcast.
        ranks: how many.
        chunks: the parts of a block (see docs/plans.md); any count of elements works.
        root: of a broadcast.
        depth: copies of scratch, which executions in a row use in turns.
        in_place: the plan knows no input: its output holds it in the beginning.
    """

    def __init__(
        self,
        name: str,
        collective: str,
        ranks: int,
        *,
        chunks: int = 1,
        root: int = 0,
        depth: int = 1,
        in_place: bool = False,
    ) -> None:
        self.name, self.collective, self.chunks = name, collective, chunks
        self.root, self.depth = root, depth
        self.in_place = in_place or collective == "broadcast"
        many = ranks * chunks
        inputs = many if collective in ("reduce_scatter", "all_to_all") else chunks
        outputs = many if collective in ("all_gather", "all_to_all") else chunks
        self.ranks = [
            Rank(self, r, outputs if self.in_place else inputs, outputs) for r in range(ranks)
        ]
        self._channels: list[tuple[Channel, tuple[int, int], tuple[int, int]]] = []
        self._links: list[Link] = []

    def __getitem__(self, rank: int) -> Rank:
        """The rank; beyond the ends it goes around, so that `b[r + 1]` is the next one."""
        return self.ranks[rank % len(self.ranks)]

    def channel(self, source: Lane, target: Lane, credits: int = 0) -> Channel:
        """A new channel; `credits` signals are there before the first."""
        channel = Channel(len(self._channels), credits)
        ends = (source.rank, source.number), (target.rank, target.number)
        self._channels.append((channel, *ends))
        return channel

    def link(self, source: Lane, target: Lane, chunks: int = 1) -> Link:
        """A new link, for messages of so many chunks."""
        ends = (source.rank, source.number), (target.rank, target.number)
        data, credit = self.channel(source, target), self.channel(target, source)
        self._links.append(Link(*ends, chunks, data, credit))
        return self._links[-1]

    def finish(self) -> Plan:
        """The plan.

        Raises:
            ValueError: it is not well-formed. (Whether it is right, `Plan.verify` says.)
        """
        for link in self._links:
            slots = min(2, max(1, link.sent))
            while link.sent % slots:
                slots += 1
            slot = self.ranks[link.receiver[0]].scratch(slots * link.chunks)
            for place, message in link.uses:
                place[1] = slot.first + message % slots * link.chunks
            link.credit.credits = slots * (self.depth if slots == link.sent else 1)
        self._links = []
        lanes = max(len(rank._lanes) for rank in self.ranks)
        return Plan(
            {
                "plan": 1,
                "name": self.name,
                "collective": self.collective,
                "ranks": len(self.ranks),
                "root": self.root,
                "chunks": self.chunks,
                "scratch": max(rank._scratch for rank in self.ranks),
                "depth": self.depth,
                "in_place": self.in_place,
                "channels": [
                    {"from": source, "to": target, "credits": channel.credits}
                    for channel, source, target in self._channels
                ],
                "programs": [[rank.lane(i)._steps for i in range(lanes)] for rank in self.ranks],
            }
        )
