"""Debian's kernel, unpacked and not installed, and an initramfs with what the guest needs of it."""

from __future__ import annotations

import contextlib
import lzma
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

from console import CommandFailed, run, say  # noqa: E402
from environment import Stamp  # noqa: E402
from system import APT_GET, administrator  # noqa: E402

INIT = Path(__file__).with_name("init.sh")
BUSYBOX = Path("/bin/busybox")
META_PACKAGE = "linux-image-amd64"

# The host's files; a network, and RDMA over it.
MODULES = (
    *("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "veth"),
    *("ib_uverbs", "rdma_rxe", "rdma_ucm"),
)
# rdma_rxe asks for a checksum by name, which a kernel may also have built in.
MODULES_IF_THERE = ("crc32_generic", "crc32_pclmul", "crc32c_generic")

ATTEMPTS = 3
SECONDS_OF_A_DOWNLOAD = 300


class KernelError(Exception):
    """There is no kernel to boot: what is missing, and what to try."""


@dataclass(frozen=True)
class Kernel:
    """What qemu boots."""

    image: Path
    initramfs: Path


def prepare(folder: Path) -> Kernel:
    """The kernel in `folder`, which is made the first time and when what goes into it changes."""
    kernel = Kernel(folder / "vmlinuz", folder / "initramfs")
    stamp = Stamp(folder / "made", [INIT, Path(__file__), BUSYBOX])
    if stamp.is_current() and kernel.image.exists() and kernel.initramfs.exists():
        return kernel
    folder.mkdir(parents=True, exist_ok=True)
    packages = sorted(folder.glob("linux-*.deb")) or download(folder)
    tree = folder / "unpacked"
    shutil.rmtree(tree, ignore_errors=True)
    try:
        for package in packages:
            run(f"Unpacking {package.name}", ["dpkg-deb", "-x", package, tree])
        image = [*tree.glob("boot/vmlinuz-*"), *tree.glob("usr/lib/modules/*/vmlinuz")]
        if not image:
            raise KernelError(f"no vmlinuz in {', '.join(package.name for package in packages)}")
        shutil.copyfile(image[0], kernel.image)
        kernel.initramfs.write_bytes(initramfs(tree, BUSYBOX.read_bytes()))
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    stamp.set()
    return kernel


def download(folder: Path) -> list[Path]:
    """Fetches the packages of the newest kernel that this system's package lists know."""
    partial = folder / "partial"
    for attempt in range(ATTEMPTS):
        if attempt:
            refresh_lists()
        packages = kernel_packages(apt_dependencies)
        if not packages:
            continue
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        command = ["timeout", str(SECONDS_OF_A_DOWNLOAD), *APT_GET, "download"]
        # CommandFailed has said why; an old list names a version that is no longer there.
        with contextlib.suppress(CommandFailed):
            run(f"Downloading {' '.join(packages)}", [*command, *packages], cwd=partial)
            return [file.rename(folder / file.name) for file in sorted(partial.glob("*.deb"))]
    raise KernelError(
        f"{META_PACKAGE}, Debian's kernel, could not be downloaded; to see why, type: "
        f"apt-get update && apt-get download {META_PACKAGE}"
    )


def refresh_lists() -> None:
    prefix = administrator()
    if prefix is None:
        say("without root the package lists stay as they are; try: sudo apt-get update")
        return
    with contextlib.suppress(CommandFailed):
        run("Reading the list of system packages", [*prefix, *APT_GET, "update"])


def apt_dependencies(package: str) -> list[str]:
    command = ["apt-cache", "depends", "--no-recommends", "--no-suggests", package]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return re.findall(r"^\s*Depends: (\S+)$", found.stdout, re.MULTILINE)


def kernel_packages(dependencies: Callable[[str], list[str]]) -> list[str]:
    """The packages behind META_PACKAGE that have a kernel or modules."""
    found: dict[str, None] = {}
    todo = [META_PACKAGE]
    while todo:
        for name in dependencies(todo.pop()):
            if re.match(r"linux-(image|binary|modules)-", name) and name not in found:
                found[name] = None
                todo.append(name)
    return list(found)


def initramfs(tree: Path, busybox: bytes) -> bytes:
    """An archive of busybox, init.sh, and the modules in the order in which they are loaded."""
    modules = list(load_order(tree))
    folders = ("bin", "dev", "host", "modules", "proc", "sys")
    order = "".join(f"{name}\n" for name, _ in modules).encode()
    return archive(
        [
            *(File(name, stat.S_IFDIR | 0o755) for name in folders),
            File("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
            File("bin/busybox", stat.S_IFREG | 0o755, busybox),
            File("init", stat.S_IFREG | 0o755, INIT.read_bytes()),
            *(File(f"modules/{name}", stat.S_IFREG | 0o644, content) for name, content in modules),
            File("modules/order", stat.S_IFREG | 0o644, order),
        ]
    )


@dataclass(frozen=True)
class File:
    """Of an archive."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def archive(files: Iterable[File]) -> bytes:
    """In the format "newc" (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    parts = []
    for inode, file in enumerate([*files, File("TRAILER!!!", 0)], 1):
        name = file.name.encode() + b"\0"
        size = len(file.content)
        fields = (inode, file.mode, 0, 0, 1, 0, size, 0, 0, *file.device, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        parts += [padded(head), padded(file.content)]
    return b"".join(parts)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def load_order(tree: Path) -> Iterator[tuple[str, bytes]]:
    """File names and contents of MODULES, each after those that it depends on."""
    files = {plain(file.name): file for file in tree.glob("**/*.ko*")}
    built_in = {
        plain(Path(line).name)
        for listing in tree.glob("**/modules.builtin")
        for line in listing.read_text().splitlines()
    }
    done: set[str] = set()

    def load(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done or name in built_in:
            return
        done.add(name)
        if name not in files:
            raise KernelError(f"this kernel has no module {name}; it comes from {META_PACKAGE}")
        content = decompressed(files[name])
        for needed in dependencies_of(content):
            yield from load(needed)
        yield f"{name}.ko", content

    for name in (*(name for name in MODULES_IF_THERE if name in files), *MODULES):
        yield from load(name)


def plain(file: str) -> str:
    """The name of a module, of its file: crc32-pclmul.ko.xz is crc32_pclmul."""
    return file.split(".ko")[0].replace("-", "_")


def decompressed(file: Path) -> bytes:
    content = file.read_bytes()
    return lzma.decompress(content) if file.suffix == ".xz" else content


def dependencies_of(module: bytes) -> Iterable[str]:
    """Of the section .modinfo, which is strings that end with 0."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    return found[1].decode().replace("-", "_").split(",") if found and found[1] else ()
