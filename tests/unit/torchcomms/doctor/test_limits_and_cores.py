"""Checks of limits, cores and NUMA nodes."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from harness.doctor import host_of, soft_limit

from torchcomms.cli.doctor import cores, limits
from torchcomms.cli.doctor.finding import BROKEN, GOOD, SLOW


@pytest.mark.parametrize(
    ("soft", "ranks", "result"),
    [(1024, 2, GOOD), (256, 2, SLOW), (64, 2, BROKEN), (256, 64, BROKEN)],
)
def test_descriptors(tmp_path: Path, soft: int, ranks: int, result: str) -> None:
    with soft_limit(resource.RLIMIT_NOFILE, soft):
        found = limits.descriptors(host_of(tmp_path, ranks=ranks))
    assert found.result == result
    assert bool(found.todo) == (result != GOOD)


def test_locked_memory(tmp_path: Path) -> None:
    with soft_limit(resource.RLIMIT_MEMLOCK, 64 << 10):
        assert limits.locked_memory(host_of(tmp_path)).result == GOOD
        host = host_of(tmp_path, {"/sys/class/infiniband/mlx5_0/node_type": "1: CA"})
        found = limits.locked_memory(host)
    assert found.result == SLOW
    assert "mlx5_0" in found.reason
    assert "memlock" in found.todo


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


ONLINE = {"/sys/devices/system/cpu/online": "0-7"}


@pytest.mark.parametrize(("ranks", "result"), [(4, GOOD), (5, SLOW), (9, SLOW)])
def test_cores_by_affinity(tmp_path: Path, four_cores: None, ranks: int, result: str) -> None:
    found = cores.cores(host_of(tmp_path, ONLINE, ranks))
    assert found.result == result
    assert "4 of 8 cores" in found.reason
    if ranks == 5:
        assert "taskset -c 0-7" in found.todo


def test_cores_of_a_rank_that_its_launcher_has_bound(tmp_path: Path, four_cores: None) -> None:
    host = host_of(tmp_path, ONLINE, 2, {"LOCAL_RANK": "0"})
    assert cores.cores(host).result == GOOD


@pytest.mark.parametrize(
    "quota",
    [
        {"/sys/fs/cgroup/cpu.max": "150000 100000"},
        {
            "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
            "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
)
def test_cores_by_quota(tmp_path: Path, four_cores: None, quota: dict[str, str]) -> None:
    found = cores.cores(host_of(tmp_path, ONLINE | quota, 2))
    assert found.result == SLOW
    assert "the time of 1.5" in found.reason
    assert "--cpus" in found.todo


NODES = {
    "/sys/devices/system/node/node0/cpulist": "0-1",
    "/sys/devices/system/node/node1/cpulist": "2-3",
    "/sys/devices/system/node/online": "0-1",
}


def test_numa(tmp_path: Path, four_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = {"LOCAL_RANK": "1"}
    assert cores.numa(host_of(tmp_path / "one")).result == GOOD
    assert cores.numa(host_of(tmp_path, NODES)).result == GOOD
    found = cores.numa(host_of(tmp_path, NODES, 2, launched))
    assert found.result == SLOW
    assert "--numa-binding" in found.todo
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3})
    assert cores.numa(host_of(tmp_path, NODES, 2, launched)).result == GOOD
