"""The variables that mean something to torchcomms: what each means, and what it is set to.

They are declared in C++, where most of them are read (ctran/base/config.h).
"""

from __future__ import annotations

import os
import sys
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Variable(NamedTuple):
    name: str
    type: str
    default: str
    text: str  # what is set; empty where nothing is
    source: str  # default, file, environment or live
    is_live: bool  # can be changed while a program runs
    doc: str

    @property
    def page(self) -> str:
        """Which says more."""
        fitting = [start for start in _PAGES if self.name.startswith(start)]
        return f"docs/{_PAGES[max(fitting, key=len)]}" if fitting else "docs/environment.md"


# By what names begin with; of several, the longest.
_PAGES = {
    "CTRAN_ALGORITHM": "selection.md",
    "CTRAN_CUDA_LIBRARY": "backends/nccl.md",
    "CTRAN_EXIT_MILLIS": "contracts.md",
    "CTRAN_GPU_": "backends/ctran_gpu.md",
    "CTRAN_GPU_PLAN_BYTES": "plans.md",
    "CTRAN_GPU_TIMES": "troubleshooting.md",
    "CTRAN_HIP_LIBRARY": "backends/nccl.md",
    "CTRAN_HOST": "troubleshooting.md",
    "CTRAN_IB": "rdma.md",
    "CTRAN_LOG": "troubleshooting.md",
    "CTRAN_SIMD": "reductions.md",
    "CTRAN_SPIN_MICROS": "engine.md",
    "CTRAN_TCP_": "engine.md",
    "CTRAN_TCP_RATE": "environment.md",
    "CTRAN_TRACE": "troubleshooting.md",
    "CTRAN_TUNING_DIR": "selection.md",
    "CTRAN_VERBS_LIBRARY": "verbs.md",
    "CTRAN_YIELD_MICROS": "engine.md",
    "CUDA_HOME": "mscclpp/native.md",
    "MASTER_": "launching.md",
    "NCCL_HOME": "backends/nccl.md",
    "ROCM_HOME": "backends/nccl.md",
    "TORCHCOMMS_BACKEND_LIB_PATH_": "backends/your_own.md",
    "TORCHCOMMS_NCCL": "backends/nccl.md",
    "TORCHCOMMS_NVTX": "troubleshooting.md",
    "TORCHCOMMS_PATCH_FOR_COMPILE": "compile.md",
    "TORCHCOMMS_RCCL": "backends/nccl.md",
    "TORCHCOMMS_SERIALIZATION": "migration.md",
    "TORCHCOMM_ABORT_ON_ERROR": "contracts.md",
    "TORCHCOMM_BOOTSTRAP_": "launching.md",
    "TORCHCOMM_ERROR_GRACE_SECONDS": "contracts.md",
    "TORCHCOMM_FR_": "hooks.md",
    "TORCHCOMM_GLOO_": "backends/gloo.md",
    "TORCHCOMM_LOG": "troubleshooting.md",
    "TORCHCOMM_RANK": "launching.md",
    "TORCHCOMM_SIZE": "launching.md",
    "TORCHCOMM_TIMEOUT_SECONDS": "contracts.md",
}


class _File(dict[str, str]):
    """Of variables that the environment does not have: what the file says."""

    def __missing__(self, name: str) -> str:
        value = text(name)
        if not value:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(text(name))


def compiled() -> Any:
    """The compiled module. Where the command `torchcomms` has done without torch so far, that is
    loaded first, if it is the right one."""
    from torchcomms import TorchComm

    return sys.modules[TorchComm.__module__]


def variables() -> list[Variable]:
    """All of them, by name."""
    return [Variable(*row) for row in compiled()._config_variables()]


def text(name: str) -> str:
    """What a variable is set to, in the environment or in the file; empty where it is not."""
    return str(compiled()._config_text(name))


def environment() -> Mapping[str, str]:
    """The environment, and behind it the file that TORCHCOMM_CONFIG names."""
    return ChainMap(os.environ, _File())


def listing(rows: Iterable[Variable]) -> str:
    """A paragraph for each: what it is, what it is set to, what it means, which page says more."""
    parts = []
    for row in rows:
        where = " (in the file)" if row.source == "file" else ""
        value = f"\n  set to {row.text}{where}" if row.text else ""
        default = row.default or "not set"
        live = ", live" if row.is_live else ""
        title = f"{row.name} ({row.type}, default: {default}{live})"
        parts.append(f"{title}{value}\n  {row.doc}\n  {row.page}\n")
    return "".join(parts)
