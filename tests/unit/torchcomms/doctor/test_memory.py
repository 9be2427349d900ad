"""Checks of memory: each is provoked, and each is content with a good host."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
from harness.doctor import host_of, soft_limit

from torchcomms.cli.doctor import memory
from torchcomms.cli.doctor.finding import BROKEN, GOOD, SLOW

GIB = 1 << 30


def test_memfd_works_here(tmp_path: Path) -> None:
    assert memory.memfd(host_of(tmp_path)).result == GOOD


def test_memfd_where_files_may_not_be_large(tmp_path: Path) -> None:
    with soft_limit(resource.RLIMIT_FSIZE, 1 << 20):
        found = memory.memfd(host_of(tmp_path))
    assert found.result == BROKEN
    assert "ftruncate" in found.reason
    assert found.todo == "ulimit -f unlimited"


def test_memfd_that_a_container_forbids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "memfd_create", refuse)
    found = memory.memfd(host_of(tmp_path))
    assert found.result == BROKEN
    assert "seccomp" in found.todo


@pytest.mark.parametrize(
    ("use", "result"), [(1 * GIB, GOOD), (4 * GIB - (300 << 20), SLOW), (4 * GIB - 4096, BROKEN)]
)
def test_container_memory_of_version_2(tmp_path: Path, use: int, result: str) -> None:
    files = {
        "/proc/self/cgroup": "0::/job/task",
        "/sys/fs/cgroup/job/memory.max": str(4 * GIB),
        "/sys/fs/cgroup/job/memory.current": str(use),
        "/sys/fs/cgroup/job/task/memory.max": "max",
        "/sys/fs/cgroup/job/task/memory.current": str(use),
    }
    found = memory.container_memory(host_of(tmp_path, files))
    assert found.result == result
    assert "of 4 GiB left" in found.reason


def test_container_memory_of_version_1(tmp_path: Path) -> None:
    files = {
        "/proc/self/cgroup": "4:cpu,memory:/job",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
        "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(GIB),
        "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": str(GIB - 1),
    }
    assert memory.container_memory(host_of(tmp_path, files)).result == BROKEN
    assert memory.container_memory(host_of(tmp_path / "none")).result == GOOD


@pytest.mark.parametrize(("blocks", "result"), [(1 << 20, GOOD), (100, SLOW)])
def test_shm_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, result: str
) -> None:
    told = os.statvfs_result((4096, 4096, blocks, blocks, blocks, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: told)
    assert memory.shm_folder(host_of(tmp_path)).result == result


def test_a_larger_shm_folder_is_advised_where_there_are_more_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, free = 24 << 18, 20 << 18
    told = os.statvfs_result((4096, 4096, size, free, free, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: told)
    found = memory.shm_folder(host_of(tmp_path, ranks=1000))
    assert found.result == SLOW
    assert found.todo == "mount -o remount,size=67G /dev/shm (docker run --shm-size=67g)"


def test_no_shm_folder(tmp_path: Path) -> None:
    assert memory.shm_folder(host_of(tmp_path)).result == SLOW


def test_siblings_that_may_be_read(tmp_path: Path) -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() != "0":
        pytest.skip("this kernel does not let siblings be read")
    if memory.read_sibling() == errno.EPERM:
        pytest.skip("this container does not let siblings be read")
    assert memory.ptrace(host_of(tmp_path)).result == GOOD


@pytest.mark.parametrize(("scope", "todo"), [("1", "ptrace_scope=0"), (None, "SYS_PTRACE")])
def test_siblings_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str | None, todo: str
) -> None:
    monkeypatch.setattr(memory, "read_sibling", lambda: errno.EPERM)
    files = {} if scope is None else {"/proc/sys/kernel/yama/ptrace_scope": scope}
    found = memory.ptrace(host_of(tmp_path, files))
    assert found.result == SLOW
    assert "pull" in found.reason
    assert todo in found.todo


THP = "/sys/kernel/mm/transparent_hugepage"
MEMINFO = "MemTotal: 1000000 kB\nHugePages_Free: {}\nHugepagesize: 2048 kB"


@pytest.mark.parametrize(
    ("enabled", "reserved", "result"),
    [
        ("always [madvise] never", 0, GOOD),
        ("always madvise [never]", 0, SLOW),
        ("always [madvise] never", 400, SLOW),
    ],
)
def test_huge_pages(tmp_path: Path, enabled: str, reserved: int, result: str) -> None:
    files = {f"{THP}/enabled": enabled, "/proc/meminfo": MEMINFO.format(reserved)}
    assert memory.huge_pages(host_of(tmp_path, files)).result == result
