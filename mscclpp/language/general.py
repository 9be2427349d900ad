"""The program that is being written, as JSON."""

from __future__ import annotations

from mscclpp.language.record import current_record
from mscclpp.language.source import Call
from mscclpp.language.writer import write

__all__ = ["JSON"]


def JSON() -> str:
    """The execution plan of the program so far, as in `print(JSON())`, inside its `with`."""
    return write(current_record(Call("JSON")).compile())
