"""The C++ APIs, as an installed package offers them: examples/cpp is built and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import standins
from harness.devices import has_gpu, most_ranks

import torchcomms._comms

PACKAGE = Path(torchcomms._comms.__file__).parent
EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp"


def run(*command: str | Path) -> str:
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    run("cmake", "-S", EXAMPLE, "-B", folder, f"-DPython_EXECUTABLE={sys.executable}")
    run("cmake", "--build", folder)
    return folder


def say(program: Path, size: int, meeting: Path | str, **environment: str) -> list[list[str]]:
    """What each rank of the program says."""
    ranks = [
        subprocess.Popen(
            [program, str(rank), str(size), meeting],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
        )
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=200)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, said
    return [text.splitlines() for text in said]


def test_a_program_on_torch(build: Path, tmp_path: Path) -> None:
    said = say(build / "all_reduce", 3, tmp_path / "ranks")
    for rank, lines in enumerate(said):
        expected = ["sum 6.000000", "max 2.000000", "operations 2"]
        assert lines == [f"[rank {rank}] {line}" for line in expected]


def test_a_program_on_the_engine(build: Path, tmp_path: Path) -> None:
    said = say(build / "engine_all_reduce", 2, f"file://{tmp_path}/ranks")
    for rank, lines in enumerate(said):
        assert lines == [
            f"[rank {rank}] {line}"
            for line in (
                "sum 3.000000",
                "sum of a part 5.000000",
                "two_phase: the hint ctran::algorithm",
                "plan:to_rank_0_and_back: the hint ctran::algorithm",
                "sum by a function 3.000000",
                f"was written to by {1 - rank}",
                "refused",
                "no plan",
            )
        ]


PUBLIC_HEADERS = {
    *(f"ctran/{name}.h" for name in ("communicator", "function", "gpu", "plan", "window")),
    *(
        f"ctran/base/{name}.h"
        for name in ("collective_kind", "data_type", "error", "export", "reduce_op", "work")
    ),
    "ctran/bootstrap/store.h",
}


@pytest.mark.parametrize("header", sorted(PUBLIC_HEADERS))
def test_public_headers_need_only_public_headers(header: str, tmp_path: Path) -> None:
    """Copies of these alone compile, each by itself."""
    for name in PUBLIC_HEADERS:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / "include" / name, target)
    program = tmp_path / "program.cpp"
    program.write_text(f'#include "{header}"\n')
    compiler = os.environ.get("CXX", "c++")
    run(compiler, "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", "-I", tmp_path, program)


def test_the_library_shows_its_public_symbols_alone() -> None:
    library = PACKAGE / "lib" / "libctran.so"
    symbols = run("nm", "-DC", "--defined-only", library).splitlines()
    names = [line.split(" ", 2)[2].replace("[abi:cxx11]", "") for line in symbols]
    public = re.compile(
        r"ctran::api::|ctran::(nameOf|info|opaqueOfSize|collectiveKindNamed|isSupported"
        r"|whyUnsupported|systemError|Work::finish)\("
        r"|(typeinfo|typeinfo name|vtable) for ctran::(api::\w+|Error|Store|WaitHooks|Work)$"
    )
    assert [name for name in names if not public.match(name)] == []
    for wanted in ("Communicator::create(", "Window::create(", "Communicator::enqueue("):
        assert any(name.startswith(f"ctran::api::{wanted}") for name in names), wanted


def test_a_program_on_gpus_without_torch(build: Path, tmp_path: Path) -> None:
    size = 2
    environment = {}
    if not has_gpu():
        standins.build()
        environment = standins.environment(tmp_path)
    elif most_ranks() < size:
        pytest.skip(f"needs {size} GPUs")
    meeting = tmp_path / "ranks"
    meeting.mkdir()
    said = say(build / "gpu_all_reduce", size, meeting, **environment)
    for rank, lines in enumerate(said):
        expected = ["sum 3.000000", "after two replays 12.000000"]
        assert lines == [f"[rank {rank}] {line}" for line in expected]
    linked = run("ldd", build / "gpu_all_reduce")
    assert "libctran" in linked
    assert "torch" not in linked.replace("torchcomms", "")
