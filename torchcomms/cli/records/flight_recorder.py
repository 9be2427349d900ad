"""What the ranks of a job have recorded, in the format of PyTorch's flight recorder.

Its analyzer, torch.distributed.flight_recorder.fr_trace, reads a folder with a file for each rank.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torchcomms import _files
from torchcomms.cli.records.job import Communicator, Process, process_of, world_numbers

PREFIX = "rank_"
_VERSION = "2.10"
# The analyzer takes neighbours of one number for one batch, also a collective and a message.
_APART = 1 << 32

# Names that the analyzer knows, and the elements of input and output: 1 for `count`, "all" for
# `count` of each rank, None where that is not recorded or differs between ranks.
_ONE, _ALL, _UNKNOWN = 1, "all", None
_COLLECTIVES: dict[str, tuple[str, Any, Any]] = {
    "barrier": ("barrier", _UNKNOWN, _UNKNOWN),
    "broadcast": ("broadcast", _ONE, _ONE),
    "reduce": ("reduce", _ONE, _ONE),
    "all_reduce": ("all_reduce", _ONE, _ONE),
    "all_gather": ("all_gather_single", _ONE, _ALL),
    "all_gather_v": ("all_gather_v", _UNKNOWN, _UNKNOWN),
    "reduce_scatter": ("reduce_scatter_single", _ALL, _ONE),
    "reduce_scatter_v": ("reduce_scatter_v", _UNKNOWN, _UNKNOWN),
    "gather": ("gather", _ONE, _ALL),
    "scatter": ("scatter", _ALL, _ONE),
    "all_to_all": ("all_to_all_single", _ALL, _ALL),
}
_EXCHANGES = "all_to_all_v_single"

_TYPES = {
    "int8": "Char",
    "uint8": "Byte",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "bool": "Bool",
}


def write(folder: Path, communicators: Sequence[Communicator]) -> int:
    """A file for each process. Returns how many.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not communicators:
        return 0
    numbers = world_numbers(communicators)
    for process, number in numbers.items():
        content = _dump(process, numbers, communicators)
        _files.write(folder / f"{PREFIX}{number}", pickle.dumps(content))
    return len(numbers)


def _members(
    communicator: Communicator, numbers: dict[Process, int], largest: int
) -> dict[int, int]:
    """The number of each rank of a communicator. Of ranks that are not seen it is known where all
    ranks take part."""
    seen = {r: numbers[process_of(rank)] for r, rank in communicator.ranks.items()}
    if communicator.size == largest and all(r == number for r, number in seen.items()):
        return {r: r for r in range(communicator.size)}
    return seen


def _dump(
    process: Process, numbers: dict[Process, int], communicators: Sequence[Communicator]
) -> dict[str, Any]:
    config, status, entries = {}, {}, list[dict[str, Any]]()
    largest = max(c.size for c in communicators)
    names = _names(communicators)
    for index, (name, communicator) in enumerate(zip(names, communicators, strict=True)):
        members = _members(communicator, numbers, largest)
        for r, rank in communicator.ranks.items():
            if process_of(rank) != process:
                continue
            listed = "[" + ",".join(str(members[m]) for m in sorted(members)) + "]"
            config[name] = {"name": name, "desc": "undefined", "ranks": listed}
            collectives = [o for o in rank["operations"] if not o["message"] and o["number"] > 0]
            status[str(index)] = {
                "last_enqueued_collective": max((o["number"] for o in collectives), default=-1),
                "last_started_collective": _last(collectives, "started"),
                "last_completed_collective": _last(collectives, "ended"),
            }
            entries += _entries(r, communicator, members, (index, name))
    entries.sort(key=lambda entry: int(entry["time_created_ns"]))
    for number, entry in enumerate(entries):
        entry["record_id"] = number
    return {
        "version": _VERSION,
        "pg_config": config,
        "pg_status": status,
        "entries": entries,
    }


def _names(communicators: Sequence[Communicator]) -> list[str]:
    """Each of its own."""
    names: list[str] = []
    for communicator in communicators:
        same = sum(name.partition("#")[0] == communicator.name for name in names)
        names.append(f"{communicator.name}#{same + 1}" if same else communicator.name)
    return names


def _last(operations: Iterable[dict[str, Any]], moment: str) -> int:
    return max((o["number"] for o in operations if o[moment] > 0), default=-1)


def _entries(
    r: int, communicator: Communicator, members: dict[int, int], group: tuple[int, str]
) -> Iterable[dict[str, Any]]:
    rank = communicator.ranks[r]
    order = sorted(members.values())
    library = "ctran" if rank["takes_settings"] else "torchcomms"  # of other backends
    messages = calls = 0
    for operation in sorted(rank["operations"], key=lambda o: int(o["called"])):
        kind, count = operation["kind"], int(operation["count"])
        sizes: list[list[list[int]]]
        if operation["message"]:
            if kind not in ("send", "recv"):
                continue
            messages += 1
            peer = members.get(operation["root"])
            there = "?" if peer is None else str(order.index(peer))
            name = f"{kind} {order.index(members[r])}{'->' if kind == 'send' else '<-'}{there}"
            sizes = [[[count]], []] if kind == "send" else [[], [[count]]]
        elif operation["number"] > 0:
            calls = int(operation["number"])
            name, *amounts = _COLLECTIVES.get(kind, (_EXCHANGES, _UNKNOWN, _UNKNOWN))
            if name == _EXCHANGES and not kind.startswith("all_to_all_v"):
                continue  # the analyzer knows nothing like it
            everything = count * communicator.size
            each: dict[Any, list[list[int]]] = {_ONE: [[count]], _ALL: [[everything]], None: [[]]}
            sizes = [each[amount] for amount in amounts]
        else:
            continue
        yield {
            "pg_id": group[0],
            "process_group": [group[1], "undefined"],
            "collective_seq_id": calls,
            "p2p_seq_id": messages + (_APART if operation["message"] else 0),
            "op_id": int(operation["number"]),
            "profiling_name": f"{library}:{name}",
            "input_sizes": sizes[0],
            "output_sizes": sizes[1],
            "input_dtypes": [_TYPES.get(operation["type"], operation["type"])] * len(sizes[0]),
            "output_dtypes": [_TYPES.get(operation["type"], operation["type"])] * len(sizes[1]),
            "is_p2p": bool(operation["message"]),
            "algorithm": operation["algorithm"],
            "frames": [],
            **_moments(operation, int(rank["realtime_offset"]), rank.get("timeout")),
        }


def _moments(operation: dict[str, Any], offset: int, timeout: int | None) -> dict[str, Any]:
    """Times since 1970; of a recording that has no timeout it is not known."""
    started, ended = int(operation["started"]), int(operation["ended"])
    state = "completed" if ended else "started" if started else "scheduled"
    return {
        "state": state,
        "retired": ended > 0,
        "time_created_ns": int(operation["called"]) + offset,
        "time_discovered_started_ns": started + offset if started else None,
        "time_discovered_completed_ns": ended + offset if ended else None,
        "duration_ms": (ended - started) / 1e6 if ended else None,
        "timeout_ms": None if timeout is None else timeout / 1e6,
    }
