"""Plans, and what can be asked of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcomms.plan import _draw
from torchcomms.plan._native import call, read_json


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a plan: what, where it shows, the shortest run to there."""

    kind: str
    message: str
    rank: int
    lane: int
    step: int
    trace: list[str]


@dataclass(frozen=True)
class Report:
    """What the verifier found. True if that is nothing: the plan is right, for any count, executed
    any number of times in a row."""

    findings: list[Finding]
    in_place_safe: bool  # it also works where input and output are the same memory
    rank_order: bool  # sums are left to right in the order of the ranks
    flat: bool  # each sum is made in one go, with no rounding in between
    text: str

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        return self.text or "no findings\n"


@dataclass(frozen=True)
class Timeline(_draw.Run):
    """A plan in virtual time. Times are in seconds; a rank that never ends has an infinite one."""

    plan: Plan

    def svg(self) -> str:
        """A picture: ranks and lanes downwards, time to the right, an arrow per transfer."""
        return _draw.svg(self, self.plan.name, str(self.plan))

    def __str__(self) -> str:
        """The same for a terminal."""
        return _draw.text(self, self.plan.name, str(self.plan))


class Registration:
    """A plan that serves calls, until `remove` or the end of a `with` block."""

    def __init__(self, number: int) -> None:
        self._number = number

    def remove(self) -> None:
        """Takes the plan away: it is chosen no more."""
        call("remove", number=self._number)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Plan:
    """An algorithm for one collective, as data. See docs/plans.md.

    Raises:
        ValueError: the data is no well-formed plan.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = dict(data)
        self._text: str = call("text", plan=self._data)

    @property
    def name(self) -> str:
        """Of the plan."""
        return str(self._data["name"])

    @property
    def collective(self) -> str:
        """What it carries out, as "all_reduce"."""
        return str(self._data["collective"])

    @property
    def ranks(self) -> int:
        """For how many ranks it is."""
        return int(self._data["ranks"])

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def to_json(self) -> str:
        """As from_json() takes it."""
        return json.dumps(self._data)

    @staticmethod
    def from_json(text: str) -> Plan:
        """A plan from its JSON, or from an execution plan of MSCCL++.

        Raises:
            ValueError: it is neither.
            CommError: it says what no plan can say, such as multicast.
        """
        data = read_json(text)
        if not isinstance(data, dict):
            raise ValueError("a plan is a JSON object")
        # A program of MSCCL++ has gpus; a plan has not.
        return Plan(call("lower", program=data) if "gpus" in data else data)

    def save(self, path: str | Path) -> None:
        """Writes to_json() to a file. Raises OSError if it cannot."""
        Path(path).write_text(self.to_json())

    @staticmethod
    def load(path: str | Path) -> Plan:
        """What save() wrote. Raises OSError, and ValueError where from_json() does."""
        return Plan.from_json(Path(path).read_text())

    def verify(self) -> Report:
        """Proves the plan right, or says where it is not."""
        answer = call("verify", plan=self._data)
        findings = [Finding(**finding) for finding in answer["findings"]]
        return Report(findings, **answer["properties"], text=answer["text"])

    def simulate(
        self, bytes: int, machine: Mapping[str, Any] | None = None, *, units: int = 1
    ) -> Timeline:
        """Runs the plan in virtual time.

        Args:
            bytes: size of a block.
            machine: what it runs on, and what is wrong with that (docs/plans.md); default: ranks
                of one host.
            units: pieces into which the data is cut, and executed one after another.
        """
        answer = call("simulate", plan=self._data, bytes=bytes, machine=machine or {}, units=units)

        def finite(time: float | None) -> float:
            return math.inf if time is None else time

        return Timeline(
            finite(answer["seconds"]),
            [finite(end) for end in answer["ends"]],
            [tuple(activity) for activity in answer["activities"]],
            [tuple(transfer) for transfer in answer["transfers"]],
            answer["links"],
            answer["stuck"],
            self,
        )

    def register(
        self,
        communicator: str = "",
        *,
        min_bytes: int = 0,
        max_bytes: int | None = None,
        prefer: bool = False,
    ) -> Registration:
        """Makes the plan one of the algorithms for calls of its collective over so many ranks, in
        this process, from now on; also those of communicators that exist.

        It serves a call if it is preferred, if a hint names it (`plan:` and its name), or if it was
        the fastest when it was measured (`comm.tune`).

        All ranks have to do so before the same call; one that is served by different plans ends
        with `MismatchError`.

        Args:
            communicator: of that name only.
            min_bytes, max_bytes: for blocks of that size only.
            prefer: it comes first, except before what the hints of a call name.

        Raises:
            ValueError: the verifier rejects the plan, or it promises no result.
            CommError: it cannot be executed here.
        """
        request: dict[str, Any] = {
            "communicator": communicator,
            "min_bytes": min_bytes,
            "prefer": prefer,
        }
        if max_bytes is not None:
            request["max_bytes"] = max_bytes
        return Registration(call("register", plan=self._data, **request))


def library() -> dict[str, str]:
    """The plans that come with the engine: names, and what they are."""
    return {entry["name"]: entry["summary"] for entry in call("library")}


def make(
    name: str,
    ranks: int,
    *,
    root: int = 0,
    lanes: int = 1,
    chunks: int = 1,
    ranks_per_host: int = 1,
) -> Plan:
    """A plan of the library.

    Args:
        lanes: that share the data, per direction.
        chunks: messages that a lane makes of what it has.
        ranks_per_host: for hierarchical plans.

    Raises:
        ValueError: there is no such plan, or none for these ranks.
    """
    return Plan(
        call(
            "make",
            name=name,
            ranks=ranks,
            root=root,
            lanes=lanes,
            chunks=chunks,
            ranks_per_host=ranks_per_host,
        )
    )


def estimate(
    name: str, ranks: int, bytes: float, machine: Mapping[str, Any] | None = None
) -> float:
    """How many seconds an all-reduce of the library takes, by formula, for any number of ranks.

    Args:
        name: all_reduce.ring, .halving_doubling (powers of two), .hierarchical, .synthesized (for
            an NVSwitch in each host), or, on one host, .two_shot.
        bytes: size of the data; 0 tells the start-up.
        machine: as for `Plan.simulate`; its faults do not count.

    Raises:
        ValueError: there is no formula for that.
    """
    return float(call("estimate", name=name, ranks=ranks, bytes=bytes, machine=machine or {}))
