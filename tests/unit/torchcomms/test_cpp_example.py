"""The C++ API, as an installed package offers it: examples/cpp is built and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp"


def run(*command: str | Path) -> str:
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_cpp_program(tmp_path: Path) -> None:
    build = tmp_path / "build"
    run("cmake", "-S", EXAMPLE, "-B", build, f"-DPython_EXECUTABLE={sys.executable}")
    run("cmake", "--build", build)
    size = 3
    ranks = [
        subprocess.Popen(
            [build / "all_reduce", str(rank), str(size), tmp_path / "ranks"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, said
    for rank in range(size):
        expected = ["sum 6.000000", "max 2.000000", "operations 2"]
        assert said[rank].splitlines() == [f"[rank {rank}] {line}" for line in expected]
