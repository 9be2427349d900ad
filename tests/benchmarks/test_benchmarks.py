"""The benchmarks run, cover every operation, and notice wrong results and missing libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import gpu_collectives  # noqa: E402
import gpu_common  # noqa: E402
import gpu_overlap  # noqa: E402
import gpu_windows  # noqa: E402
from side_by_side import torch_rank  # noqa: E402
from side_by_side.operations import OPERATIONS, format_size, parse_size  # noqa: E402


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(BENCHMARKS / "bench.py")
    return subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, check=False
    )


def test_every_operation_is_timed(tmp_path: Path) -> None:
    sizes = ["--sizes", "8,1K", "--repeats", "2", "--min-ms", "1"]
    done = bench("--backends", "c10d/gloo,c10d/gloo+async", *sizes, "--output", f"{tmp_path}/b")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "b.png").stat().st_size > 0
    rows = json.loads((tmp_path / "b.json").read_text())["rows"]
    expected = {
        (library, name, nbytes)
        for library in ("c10d/gloo", "c10d/gloo+async")
        for name in OPERATIONS
        for nbytes in ([0] if name == "barrier" else [8, 1024])
    }
    assert {(row["library"], row["operation"], row["nbytes"]) for row in rows} == expected
    assert all(len(row["samples_us"]) == 2 and row["us"] > 0 for row in rows)


def test_a_library_that_does_not_start_is_named(tmp_path: Path) -> None:
    done = bench("--backends", "c10d/no_such_backend", "--quick", "--output", f"{tmp_path}/b")
    assert done.returncode == 1
    assert "no_such_backend" in done.stderr


class Idle:
    """A library whose operations do nothing."""

    def calls(self, *_: Any) -> list[Any]:
        return []

    def blocking(self, *_: Any) -> torch_rank.Call:
        return lambda: None

    asynchronous = blocking


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"barrier"}))
def test_a_wrong_result_is_an_error(name: str) -> None:
    def check(rank: int) -> None:
        torch_rank.Rank(Idle(), False, rank, 2).check(name, 1024)  # type: ignore[arg-type]

    at_root = name in ("reduce", "gather")
    with pytest.raises(RuntimeError, match="wrong result"):
        check(0 if at_root else 1)


@pytest.mark.parametrize(("text", "nbytes"), [("8", 8), ("4K", 4096), ("64M", 64 << 20)])
def test_sizes_read_as_they_print(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes
    assert format_size(nbytes) == text


TIMES = ("ctran", "nccl", "alone", "products", "together", "exposed")
ROW = {"op": "all_reduce", "bytes": 8, "by": "nccl", "wrong": 0.0}
ROW |= {f"{what}_us": 1.5 for what in TIMES}


@pytest.mark.parametrize("table", [gpu_collectives.table, gpu_overlap.table, gpu_windows.table])
def test_results_of_gpus_name_the_machine(tmp_path: Path, table: Any) -> None:
    machine = {"machine": {"gpu": "a GPU", "gpus": 2}}
    gpu_common.write(tmp_path, "new", [machine, ROW], table([machine, ROW]))
    gpu_common.write(tmp_path, "old", [ROW], table([ROW]))
    rows = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert rows == [machine, ROW]
    new, old = ((tmp_path / f"{name}.md").read_text() for name in ("new", "old"))
    assert new == "gpu a GPU, gpus 2\n\n" + old
