"""What is logged, where, and configuration files, as programs see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchcomms

PROGRAM = """
import logging, sys
import torch, torchcomms

if "logging" in sys.argv:
    form = "%(levelname)s|%(name)s|%(rank)s|%(message)s"
    logging.basicConfig(level=1, format=form, stream=sys.stdout)
if "function" in sys.argv:
    torchcomms.use_python_logging()
    torchcomms.use_python_logging()
comm = torchcomms.new_comm("ctran", torch.device("cpu"))
for _ in range(2):
    comm.all_reduce(torch.ones(1000), torchcomms.ReduceOp.SUM, async_op=False)
comm.finalize()
"""

HINTS = """
import torch, torchcomms

hints = {"persistent_store": "true", "nonsense": "1"}
torchcomms.new_comm("gloo", torch.device("cpu"), hints=hints).finalize()
"""


def ranks(
    folder: Path, count: int, *arguments: str, text: str = PROGRAM, **environment: str
) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(text)
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}")
    ours = ("TORCHCOMM", "CTRAN")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    done = subprocess.run(
        [sys.executable, *(launcher if count > 1 else ()), program, *arguments],
        env=clean | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_hints_that_no_backend_knows_are_told(tmp_path: Path) -> None:
    """But not the one that torch.distributed passes to all."""
    if not torchcomms.is_backend_built("gloo"):
        pytest.skip("built with USE_GLOO=0")
    said = ranks(tmp_path, 1, text=HINTS).stderr
    assert "backend gloo does not know the hint 'nonsense'" in said
    assert "persistent_store" not in said


def test_nothing_is_written_unless_something_is_wrong(tmp_path: Path) -> None:
    assert ranks(tmp_path, 1).stderr == ""


def test_a_line_for_each_communicator_and_for_each_operation(tmp_path: Path) -> None:
    said = ranks(tmp_path, 2, TORCHCOMM_LOG="info,collective=debug").stderr.splitlines()
    made = [line for line in said if "info engine" in line]
    assert len(made) == 1, "rank 0 speaks for all"
    assert "rank 0 of 2" in made[0]
    assert "shared memory" in made[0]
    assert "all_reduce step" in made[0]
    reduced = [line for line in said if "debug collective: 'default' all_reduce(sum" in line]
    assert len(reduced) == 4
    assert sum("#2: 4 KB, " in line for line in reduced) == 2


def test_a_file_of_json_for_each_rank(tmp_path: Path) -> None:
    quiet = ranks(
        tmp_path,
        2,
        TORCHCOMM_LOG="debug",
        TORCHCOMM_LOG_TO=f"{tmp_path}/rank%r.log",
        TORCHCOMM_LOG_FORMAT="json",
    )
    assert "ctran[" not in quiet.stderr
    for rank in range(2):
        lines = (tmp_path / f"rank{rank}.log").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert {row["rank"] for row in rows} == {rank}
        assert {"engine", "collective"} <= {row["component"] for row in rows}


@pytest.mark.parametrize("how", ["function", "variable"])
def test_the_module_logging(tmp_path: Path, how: str) -> None:
    to = {"TORCHCOMM_LOG_TO": "python"} if how == "variable" else {}
    done = ranks(tmp_path, 1, "logging", how, TORCHCOMM_LOG="info,collective=trace", **to)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert ["INFO", "torchcomms.engine", "0"] in [row[:3] for row in rows]
    assert sum(row[0] == "TRACE" for row in rows) >= 2
    assert sum("all_reduce(sum" in row[3] for row in rows if row[0] == "DEBUG") == 2


def test_a_mistyped_name_is_told_once_with_the_one_that_is_meant(tmp_path: Path) -> None:
    said = ranks(tmp_path, 1, TORCHCOMM_LOGG="info", CTRAN_TCP_FAMILYY="any").stderr.splitlines()
    assert len(said) == 2
    assert (
        sum("TORCHCOMM_LOGG means nothing; is TORCHCOMM_LOG meant?" in line for line in said) == 1
    )


def test_the_file_says_what_the_environment_does_not(tmp_path: Path) -> None:
    config = tmp_path / "torchcomms.conf"
    config.write_text(
        "# of this cluster\nTORCHCOMM_LOG=info\nCTRAN_SPIN_MICRO=3\nNCCL_DEBUG=INFO\n"
    )
    said = ranks(tmp_path, 1, TORCHCOMM_CONFIG=str(config)).stderr
    assert f"CTRAN_SPIN_MICRO in {config} means nothing; is CTRAN_SPIN_MICROS meant?" in said
    assert f"NCCL_DEBUG in {config} means nothing\n" in said
    assert "info engine: communicator 'default'" in said
    said = ranks(tmp_path, 1, TORCHCOMM_CONFIG=str(config), TORCHCOMM_LOG="error").stderr
    assert said == ""


def test_the_environment_of_python_has_the_file_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchcomms import _variables

    config = tmp_path / "torchcomms.conf"
    config.write_text("MASTER_ADDR=far\nMASTER_PORT=17\n")
    monkeypatch.setenv("TORCHCOMM_CONFIG", str(config))
    monkeypatch.setenv("MASTER_PORT", "18")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    env = _variables.environment()
    assert env.get("MASTER_ADDR") == "far"
    assert env["MASTER_PORT"] == "18"
    assert "TORCHCOMM_RANK" not in env
    assert "MASTER_ADDR (string, default: not set)\n  set to far (in the file)" in (
        _variables.listing(_variables.variables())
    )


def test_other_backends_have_a_line_for_each_communicator_and_operation(tmp_path: Path) -> None:
    text = PROGRAM.replace('"ctran"', '"gloo"')
    said = ranks(tmp_path, 2, text=text, TORCHCOMM_LOG="info,collective=debug").stderr.splitlines()
    made = [line for line in said if " info torch: communicator 'default': rank " in line]
    assert len(made) == 1, "one for both ranks"
    assert "rank 0 of 2 on " in made[0]
    assert made[0].endswith("; backend gloo, device cpu; timeout 600 s")
    reduced = [line for line in said if "debug collective: 'default' all_reduce(sum" in line]
    assert len(reduced) == 4, said
    for number in (1, 2):
        same = [line for line in reduced if f" #{number}: 4 KB, gloo, " in line]
        assert len(same) == 2, reduced
        assert all(line.endswith(" us") for line in same)
