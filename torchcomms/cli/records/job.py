"""The recordings of a job: found through its processes, which have prepared nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torchcomms.cli.records import native, processes, recording


class NotFoundError(Exception):
    """There is no such job, or more than one."""


@dataclass
class Communicator:
    """Ranks of one communicator, on this host or on others; `ranks` are as in docs.

    Times of a rank are of its host's CLOCK_MONOTONIC, `now` too, at which it was looked at.
    """

    group: str
    name: str
    size: int
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def now(self) -> int:
        """When the last of them was looked at, as of CLOCK_REALTIME."""
        times = (rank["now"] + rank["realtime_offset"] for rank in self.ranks.values())
        return max(times, default=0)


Process = tuple[str, int]  # host and number


def process_of(rank: dict[str, Any]) -> Process:
    return str(rank["host"]), int(rank["pid"])


def world_numbers(communicators: Sequence[Communicator]) -> dict[Process, int]:
    """The rank of each process in the largest communicator; those of no part in it come behind."""
    largest = max(communicators, key=lambda c: c.size)
    numbers = {process_of(rank): r for r, rank in largest.ranks.items()}
    for communicator in communicators:
        for _, rank in sorted(communicator.ranks.items()):
            behind = max([largest.size, *(number + 1 for number in numbers.values())])
            numbers.setdefault(process_of(rank), behind)
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


@dataclass
class _Memory:
    path: str
    holders: set[int] = field(default_factory=set)
    content: dict[str, Any] | None = None


def _memories() -> dict[tuple[int, int], _Memory]:
    found: dict[tuple[int, int], _Memory] = {}
    for pid in processes.pids():
        for path in processes.memories(pid):
            with suppress(OSError):
                status = os.stat(path)
                key = (status.st_dev, status.st_ino)
                found.setdefault(key, _Memory(path)).holders.add(pid)
    for key, memory in found.items():
        with suppress(OSError):
            descriptor = os.open(memory.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                now = os.fstat(descriptor)
                if (now.st_dev, now.st_ino) == key:  # else its holder has opened another there
                    memory.content = native.read(descriptor)
            finally:
                os.close(descriptor)
    return {key: memory for key, memory in found.items() if memory.content is not None}


def _jobs(memories: dict[tuple[int, int], _Memory]) -> list[set[tuple[int, int]]]:
    """Memory that belongs together: of one process, or of one communicator on several hosts."""
    jobs: list[tuple[set[tuple[int, int]], set[object]]] = []
    for key, memory in memories.items():
        assert memory.content is not None
        marks: set[object] = set(memory.holders)
        if memory.content["group"] != "0":
            marks.add(memory.content["group"])
        keys = {key}
        for job in [job for job in jobs if job[1] & marks]:
            jobs.remove(job)
            keys |= job[0]
            marks |= job[1]
        jobs.append((keys, marks))
    return [keys for keys, _ in jobs]


def _alive(rank: dict[str, Any], holders: set[int]) -> int | None:
    """The process of a rank, as this process may call it; None if it has ended."""
    for pid in holders:
        inner = processes.inner_pid(pid)
        if inner == rank["pid"] and processes.lives(pid, rank["process_start"]):
            return pid
    return rank["pid"] if processes.lives(rank["pid"], rank["process_start"]) else None


def _of_job(pid: int | None) -> dict[tuple[int, int], _Memory]:
    """The memory of the job to which a process belongs, or of the only job of this user."""
    memories = _memories()
    jobs = _jobs(memories)
    if pid is not None:
        jobs = [job for job in jobs if any(pid in memories[key].holders for key in job)]
        if not jobs:
            if pid not in processes.pids():
                raise NotFoundError(f"there is no process {pid}")
            raise NotFoundError(f"process {pid} has no communicator that this user may look into")
    if not jobs:
        raise NotFoundError("no process that this user may look into has a communicator")
    if len(jobs) > 1:
        firsts = sorted(min(min(memories[key].holders) for key in job) for job in jobs)
        raise NotFoundError(
            "there are several jobs; name one by the process id of any of its ranks, such as "
            + ", ".join(map(str, firsts))
        )
    return {key: memories[key] for key in jobs[0]}


def writable_memories(pid: int | None = None) -> tuple[list[tuple[str, str]], list[str]]:
    """Of each communicator as of `live`, on this host, its name and the path of its memory; and the
    names of those that take no settings.

    Raises:
        NotFoundError: as of `live`, or none takes settings.
    """
    found, others = [], []
    for memory in _of_job(pid).values():
        assert memory.content is not None
        for rank in [rank for rank in memory.content["ranks"] if not rank["left"]][:1]:
            if rank["takes_settings"]:
                found.append((rank["name"], memory.path))
            else:
                others.append(rank["name"])
    if not found:
        raise NotFoundError(
            "no communicator of that job takes settings: ctran's do, until they are finalized"
        )
    return sorted(found), sorted(set(others))


def _unclear(memories: Iterable[_Memory]) -> set[str]:
    """Groups in which a rank comes twice.

    Outside the engine ranks name their communicator by what they know of it, without asking the
    others: two that were made alike, by different ranks of a job, have one name.
    """
    seen: set[tuple[str, int]] = set()
    twice: set[str] = set()
    for memory in memories:
        assert memory.content is not None
        group = memory.content["group"]
        for rank in memory.content["ranks"]:
            if rank["left"]:
                continue
            if (group, rank["rank"]) in seen:
                twice.add(group)
            seen.add((group, rank["rank"]))
    return twice


def live(pid: int | None = None) -> list[Communicator]:
    """The communicators of the job to which a process belongs, or of the only job of this user.

    Raises:
        NotFoundError: there is none, or, without `pid`, there are several.
    """
    communicators: dict[str, Communicator] = {}
    memories = _of_job(pid)
    unclear = _unclear(memories.values())
    for key, memory in memories.items():
        content = memory.content
        assert content is not None
        name = content["group"]
        if name == "0" or name in unclear:
            host = content["ranks"][0]["host"] if content["ranks"] else ""
            name = f"{host}:{key[0]}:{key[1]}"  # the numbers are those of a kernel
        for rank in content["ranks"]:
            at = _alive(rank, memory.holders)
            state = "left" if rank["left"] else "alive" if at is not None else "dead"
            about = {**rank, "state": state, "process": at, "now": content["now"]}
            group = communicators.setdefault(name, Communicator(name, rank["name"], rank["size"]))
            group.size = max(group.size, rank["size"])  # NCCL before 2.27 does not tell
            group.ranks[rank["rank"]] = about
    return sorted(communicators.values(), key=lambda c: (c.name, c.group))


def described(communicators: Sequence[Communicator]) -> dict[str, Any]:
    """What `merged` takes, on the host of the job."""
    rows = [
        {"group": c.group, "name": c.name, "size": c.size, "ranks": list(c.ranks.values())}
        for c in communicators
    ]
    return {"torchcomms_recording": recording.FORMAT, "communicators": rows}


def records(communicators: Sequence[Communicator], *, stacks: bool) -> dict[str, Any]:
    """The same as JSON for other hosts, and for later: with where the ranks are now. `stacks`: also
    in Python, which takes a moment."""
    for c in communicators:
        for rank in c.ranks.values():
            if "where" not in rank:
                at = rank["process"]
                rank["where"] = [] if at is None else processes.where(at, stacks=stacks)
    return described(communicators)


def received(source: str, content: Any) -> dict[str, Any]:
    """What `records` has made, maybe elsewhere: its processes are none of those that run here.

    Raises:
        NotFoundError: it is something else.
    """
    try:
        recording.check(content)
    except ValueError as error:
        raise NotFoundError(
            f"{source} is no recording of `torchcomms analyze --save`: {error}"
        ) from None
    for row in content["communicators"]:
        for rank in row["ranks"]:
            rank["process"] = None
            rank.setdefault("where", [])
    found: dict[str, Any] = content
    return found


def _differ(communicator: Communicator, ranks: Iterable[dict[str, Any]]) -> bool:
    """Whether one of these ranks is already there, and is another process."""

    def process(rank: dict[str, Any]) -> tuple[str, int, int]:
        return rank["host"], rank["pid"], rank["process_start"]

    return any(
        process(communicator.ranks[one["rank"]]) != process(one)
        for one in ranks
        if one["rank"] in communicator.ranks
    )


def merged(contents: Iterable[dict[str, Any]]) -> list[Communicator]:
    """The communicators of what `described` and `received` have returned, put together."""
    communicators: dict[str, Communicator] = {}
    for content in contents:
        for row in content["communicators"]:
            key = row["group"]
            if key in communicators and _differ(communicators[key], row["ranks"]):
                # Outside the engine hosts name their communicators without asking each other.
                key = f"{key} {row['ranks'][0]['host']} {row['name']}"
            group = communicators.setdefault(key, Communicator(key, row["name"], row["size"]))
            for rank in row["ranks"]:
                group.ranks[rank["rank"]] = rank
    return sorted(communicators.values(), key=lambda c: (c.name, c.group))
