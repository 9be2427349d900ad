"""The variables that mean something to torchcomms: what each means, and what it is set to.

They are declared in C++, where most of them are read (ctran/base/config.h).
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Variable(NamedTuple):
    name: str
    type: str
    default: str
    text: str  # what is set; empty where nothing is
    source: str  # default, file, environment or live
    is_live: bool  # can be changed while a program runs
    doc: str


class _File(dict[str, str]):
    """Of variables that the environment does not have: what the file says."""

    def __missing__(self, name: str) -> str:
        value = text(name)
        if not value:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(text(name))


def variables() -> list[Variable]:
    """All of them, by name."""
    from torchcomms._comms import _config_variables

    return [Variable(*row) for row in _config_variables()]


def text(name: str) -> str:
    """What a variable is set to, in the environment or in the file; empty where it is not."""
    from torchcomms._comms import _config_text

    return _config_text(name)


def environment() -> Mapping[str, str]:
    """The environment, and behind it the file that TORCHCOMM_CONFIG names."""
    return ChainMap(os.environ, _File())


def listing(rows: Iterable[Variable]) -> str:
    """A paragraph for each: what it is, what it is set to, what it means."""
    parts = []
    for row in rows:
        where = " (in the file)" if row.source == "file" else ""
        value = f"\n  set to {row.text}{where}" if row.text else ""
        default = row.default or "not set"
        live = ", live" if row.is_live else ""
        parts.append(f"{row.name} ({row.type}, default: {default}{live}){value}\n  {row.doc}\n")
    return "".join(parts)
