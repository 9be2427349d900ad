"""`torchcomms doctor` as the ranks of a launcher."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.ports import free_port
from harness.programs import AS_COMMAND, Fork, finish, run_forks, start


def launched(
    folder: Path,
    size: int,
    arguments: list[str],
    hosts: int = 1,
    absent: int = -1,
    last: Mapping[str, str] | None = None,
) -> tuple[list[int], list[str]]:
    """Exit codes and outputs of ranks that are started by hand, on hosts that are simulated."""
    everyone = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    everyone |= {"MASTER_PORT": str(free_port())}
    forks = []
    for rank in range(size):
        if rank == absent:
            continue
        env = {**everyone, "RANK": str(rank)}
        if hosts > 1:
            env["CTRAN_HOST"] = f"host{rank * hosts // size}"
        if rank == size - 1:
            env |= last or {}
        forks.append(Fork(AS_COMMAND, ["doctor", *arguments], env))
    ended = run_forks({"doctor": forks}, folder)["doctor"]
    return [one.code for one in ended], [one.out for one in ended]


def by_name(report: dict[str, Any]) -> dict[str, Any]:
    return {one["check"]: one for one in report["findings"]}


def test_under_torchrun(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=4", "-m", "torchcomms", "doctor"]
    ended = finish(start(command, tmp_path, {}))
    assert ended.code == 0, ended.err
    assert "all 4 ranks answer" in ended.out
    assert "all_reduce of 4 ranks" in ended.out
    assert "latency between ranks" in ended.out
    assert ended.out.count("bandwidth between ranks") == 1  # rank 0 alone prints


def test_two_hosts(tmp_path: Path) -> None:
    codes, out = launched(tmp_path, 4, ["--json"], hosts=2)
    assert codes == [0] * 4
    assert out[1:] == [""] * 3
    report = json.loads(out[0])
    found = by_name(report)
    assert [place["host"] for place in report["places"]] == ["host0"] * 2 + ["host1"] * 2
    assert found["connections"]["reason"].startswith("all of 2 hosts can open connections")
    assert found["clocks"]["details"][0].startswith("host1 is ")
    assert [(one["a"], one["b"]) for one in report["pairs"] if one["same_host"]] == [(0, 1), (2, 3)]
    assert len(report["pairs"]) == 6
    for one in report["pairs"]:
        assert one["latency_us"] > 0
        assert one["bandwidth_gbs"] > 0
        # The same clock, whatever the path.
        assert abs(one["clock_offset_us"]) <= one["clock_error_us"] + 1


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    codes, out = launched(tmp_path, 3, ["--json", "--seconds", "15"], absent=2)
    assert codes == [1, 0]
    found = by_name(json.loads(out[0]))
    assert found["ranks"]["result"] == "broken"
    assert "ranks 2 of 3 did not answer" in found["ranks"]["reason"]
    assert found["pairs"]["result"] == "good"


def test_a_host_that_nobody_can_call_is_named(tmp_path: Path) -> None:
    unreachable = {"CTRAN_TCP_INTERFACES": "no-such-interface"}
    codes, out = launched(tmp_path, 3, ["--json"], hosts=3, last=unreachable)
    assert codes == [1, 0, 0]
    report = json.loads(out[0])
    found = by_name(report)
    assert [one["ranks"] for one in report["findings"] if one["check"] == "interfaces"] == [
        [0, 1],
        [2],
    ]
    assert found["connections"]["result"] == "broken"
    assert found["connections"]["details"] == [
        f"host{rank} (rank {rank}) to host2 (rank 2): has no address that can be reached"
        for rank in (0, 1)
    ]
    results = {(one["a"], one["b"]): one["result"] for one in report["pairs"]}
    assert results == {(0, 1): "good", (0, 2): "broken", (1, 2): "broken"}
    assert found["self_test"]["result"] == "broken"
