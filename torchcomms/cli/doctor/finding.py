"""What a check is, what it finds, and the host that it looks at."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchcomms import _variables

GOOD, SLOW, BROKEN = "good", "slow", "broken"
RESULTS = (GOOD, SLOW, BROKEN)


def said_in_a_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@functools.cache
def why_no_torch() -> str:
    """Why torch, or what is compiled for it, cannot be imported; empty if it can."""
    try:
        _variables.compiled()
    except Exception as error:
        return said_in_a_line(error)
    return ""


def _environment() -> Mapping[str, str]:
    return os.environ if why_no_torch() else _variables.environment()


@dataclass(frozen=True)
class Host:
    """Where checks look. Tests give another root, environment or number of ranks."""

    root: Path = Path("/")
    """Below which /proc, /sys and /dev are."""
    environ: Mapping[str, str] = field(default_factory=_environment)
    """A name is looked up in the file of TORCHCOMM_CONFIG as well, which is not iterated over."""
    ranks: int = 2
    """Ranks that are to run on this host."""

    def read(self, path: str) -> str | None:
        """The text of a file without white space around it; None if it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text().strip()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """What is in a folder, sorted; nothing if it cannot be read."""
        try:
            return sorted(os.listdir(self.root / path.lstrip("/")))
        except OSError:
            return []

    def number(self, path: str) -> int | None:
        text = self.read(path)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None


@dataclass(frozen=True)
class Outcome:
    """What one check found."""

    result: str
    """good, slow or broken."""
    reason: str
    todo: str = ""
    """What to type or to change; empty where there is nothing to do."""
    details: tuple[str, ...] = ()
    """Facts, a line each."""


def good(reason: str, *details: str) -> Outcome:
    return Outcome(GOOD, reason, details=details)


def slow(reason: str, todo: str, *details: str) -> Outcome:
    return Outcome(SLOW, reason, todo, details)


def broken(reason: str, todo: str, *details: str) -> Outcome:
    return Outcome(BROKEN, reason, todo, details)


@dataclass(frozen=True)
class Check:
    """A question about a host."""

    name: str
    subject: str
    """The heading under which it is shown."""
    about: str
    """What it looks at."""
    ask: Callable[[Host], Outcome]

    def run(self, host: Host) -> Outcome:
        try:
            return self.ask(host)
        except Exception as error:
            if why_no_torch():
                return broken(f"left out: {why_no_torch()}", "mend that first")
            return broken(
                f"the check itself failed: {type(error).__name__}: {error}",
                "report this as a defect of `torchcomms doctor`",
            )


def human_bytes(count: float) -> str:
    """1536 is "1.5 KiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    unit = 0
    while count >= 1024 and unit < len(units) - 1:
        count /= 1024
        unit += 1
    return f"{count:.3g} {units[unit]}"
