"""The cost model, fitted to measured times."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcomms import _comms
from torchcomms._errors import CommError
from torchcomms.plan._native import call

_COLLECTIVES = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast"


@dataclass(frozen=True)
class Sample:
    """How long a plan of the library took, for blocks of so many bytes in so many units."""

    plan: str
    ranks: int
    bytes: int
    units: int
    seconds: float


@dataclass(frozen=True)
class Fit:
    """A machine, and how far its times are from those measured: said / measured - 1."""

    machine: dict[str, Any]  # for `Plan.simulate`
    errors: list[float]  # per sample
    median: float  # of the errors' sizes


def measure(
    ranks: int = 2,
    *,
    sizes: str = "64K,256K,1M,4M",
    repeats: int = 15,
    statistic: str = "fastest",
) -> list[Sample]:
    """Times every plan of the library on processes of this host, with ctran-bench.

    Args:
        sizes: bytes of the full buffers, with K and M.
        repeats: turns, in each of which all plans are timed at all sizes.
        statistic: of the turns: "fastest" (on machines that are busy with other things) or
            "median".

    Raises:
        CommError: it cannot be done here.
    """
    program = Path(_comms.__file__).parent / "bin" / "ctran-bench"
    if not program.is_file():
        raise CommError(f"this build has no ctran-bench ({program})")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples"
        command = [str(program), "--ranks", str(ranks), "--plans", "all", "--ops", _COLLECTIVES]
        command += ["--sizes", sizes, "--repeats", str(repeats), "--min-ms", "1"]
        ended = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True)
        if ended.returncode != 0:
            raise CommError(f"ctran-bench failed: {ended.stderr.strip()}")
        return read_samples(file, statistic=statistic)


def read_samples(path: str | Path, *, statistic: str = "fastest") -> list[Sample]:
    """What `ctran-bench --plans all --json FILE` has written, without the native algorithms."""
    key = {"fastest": "fastest", "median": "seconds"}[statistic]
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [
        Sample(line["plan"], line["ranks"], line["bytes"], line["units"], line[key])
        for line in lines
        if line["plan"]
    ]


def fit(samples: Iterable[Sample], machine: Mapping[str, Any] | None = None) -> Fit:
    """The machine whose times are closest to those measured.

    Args:
        machine: what it is known to be besides its costs; default: one host, whose CPUs share
            its memory, and on which the lanes of a rank take turns.

    Raises:
        ValueError: there are no samples, or there is no such plan.
    """
    return _ask(samples, machine, fits=True)


def compare(samples: Iterable[Sample], machine: Mapping[str, Any]) -> Fit:
    """How far a machine is from measured times."""
    return _ask(samples, machine, fits=False)


def _ask(samples: Iterable[Sample], machine: Mapping[str, Any] | None, *, fits: bool) -> Fit:
    items = [[s.plan, s.ranks, s.bytes, s.units, s.seconds] for s in samples]
    known = {"lanes_in_turns": True, "shared_memory": {}} if machine is None else dict(machine)
    answer = call("fit", samples=items, machine=known, fit=fits)
    return Fit(answer["machine"], answer["errors"], answer["median"])
