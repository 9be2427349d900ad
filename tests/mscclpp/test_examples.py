"""The examples of the torch integration, on the CPU: one under torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from harness.ports import free_port
from harness.programs import finish, forks_of_launcher, run_forks, start

EXAMPLES = Path(__file__).parents[2] / "examples" / "torch-integration"


def output_of(name: str, size: int, folder: Path) -> str:
    """What all ranks of an example print: forks of one interpreter."""
    source = f"import runpy; runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')"
    ended = run_forks({name: forks_of_launcher(source, size)}, folder)[name]
    assert all(one.code == 0 for one in ended), ended
    return "".join(one.out for one in ended)


@pytest.mark.parametrize("size", [2, pytest.param(8, marks=pytest.mark.full)])
def test_default_algorithms(tmp_path: Path, size: int) -> None:
    out = output_of("customized_comm_with_default_algo.py", size, tmp_path)
    lines = [f"[rank {rank}] of {size}: sums are right" for rank in range(size)]
    assert sorted(out.split("\n")) == ["", *lines]


def test_default_algorithms_at_the_address_of_the_guide(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", str(EXAMPLES / "customized_comm_with_default_algo.py")]
    where = {"MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": str(free_port())}
    ended = finish(start(command, tmp_path, where))
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("size", [2, pytest.param(8, marks=pytest.mark.full)])
def test_a_program_of_the_dsl(tmp_path: Path, size: int) -> None:
    out = output_of("customized_comm_with_dsl.py", size, tmp_path)
    lines = sorted(out.split("\n"))[1:]
    assert len(lines) == size
    for rank, line in enumerate(lines):
        assert line.startswith(f"[rank {rank}] of {size}: served by plan:allreduce_nvls-")


def test_tuning(tmp_path: Path) -> None:
    lines = output_of("customized_comm_with_tuning.py", 4, tmp_path).splitlines()
    assert len(lines) == 13
    assert all(": default_allreduce_" in line for line in lines)


def test_a_native_algorithm(tmp_path: Path) -> None:
    size = 4
    out = output_of("customized_allgather.py", size, tmp_path)
    lines = [f"[rank {rank}] of {size}: all blocks are there" for rank in range(size)]
    assert sorted(out.split("\n")) == ["", *lines]
