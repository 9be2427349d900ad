"""The engine's reader of recordings, through its C interface (ctran/capi/trace.h)."""

from __future__ import annotations

from typing import Any

from torchcomms import _engine
from torchcomms._errors import CommError


def _ask(do: str, descriptor: int, **request: Any) -> Any:
    try:
        return _engine.ask("trace", do, fd=descriptor, **request)
    except (ValueError, CommError) as error:
        raise OSError(str(error)) from None


def read(descriptor: int) -> dict[str, Any] | None:
    """What the ranks of a communicator on this host have recorded in that memory.

    None if it is no such memory.

    Raises:
        OSError: it cannot be read.
    """
    recording: dict[str, Any] | None = _ask("read", descriptor)
    return recording


def ask(descriptor: int, name: str, value: str) -> int:
    """Asks the ranks of a communicator to set a variable: a number for `answers`.

    Raises:
        OSError: the memory cannot be written, or the text is too long.
    """
    return int(_ask("ask", descriptor, name=name, value=value))


def answers(descriptor: int, asked: int) -> dict[int, str | None]:
    """By rank: None before it has answered, empty if it has set the variable, else why not.

    Raises:
        OSError: the memory cannot be read.
    """
    rows = _ask("answers", descriptor, asked=asked)
    return {row["rank"]: row["answer"] for row in rows}
