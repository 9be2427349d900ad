"""Memory that ranks of a host share, and reading each other's."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import subprocess
import sys

from torchcomms.cli.doctor import cgroups
from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, human_bytes, slow

_MIB = 1 << 20
_SEGMENT = 16 * _MIB
# As the engine does (ctran/os/shared_memory.cpp); Python names the seals, but not in every build.
_ADD_SEALS = 1033
_SEALS = 0x0001 | 0x0002 | 0x0004  # against further seals, shrinking and growing


def memfd(host: Host) -> Outcome:
    """Creates, sizes, seals, maps and writes a segment, as the engine does."""
    step = "memfd_create"
    try:
        fd = os.memfd_create("torchcomms-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            step = "ftruncate"
            os.ftruncate(fd, _SEGMENT)
            step = "sealing"
            fcntl.fcntl(fd, _ADD_SEALS, _SEALS)
            step = "mmap"
            with mmap.mmap(fd, _SEGMENT) as mapped:
                mapped[0] = mapped[_SEGMENT - 1] = 1
        finally:
            os.close(fd)
    except OSError as error:
        todo = {
            "memfd_create": "let the container's seccomp profile allow memfd_create; Linux 3.17 "
            "or newer is needed",
            "ftruncate": "ulimit -f unlimited",
            "mmap": "ulimit -v unlimited",
        }.get(step, "let the container's seccomp profile allow fcntl(F_ADD_SEALS)")
        return broken(f"{step} of a segment fails: {error.strerror}", todo)
    return good(f"segments of {human_bytes(_SEGMENT)} can be created, sealed and mapped")


def container_memory(host: Host) -> Outcome:
    group = cgroups.memory(host)
    if group is None:
        return good("no control group limits memory")
    limit, use = group
    left = limit - use
    said = f"{human_bytes(left)} of {human_bytes(limit)} left of the control group's memory"
    todo = "give the container more memory (docker run --memory=..., Slurm --mem=...)"
    # Shared memory counts, too; page cache that could be dropped counts as used.
    if left < 8 * _MIB * host.ranks:
        return broken(f"{said}: too little for {host.ranks} ranks, which the kernel kills", todo)
    if left < 256 * _MIB * host.ranks:
        return slow(f"{said}: little for {host.ranks} ranks", todo)
    return good(said)


def shm_folder(host: Host) -> Outcome:
    """The engine does without; NCCL, gloo's users and DataLoader workers do not."""
    try:
        found = os.statvfs(host.root / "dev/shm")
    except OSError as error:
        return slow(
            f"/dev/shm cannot be used ({error.strerror}): ctran does without, NCCL and DataLoader "
            "workers do not",
            "mount -t tmpfs tmpfs /dev/shm",
        )
    free = found.f_bavail * found.f_frsize
    enough = 64 * _MIB * host.ranks
    if free < enough:
        # At least the 8 GB that are usual; what is in use stays.
        size = max(8, -(-(found.f_blocks * found.f_frsize - free + enough) // (1 << 30)))
        return slow(
            f"{human_bytes(free)} free in /dev/shm: ctran does without, NCCL and DataLoader "
            "workers fail when it is full",
            f"mount -o remount,size={size}G /dev/shm (docker run --shm-size={size}g)",
        )
    return good(f"{human_bytes(free)} free in /dev/shm")


_READER = """
import ctypes, sys
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
got = ctypes.create_string_buffer(8)
here = Span(ctypes.addressof(got), 8)
there = Span(int(sys.argv[2]), 8)
read = libc.process_vm_readv
read.restype = ctypes.c_ssize_t
count = read(int(sys.argv[1]), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
print(0 if count == 8 and got.raw == b"readable" else ctypes.get_errno() or -1)
"""
_OWNER = """
import ctypes, sys
kept = ctypes.create_string_buffer(b"readable")
print(ctypes.addressof(kept), flush=True)
sys.stdin.read()
"""


def read_sibling() -> int:
    """Whether a process reads the memory of another child of its parent: 0, or the errno."""
    python = [sys.executable, "-I", "-S", "-c"]
    with subprocess.Popen(
        [*python, _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip()
        reader = subprocess.run(
            [*python, _READER, str(owner.pid), address],
            capture_output=True,
            text=True,
            timeout=30,
        )
        owner.kill()
    return int(reader.stdout or errno.EIO)


def ptrace(host: Host) -> Outcome:
    """Ranks are siblings; `pull` reads their tensors by process_vm_readv."""
    scope = host.read("/proc/sys/kernel/yama/ptrace_scope")
    code = read_sibling()
    if code == 0:
        return good("ranks can read each other's memory (process_vm_readv)")
    said = os.strerror(code) if code > 0 else "other data than written"
    cause = f", kernel.yama.ptrace_scope is {scope}" if scope not in (None, "0") else ""
    todo = (
        "sysctl kernel.yama.ptrace_scope=0 (as root)"
        if cause
        else "run the container with --cap-add SYS_PTRACE, or a seccomp profile that allows "
        "process_vm_readv"
    )
    return slow(
        f"ranks cannot read each other's memory ({said}{cause}): the algorithm `pull` is left out, "
        "and large collectives are copied once more",
        todo,
    )


def huge_pages(host: Host) -> Outcome:
    folder = "/sys/kernel/mm/transparent_hugepage"

    def chosen(name: str) -> str:
        text = host.read(f"{folder}/{name}") or ""
        return text.partition("[")[2].partition("]")[0] or "not known"

    private, shared = chosen("enabled"), chosen("shmem_enabled")
    facts = f"transparent huge pages: {private} for private memory, {shared} for shared"
    meminfo = dict(
        line.split(":", 1)
        for line in (host.read("/proc/meminfo") or "").splitlines()
        if ":" in line
    )

    def count(name: str) -> int:
        return int(meminfo.get(name, "0").split()[0])

    reserved = count("HugePages_Free") * count("Hugepagesize")
    if reserved * 2 > count("MemTotal") > 0:
        return slow(
            f"{human_bytes(reserved * 1024)} of {human_bytes(count('MemTotal') * 1024)} are "
            "reserved as huge pages, which neither torch nor torchcomms uses",
            "sysctl vm.nr_hugepages=0 (as root), unless another program needs them",
            facts,
        )
    if private == "never":
        return slow(
            "transparent huge pages are off: large tensors take 512 times as many page faults",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root), and "
            "THP_MEM_ALLOC_ENABLE=1 for torch",
        )
    return good(facts)


CHECKS = (
    Check("memfd", "memory", "memory that ranks of a host share", memfd),
    Check("container_memory", "memory", "limits of the memory control group", container_memory),
    Check("shm_folder", "memory", "/dev/shm", shm_folder),
    Check("ptrace", "memory", "whether ranks may read each other's memory", ptrace),
    Check("huge_pages", "memory", "transparent and reserved huge pages", huge_pages),
)
