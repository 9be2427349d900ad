"""What is logged, where, and configuration files, as programs see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.programs import Ended, Fork, Program, forks_of_launcher, run_forks

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


Ranks = list[Ended]


def lines(ranks: Ranks) -> list[str]:
    """What all ranks wrote to stderr."""
    return [line for rank in ranks for line in rank.err.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def ended(folder: Path) -> dict[str, Ranks]:
    """How all programs ended: forks of one interpreter."""

    def one(*arguments: str, text: str = PROGRAM, **environment: str) -> list[Fork]:
        return [Fork(text, arguments, environment)]

    def two(text: str = PROGRAM, **environment: str) -> list[Fork]:
        return forks_of_launcher(text, 2, **environment)

    config = folder / "torchcomms.conf"
    config.write_text(
        "# of this cluster\nTORCHCOMM_LOG=info\nCTRAN_SPIN_MICRO=3\nNCCL_DEBUG=INFO\n"
    )
    to_files = {"TORCHCOMM_LOG_TO": f"{folder}/rank%r.log", "TORCHCOMM_LOG_FORMAT": "json"}
    all_calls = {"TORCHCOMM_LOG": "info,collective=trace"}
    jobs = {
        "quiet": one(),
        "lines": two(TORCHCOMM_LOG="info,collective=debug"),
        "files": two(TORCHCOMM_LOG="debug", **to_files),
        "function": one("logging", "function", **all_calls),
        "mistyped": one(TORCHCOMM_LOGG="info", CTRAN_TCP_FAMILYY="any"),
        "configured": one(TORCHCOMM_CONFIG=str(config)),
        "overruled": one(TORCHCOMM_CONFIG=str(config), TORCHCOMM_LOG="error"),
    }
    if torchcomms.is_backend_built("gloo"):
        gloo = PROGRAM.replace('"ctran"', '"gloo"')
        jobs["hints"] = one(text=HINTS)
        jobs["gloo"] = two(gloo, TORCHCOMM_LOG="info,collective=debug")
    found = run_forks(jobs, folder)
    for name, ranks in found.items():
        assert all(rank.code == 0 for rank in ranks), (name, ranks)
    return found


def test_hints_that_no_backend_knows_are_told(ended: dict[str, Ranks]) -> None:
    """But not the one that torch.distributed passes to all."""
    if not torchcomms.is_backend_built("gloo"):
        pytest.skip("built with USE_GLOO=0")
    said = ended["hints"][0].err
    assert "backend gloo does not know the hint 'nonsense'" in said
    assert "persistent_store" not in said


def test_nothing_is_written_unless_something_is_wrong(ended: dict[str, Ranks]) -> None:
    assert ended["quiet"][0].err == ""


def test_a_line_for_each_communicator_and_for_each_operation(ended: dict[str, Ranks]) -> None:
    said = lines(ended["lines"])
    made = [line for line in said if "info engine" in line]
    assert len(made) == 1, "rank 0 speaks for all"
    assert "rank 0 of 2" in made[0]
    assert "shared memory" in made[0]
    assert "all_reduce step" in made[0]
    reduced = [line for line in said if "debug collective: 'default' all_reduce(sum" in line]
    assert len(reduced) == 4
    assert sum("#2: 4 KB, " in line for line in reduced) == 2


def test_a_file_of_json_for_each_rank(folder: Path, ended: dict[str, Ranks]) -> None:
    assert not any("ctran[" in line for line in lines(ended["files"]))
    for rank in range(2):
        rows = [json.loads(line) for line in (folder / f"rank{rank}.log").read_text().splitlines()]
        assert {row["rank"] for row in rows} == {rank}
        assert {"engine", "collective"} <= {row["component"] for row in rows}


@pytest.mark.parametrize("how", ["function", "variable"])
def test_the_module_logging(tmp_path: Path, ended: dict[str, Ranks], how: str) -> None:
    done = ended["function"][0] if how == "function" else started_with_the_variable(tmp_path)
    rows = [line.split("|") for line in done.out.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert ["INFO", "torchcomms.engine", "0"] in [row[:3] for row in rows]
    assert sum(row[0] == "TRACE" for row in rows) >= 2
    assert sum("all_reduce(sum" in row[3] for row in rows if row[0] == "DEBUG") == 2


def started_with_the_variable(folder: Path) -> Ended:
    """It is read where torchcomms is imported, which is too early for a fork."""
    env = {"TORCHCOMM_LOG_TO": "python", "TORCHCOMM_LOG": "info,collective=trace"}
    return Program(PROGRAM, folder, ["logging", "variable"], **env).end()


def test_a_mistyped_name_is_told_once_with_the_one_that_is_meant(ended: dict[str, Ranks]) -> None:
    said = lines(ended["mistyped"])
    assert len(said) == 2
    assert (
        sum("TORCHCOMM_LOGG means nothing; is TORCHCOMM_LOG meant?" in line for line in said) == 1
    )


def test_the_file_says_what_the_environment_does_not(folder: Path, ended: dict[str, Ranks]) -> None:
    config = folder / "torchcomms.conf"
    said = ended["configured"][0].err
    assert f"CTRAN_SPIN_MICRO in {config} means nothing; is CTRAN_SPIN_MICROS meant?" in said
    assert f"NCCL_DEBUG in {config} means nothing\n" in said
    assert "info engine: communicator 'default'" in said
    assert ended["overruled"][0].err == ""


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


def test_other_backends_have_a_line_for_each_communicator_and_operation(
    ended: dict[str, Ranks],
) -> None:
    if not torchcomms.is_backend_built("gloo"):
        pytest.skip("built with USE_GLOO=0")
    said = lines(ended["gloo"])
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
