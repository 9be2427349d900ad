"""The host's side of `make test-rdma`, with a shell in place of qemu."""

from __future__ import annotations

import lzma
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))

import kernel  # noqa: E402
import machine  # noqa: E402

NO_KERNEL = kernel.Kernel(Path(), Path())


def guest(
    script: str, folder: Path, bounds: machine.Bounds = machine.BOUNDS
) -> tuple[int, list[str]]:
    """Status and lines of a guest that is a script: $1 is what it shares, $2 is its console."""

    def qemu(_: kernel.Kernel, share: Path, console: Path) -> list[str]:
        return ["sh", "-c", script, "qemu", str(share), str(console)]

    lines: list[str] = []
    share, console = folder / "share", folder / "console"
    status = machine.run(
        NO_KERNEL, ["true"], console, share, bounds=bounds, on_line=lines.append, qemu=qemu
    )
    return status, lines


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_the_status_is_the_commands(tmp_path: Path) -> None:
    assert guest('printf "one\\r\\ntwo"; echo 3 > "$1/status"', tmp_path) == (3, ["one", "two"])


def test_the_guest_gets_its_command(tmp_path: Path) -> None:
    status, lines = guest('cat "$1/command"; echo 0 > "$1/status"', tmp_path)
    assert (status, lines) == (0, ["true"])


def test_a_panic_is_an_error_with_the_last_words(tmp_path: Path) -> None:
    script = 'echo starting; echo "Kernel panic - not syncing" >> "$2"'
    with pytest.raises(machine.GuestFailed, match=r"(?s)ended before.*starting.*not syncing"):
        guest(script, tmp_path)


@pytest.mark.parametrize(
    ("bounds", "how"),
    [
        (machine.Bounds(start=0.3), "printed nothing for 0 s after its start"),
        (machine.Bounds(silence=0.4, start=30), "printed nothing for 0 s"),
        (machine.Bounds(total=0.5), "was not done within 0 s"),
    ],
)
def test_a_guest_that_hangs_is_ended(tmp_path: Path, bounds: machine.Bounds, how: str) -> None:
    talks = "" if bounds.start < 1 else "echo booted;"
    begun = time.monotonic()
    with pytest.raises(machine.GuestFailed, match=how):
        guest(f'echo $$ > "$1/pid"; {talks} exec sleep 100', tmp_path, bounds)
    assert time.monotonic() - begun < 20
    assert gone(int((tmp_path / "share" / "pid").read_text()))


def test_each_of_two_machines_sends_to_where_the_other_listens(tmp_path: Path) -> None:
    ends = []
    for number in (0, 1):
        network = machine.Pair(number, tmp_path).options()[1]
        ends.append(dict(part.split("=") for part in network.split(",")[1:]))
    for one, other in (ends, reversed(ends)):
        assert one["local.path"] == other["remote.path"]
    assert ends[0]["local.path"] != ends[1]["local.path"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_who_started_qemu_takes_it_along(tmp_path: Path, how: signal.Signals) -> None:
    program = f"""
import signal, sys
from pathlib import Path
sys.path.append({str(HERE)!r})
import kernel, machine
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
folder = Path({str(tmp_path)!r})
machine.run(kernel.Kernel(Path(), Path()), ["true"], folder / "console", folder / "share",
            qemu=lambda *_: ["sh", "-c", "echo $$; exec sleep 100"])
"""
    command = [sys.executable, "-u", "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        os.kill(starter.pid, how)
        starter.wait(timeout=20)
    assert gone(pid)


def module(file: Path, depends: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"
    file.write_bytes(lzma.compress(content) if file.suffix == ".xz" else content)


def modules(tree: Path, *, without: str = "") -> list[str]:
    """Makes those that are wanted, some of which depend on others; the order of loading."""
    depends = {"rdma_rxe": "ib_uverbs,udp-tunnel", "ib_uverbs": "ib_core", "9p": "netfs,9pnet"}
    for name in (*kernel.MODULES, "ib_core", "udp_tunnel", "9pnet", "crc32_generic"):
        if name != without:
            suffix = ".ko.xz" if name == "veth" else ".ko"
            file = tree / "lib/modules/6/kernel" / (name.replace("_", "-") + suffix)
            module(file, depends.get(name, ""))
    (tree / "lib/modules/6/modules.builtin").write_text("kernel/fs/netfs/netfs.ko\n")
    return [name for name, _ in kernel.load_order(tree)]


def test_modules_are_loaded_after_what_they_need(tmp_path: Path) -> None:
    order = modules(tmp_path)
    assert len(order) == len(set(order))
    assert set(order) >= {f"{name}.ko" for name in kernel.MODULES}
    for first, second in (
        ("ib_core", "ib_uverbs"),
        ("ib_uverbs", "rdma_rxe"),
        ("udp_tunnel", "rdma_rxe"),
        ("9pnet", "9p"),
    ):
        assert order.index(f"{first}.ko") < order.index(f"{second}.ko")
    assert "crc32_generic.ko" in order
    assert "netfs.ko" not in order, "built in"


def test_a_module_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(kernel.KernelError, match="udp_tunnel"):
        modules(tmp_path, without="udp_tunnel")


def test_the_packages_of_a_kernel_are_those_behind_its_name() -> None:
    depends = {
        kernel.META_PACKAGE: ["linux-image-7.1-amd64"],
        "linux-image-7.1-amd64": ["kmod", "linux-base", "linux-modules-7.1-amd64"],
    }
    found = kernel.kernel_packages(lambda name: depends.get(name, []))
    assert found == ["linux-image-7.1-amd64", "linux-modules-7.1-amd64"]
    assert kernel.kernel_packages(lambda name: []) == []


def test_an_archive_is_what_a_kernel_reads() -> None:
    data = kernel.archive([kernel.File("init", 0o100755, b"#!/bin/sh\n")])
    assert data[:6] == b"070701"
    assert int(data[14:22], 16) == 0o100755
    size, names = int(data[54:62], 16), int(data[94:102], 16)
    assert (size, data[110 : 110 + names]) == (10, b"init\0")
    content = (110 + names + 3) // 4 * 4
    assert data[content : content + size] == b"#!/bin/sh\n"
    assert len(data) % 4 == 0
    assert b"TRAILER!!!\0" in data
