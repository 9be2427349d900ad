"""What a recording of `torchcomms analyze --save` has to look like, which somebody else made."""

from __future__ import annotations

from typing import Any

from torchcomms.cli.records import terminal

FORMAT = 1
_LIMIT = 1 << 63  # of numbers, which are signed and have 64 bits

# A type, several, what each item of a list is, or what the fields of an object are; where a name
# ends with "?" there may be none.
_MAYBE_TEXT = (str, type(None))
_MAYBE_NUMBER = (int, type(None))
_LINK = {
    "peer": int,
    "transport": str,
    "sent": int,
    "arrived": int,
    "busy": int,
    "received?": int,
    "copied?": int,
}
_OPERATION = {
    **dict.fromkeys(("kind", "call", "type", "algorithm", "why"), str),
    **dict.fromkeys(("number", "root", "count", "bytes", "tag", "received"), int),
    **dict.fromkeys(("called", "started", "first", "ended"), int),
    **dict.fromkeys(("waits_since", "waited", "longest_wait"), int),
    **dict.fromkeys(("waits_for", "longest_for"), _MAYBE_NUMBER),
    "message": bool,
    "prepared?": int,
    "error": _MAYBE_TEXT,
}
_RANK = {
    **dict.fromkeys(("name", "host", "failure", "state"), str),
    **dict.fromkeys(("rank", "size", "pid", "process_start", "now", "realtime_offset"), int),
    **dict.fromkeys(("collectives", "messages", "queued"), int),
    **dict.fromkeys(("left", "takes_settings"), bool),
    **dict.fromkeys(("process", "clock_error?"), _MAYBE_NUMBER),
    **dict.fromkeys(("since?", "timeout?", "clock_offset?"), int),
    "off?": bool,
    "error": _MAYBE_TEXT,
    "operations": [_OPERATION],
    "replays?": [_OPERATION],
    "replayed?": int,
    "tells_replays?": bool,
    "links?": [_LINK],
    "blames?": [int],
    "where?": [str],
}
_COMMUNICATOR = {"group": str, "name": str, "size": int, "ranks": [_RANK]}
_RECORDING = {"torchcomms_recording": int, "communicators": [_COMMUNICATOR]}


def check(content: Any) -> None:
    """Raises:
    ValueError: it is something else.
    """
    _check(content, _RECORDING, "it")
    if content["torchcomms_recording"] != FORMAT:
        raise ValueError("another version has written it")


def _check(value: Any, expected: Any, path: str) -> None:
    if isinstance(expected, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{path} is no object")
        for name, of in expected.items():
            field = name.removesuffix("?")
            if field in value:
                _check(value[field], of, f"{path}.{field}")
            elif field == name:
                raise ValueError(f"{path} has no '{name}'")
    elif isinstance(expected, list):
        if not isinstance(value, list):
            raise ValueError(f"{path} is no list")
        for index, item in enumerate(value):
            _check(item, expected[0], f"{path}[{index}]")
    elif not isinstance(value, expected) or (expected is not bool and isinstance(value, bool)):
        raise ValueError(f"{path} is of type {type(value).__name__}")
    elif isinstance(value, str) and terminal.controls.search(value):
        raise ValueError(f"{path} has control characters")
    elif isinstance(value, int) and not -_LIMIT <= value < _LIMIT:
        raise ValueError(f"{path} has more than 64 bits")
