"""`torchcomms bench`: its numbers, its checks, and how it starts its ranks."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks
from harness.programs import AS_COMMAND, Ended, Fork, forks_of_launcher, run_forks
from torch import Tensor

from torchcomms import CommError
from torchcomms.cli import main
from torchcomms.cli.bench import libraries, measure, report
from torchcomms.cli.bench.operations import OPERATIONS, Place

CPU = torch.device("cpu")


def bench(*arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launcher, "-m", "torchcomms", "bench", *arguments]
    ours = ("TORCHCOMM", "CTRAN", "RANK", "WORLD_SIZE")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env=clean
    )


TYPES = ["bfloat16", "int8", "float64"]


def launched(size: int, *arguments: str) -> list[Fork]:
    """The command as the ranks of a launcher."""
    return forks_of_launcher(AS_COMMAND, size, ["bench", *arguments])


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Ended]]:
    """How the ranks of some commands ended."""
    reductions = ("all_reduce", "reduce_scatter", "-o", "max", "-e", "64", "-n", "1")
    in_place = ("all_gather", "reduce_scatter", "all_to_all", "--in-place")
    jobs = {
        **{dtype: launched(2, *reductions, "-d", dtype) for dtype in TYPES},
        "in place": launched(3, *in_place, "-b", "48", "-e", "48", "-n", "1"),
        "no library": launched(2, "all_reduce", "--compare", "no_such", "-e", "8"),
        "memory": launched(1, "all_reduce", "-b", "100000G", "-e", "100000G"),
    }
    return run_forks(jobs, tmp_path_factory.mktemp("bench"))


def test_sizes_are_those_of_nccl_tests() -> None:
    assert measure.sizes(8, 128, 2, None) == [8, 16, 32, 64, 128]
    assert measure.sizes(8, 100, 4, None) == [8, 32]
    assert measure.sizes(1024, 4096, None, 1024) == [1024, 2048, 3072, 4096]
    assert measure.sizes(5, 5, 2, None) == [5]
    assert measure.sizes(8, 64, 1e308, None) == [8]


def test_the_factors_of_busbw_are_those_of_nccl_tests() -> None:
    factors = {name: operation.bus(8) for name, operation in OPERATIONS.items()}
    assert factors.pop("barrier") == 0
    assert factors == {
        "all_reduce": 2 * 7 / 8,
        "all_gather": 7 / 8,
        "reduce_scatter": 7 / 8,
        "all_to_all": 7 / 8,
        "broadcast": 1,
        "reduce": 1,
        "gather": 7 / 8,
        "scatter": 7 / 8,
        "send_recv": 1,
        "all_gather_v": 7 / 8,
        "reduce_scatter_v": 7 / 8,
        "all_to_all_v": 7 / 8,
    }


def test_all_operations_beside_gloo_in_data_and_in_a_plot(tmp_path: Path) -> None:
    plot = tmp_path / "busbw.svg"
    done = bench(
        *("--ranks", "3", "--compare", "gloo,c10d/gloo", "--json", "--plot", str(plot)),
        *("-b", "12", "-e", "12K", "-f", "32", "-n", "3", "-w", "1", "-r", "1"),
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    assert data["ranks"] == 3
    assert data["libraries"] == ["ctran", "gloo", "c10d/gloo"]
    rows = data["rows"]
    for library in data["libraries"]:
        own = [row for row in rows if row["library"] == library]
        assert [row["bytes"] for row in own if row["operation"] == "all_reduce"] == [12, 384, 12288]
        assert {row["operation"] for row in own} == set(OPERATIONS)
        lacks = {row["operation"] for row in own if row["time_us"] is None}
        assert lacks == ({"all_gather_v", "reduce_scatter_v"} if "/" in library else set())
        checked = [row for row in own if row["operation"] not in {"barrier", *lacks}]
        assert all(row["wrong"] == 0 for row in checked)
    for name, type_, redop, root, is_in_place in (
        ("all_reduce", "float32", "sum", None, True),
        ("reduce", "float32", "sum", 1, True),
        ("gather", "float32", "", 1, False),
        ("all_to_all_v", "float32", "", None, False),
        ("barrier", "", "", None, False),
    ):
        first = next(row for row in rows if row["operation"] == name)
        assert (first["type"], first["redop"]) == (type_, redop)
        assert (first["root"], first["in_place"]) == (root, is_in_place)
    for row in rows:
        if row["bytes"] and row["time_us"]:
            algbw = row["bytes"] / row["time_us"] / 1e3
            assert row["algbw_gbs"] == pytest.approx(algbw, rel=0.01, abs=1e-6)
    root = ElementTree.parse(plot).getroot()
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3 * (len(OPERATIONS) - 1), "one without points where a library lacks it"


def test_in_place_is_checked_and_marked(ended: dict[str, list[Ended]]) -> None:
    ranks = ended["in place"]
    assert [rank.code for rank in ranks] == [0] * 3, ranks
    rows = [line for line in ranks[0].out.splitlines() if " 48 " in line]
    assert [line.split()[6] for line in rows] == ["in", "in", "out"]
    assert all(line.split()[-1] == "0" for line in rows)


@pytest.mark.parametrize("dtype", TYPES)
def test_types_and_reductions_are_checked(ended: dict[str, list[Ended]], dtype: str) -> None:
    ranks = ended[dtype]
    assert [rank.code for rank in ranks] == [0] * 2, ranks
    assert "0 wrong elements" in ranks[0].out
    assert dtype in ranks[0].out.splitlines()[0]


def test_ranks_of_a_launcher_print_one_table() -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = bench("all_reduce", "barrier", "-e", "32", "-n", "2", launcher=launcher)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("  all_reduce") for line in lines) == 2
    assert sum(line.startswith("  barrier") for line in lines) == 1


def test_what_cannot_be_done_is_said(
    ended: dict[str, list[Ended]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for rank in ended["no library"]:
        assert (rank.code, "no_such" in rank.err) == (2, True), rank
    for arguments, said in (
        (["all_reduse"], "there is no operation 'all_reduse'"),
        (["-f", "1"], "larger than 1"),
        (["-f", "nan"], "larger than 1"),
        (["-f", "inf"], "larger than 1"),
        (["-b", "64", "-e", "8"], "end before they begin"),
        (["--plot", "/no/such/folder/busbw.svg"], "there is no folder"),
        (["--plot", str(tmp_path)], f"{tmp_path} cannot be written: Is a directory"),
        (["--plot", "/proc/busbw.svg"], "/proc/busbw.svg cannot be written: "),
    ):
        assert main(["bench", *arguments]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bench", "-b", "lots"])
    assert "'lots' is not a size" in capsys.readouterr().err


class _Faulty(libraries.TorchComms):
    """Loses the last element."""

    def all_reduce(self, tensor: Tensor, op: str) -> None:
        last = tensor[-1].clone()
        super().all_reduce(tensor, op)
        tensor[-1] = last


def finds_what_is_wrong(rank: Rank, file: str) -> list[int | None]:
    os.environ.update(RANK=str(rank.rank), WORLD_SIZE=str(rank.size))
    place = Place(rank.rank, rank.size, 0, "sum", torch.float32, CPU)
    store = dist.FileStore(file, rank.size)
    faulty = _Faulty.__new__(_Faulty)
    faulty.name = "faulty"
    faulty._comm = rank.comm("ctran")
    bench = measure.Bench(place, measure.Plan([400], 1, 0, True), store)
    return [row.wrong for row in bench.rows([faulty], OPERATIONS["all_reduce"])]


def test_a_wrong_result_is_counted_on_all_ranks(fresh_ranks: Any, tmp_path: Path) -> None:
    ranks: Ranks = fresh_ranks(2)
    assert ranks.run(finds_what_is_wrong, str(tmp_path / "store")) == [[2], [2]]


def row(library: str, nbytes: int, wrong: int | None) -> measure.Row:
    return measure.Row(library, "all_reduce", nbytes, nbytes // 4, 1e-3, nbytes * 1e3, 1.5e9, wrong)


def test_the_table_has_a_column_for_each_library() -> None:
    both = [row("ctran", 4096, 0), row("gloo", 4096, None)]
    text = report.line(both)
    assert text.count("1000.00") == 2
    assert text.split()[-1] == "-", "not checked"
    assert text.split()[3:7] == ["-", "-", "-", "out"], "type, redop, root and place"
    reduces = dataclasses.replace(both[0], type="bfloat16", op="sum", root=3, is_in_place=True)
    lacks = dataclasses.replace(reduces, library="c10d/gloo", seconds=None)
    words = report.line([reduces, lacks]).replace("|", "").split()
    assert words[:7] == ["all_reduce", "4096", "1024", "bfloat16", "sum", "3", "in"]
    assert words[-4:] == ["-"] * 4
    assert len(report.heading(["ctran", "gloo"]).splitlines()[1].split("|")) == 3
    summed = report.summary([row("ctran", 8, 2), row("ctran", 16, 1)])
    assert summed == "# ctran: mean busbw 1.500 GB/s, 3 wrong elements"
    unseen = report.summary([row("ctran", 8, None)])
    assert unseen == "# ctran: mean busbw 1.500 GB/s, results were not looked at"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["bench", "broadcast", "--root", "2"], "there is no rank 2"),
        (["tune", "--table", "x.csv"], "--table is for --backend nccl"),
        (["tune", "--backend", "nccl", "--device", "cpu"], "NCCL is for GPUs"),
        (["tune", "--backend", "nccl", "--table", "nowhere/x.csv"], "no folder 'nowhere'"),
    ],
)
def test_what_cannot_be_is_said_once_before_ranks_start(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert capsys.readouterr().err.count(said) == 1


def test_ranks_without_a_gpu_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = (
        ["bench", "--device", "cuda", "-e", "8"],
        ["tune", "--backend", "ncclx"],
        ["tune", "--backend", "nccl"],
    )
    ours = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    for gpus, said in (
        (0, "torch has no GPU here that it can use: `torchcomms doctor` says why"),
        (1, "this host has 1 GPU, and 2 ranks on it: start 1 at most"),
    ):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpus=gpus: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        for command in commands:
            for environment in ({}, ours):  # what starts ranks, and one of a launcher's
                with monkeypatch.context() as patch:
                    for name, value in environment.items():
                        patch.setenv(name, value)
                    assert main(command) == 2
                assert capsys.readouterr().err == f"torchcomms {command[0]}: {said}\n"


def test_an_error_of_another_library_is_a_line() -> None:
    class Refuses:
        name = "c10d/refuses"
        lacks = frozenset[str]()

        def all_reduce(self, tensor: Tensor, op: str) -> None:
            raise RuntimeError("no such reduction\nException raised from ...")

    place = Place(0, 1, 0, "sum", torch.float32, CPU)
    bench = measure.Bench(place, measure.Plan([16], 1, 0, True), dist.HashStore())
    with pytest.raises(CommError) as error:
        list(bench.rows([Refuses()], OPERATIONS["all_reduce"]))  # type: ignore[list-item]
    assert str(error.value) == "c10d/refuses: all_reduce of 16 bytes: no such reduction"


def test_memory_that_there_is_not_is_a_line(ended: dict[str, list[Ended]]) -> None:
    (rank,) = ended["memory"]
    assert rank.code == 2
    assert rank.err.startswith("torchcomms bench: ctran: all_reduce of 107374182400000 bytes: ")
    assert rank.err.count("\n") == 1
    assert "can't allocate memory" in rank.err


def test_a_library_that_is_not_there_ends_all_ranks_with_a_line() -> None:
    done = bench("all_reduce", "-e", "8", "--compare", "c10d/no_such")
    assert done.returncode == 2
    said = "torchcomms bench: this torch has no backend 'no_such' of torch.distributed\n"
    assert done.stderr.replace(said, "") == ""


def test_an_error_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[str] = []  # those of two ranks would mix
    stream = SimpleNamespace(write=pieces.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", stream)
    assert main(["bench", "no_such"]) == 2
    assert len(pieces) == 1
    assert pieces[0].endswith("\n")
