"""The environment variables that mean something to torchcomms, and what each means.

Those of the C++ part are declared where they are read. Those of the Python part are here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple


class Variable(NamedTuple):
    name: str
    type: str
    default: str
    is_set: bool
    doc: str


_PYTHON = (
    ("TORCHCOMM_RANK", "int", "", "The rank of this process, with TORCHCOMM_SIZE; asked first."),
    ("TORCHCOMM_SIZE", "int", "", "The number of ranks."),
    (
        "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD",
        "auto|torchcomm|torchrun|mpi|pals|slurm",
        "auto",
        "Whose variables say rank and size (docs/launching.md).",
    ),
    ("MASTER_ADDR", "string", "", "Host of the store, where the program passes none."),
    ("MASTER_PORT", "int", "", "Port of the store."),
    (
        "TORCHCOMMS_BACKEND_LIB_PATH_<NAME>",
        "path",
        "",
        "The library with backend <name> (docs/backends/your_own.md).",
    ),
    (
        "TORCHCOMMS_PATCH_FOR_COMPILE",
        "bool",
        "1",
        "Whether calls on communicators can be compiled by torch.compile; else they break graphs. "
        "Set to 1, methods record gradients outside compiled code too (docs/compile.md).",
    ),
    (
        "TORCHCOMMS_SERIALIZATION",
        "torch.save|pickle",
        "torch.save",
        "How torchcomms.objcol writes objects; with pickle, receivers trust their senders.",
    ),
)


def variables() -> list[Variable]:
    """All of them, by name."""
    from torchcomms._comms import _config_variables

    rows = [Variable(*row) for row in _config_variables()]
    for name, kind, default, doc in _PYTHON:
        rows.append(Variable(name, kind, default, bool(os.environ.get(name)), doc))
    return sorted(rows)


def listing(rows: Iterable[Variable]) -> str:
    """A paragraph for each: what it is, what it is set to, what it means."""
    parts = []
    for row in rows:
        value = f"\n  set to {os.environ[row.name]}" if row.is_set else ""
        default = row.default or "not set"
        parts.append(f"{row.name} ({row.type}, default: {default}){value}\n  {row.doc}\n")
    return "".join(parts)
