"""Texts of others on a terminal, which they must not steer, nor look like lines of ours."""

from __future__ import annotations

import re

_CONTROLS = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
_ENDS_AND_DIRECTIONS = r"\u2028-\u202e\u2066-\u2069"  # of lines; of what is written

# What the engine replaces before it gives a text to anybody.
controls = re.compile(f"[{_CONTROLS}]")
_steering = re.compile(f"[{_CONTROLS}{_ENDS_AND_DIRECTIONS}]")


def printable(text: str) -> str:
    """One line, in which a question mark is in the place of what would steer a terminal."""
    return _steering.sub("?", text)
