"""Where in the user's program something was written, and errors that say so."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True)
class Location:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def text(self) -> str:
        """The line itself, if the file can be read."""
        return linecache.getline(self.file, self.line).strip()


def caller() -> Location:
    """The line, outside of this package, that is being executed."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


class ProgramError(RuntimeError):
    """A program is wrong. The message begins with the user's own line.

    `locations` has every line that the error is about, the one to look at first in front.
    """

    def __init__(self, why: str, *locations: Location) -> None:
        self.why = why
        self.locations = locations
        text = f"{locations[0]}: {why}" if locations else why
        for number, location in enumerate(dict.fromkeys(locations)):
            quoted = location.text()
            if number > 0:
                text += f"\n  and {location}"
            if quoted:
                text += f"\n    {quoted}"
        super().__init__(text)


class Call:
    """One call of the language by the user: what was called, on which rank, from which line."""

    def __init__(self, what: str, rank: int | None = None) -> None:
        self.what = what
        self.rank = rank
        self.location = caller()

    def flag(self, what: str, value: object) -> bool:
        """True or False, or 1 or 0; fails for anything else."""
        if value not in (True, False):
            self.fail(f"{what} must be True or False, not {value!r}")
        return bool(value)

    def listed(self, what: str, values: object) -> list[Any]:
        """What is in a list, or whatever can be gone through; fails for anything else."""
        if not isinstance(values, Iterable) or isinstance(values, str):
            self.fail(f"{what} must be a list, not {values!r}")
        return list(values)

    def fail(self, why: str) -> NoReturn:
        where = "" if self.rank is None else f"rank {self.rank}, "
        raise ProgramError(f"{where}{self.what}: {why}", self.location)
