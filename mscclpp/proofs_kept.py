"""Proofs that were made before, in files: of the same program, the same engine and the same code.

What is kept is that a program is right, and what is executed then. What is wrong is proved anew, so
that the lines are those of now.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from pathlib import Path

from mscclpp import engine
from mscclpp._version import version
from mscclpp.environment import env
from mscclpp.files import write_at_once

__all__ = ["PROPERTIES", "keep", "kept", "key_of"]

_FORMAT = 2
_MOST_FILES = 512
_MOST_BYTES = 8 << 20  # of one
PROPERTIES = ("in_place_safe", "rank_order", "flat")


def key_of(*what: object) -> str:
    """Of a proof: what was proved, by what code."""
    text = json.dumps([_FORMAT, _code(), *what])
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _code() -> list[object]:
    """Of the engine, and of what makes plans of programs: another one proves anew."""
    here = Path(__file__).parent
    sources = [*here.glob("*.py"), *here.glob("language/*.py")]
    stats = [path.stat() for path in (engine.path(), *sorted(sources))]
    return [version, [(one.st_size, one.st_mtime_ns) for one in stats]]


def kept(key: str) -> tuple[str, dict[str, bool]] | None:
    """The plan that is executed, as JSON, and its properties; None if there is no file, or a
    damaged one. The JSON is not parsed, as compiling does not need it."""
    path = _path(key)
    try:
        head, plan = path.read_bytes().split(b"\n", 1)
        found = json.loads(head)
        if found["key"] != key or found["digest"] != hashlib.sha256(plan).hexdigest():
            return None
        properties = {name: bool(found["properties"][name]) for name in PROPERTIES}
        os.utime(path)  # the ones that are used least go first
        return plan.decode(), properties
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(key: str, plan: str, properties: dict[str, bool]) -> None:
    """Writes the file; where that cannot be, the program is proved again next time."""
    text = plan.encode()
    if len(text) > _MOST_BYTES:
        return
    head = {"key": key, "digest": hashlib.sha256(text).hexdigest(), "properties": properties}
    path = _path(key)
    with contextlib.suppress(OSError):
        _make_room(path.parent)
        write_at_once(path, json.dumps(head).encode() + b"\n" + text)


def _make_room(folder: Path) -> None:
    found = list(folder.glob("*"))  # of no folder: nothing
    if len(found) < _MOST_FILES:
        return
    for path in sorted(found, key=lambda one: one.stat().st_mtime)[: _MOST_FILES // 4]:
        path.unlink(missing_ok=True)


def _path(key: str) -> Path:
    return Path(env().cache_dir) / "proofs" / f"{key}.json"
