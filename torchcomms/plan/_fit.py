"""The cost model, fitted to measured times."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcomms import _engine
from torchcomms._errors import CommError
from torchcomms.plan._native import call, read_json

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
    program = _engine.folder() / "bin" / "ctran-bench"
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
    """What `ctran-bench --plans all --json FILE` has written, without the native algorithms.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is none of these; the message has the file and the line.
    """
    key = {"fastest": "fastest", "median": "seconds"}[statistic]
    samples = []
    for number, line in enumerate(_lines(Path(path)), 1):
        try:
            row = read_json(line)
            if not isinstance(row, dict):
                raise ValueError("a line is a JSON object")
            if _value(row, "plan", str):
                ranks, size, units = (
                    _value(row, name, int) for name in ("ranks", "bytes", "units")
                )
                seconds = float(_value(row, key, (int, float)))
                samples.append(Sample(row["plan"], ranks, size, units, seconds))
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}, line {number}: {error}; `ctran-bench --plans all --json FILE` writes "
                "what can be read here"
            ) from None
    return samples


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: {error}") from None


def _value(row: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    if name not in row:
        raise ValueError(f"there is no '{name}'")
    value = row[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"'{name}' is {value!r:.40}")
    return value


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
