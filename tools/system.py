"""What only the system can provide: a compiler, Python's headers, venv, GoogleTest."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from console import CommandFailed, fail, run, say

# A mirror that is slow or gone for a moment does not end what is installed from it.
APT_GET = ["apt-get", "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30"]


@dataclass(frozen=True)
class Need:
    """Something that must work on this machine, and the Debian package that brings it."""

    what: str
    package: str
    works: Callable[[], bool]


def _compiler() -> str | None:
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return found
    return None


def _compiles(source: str, *libraries: str, compiler: str | None = None) -> bool:
    compiler = compiler or _compiler()
    if compiler is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "probe.cpp"
        file.write_text(source)
        command = [compiler, "-std=c++20", str(file), "-o", str(file.with_suffix("")), *libraries]
        return subprocess.run(command, capture_output=True).returncode == 0


def _has_compiler() -> bool:
    return _compiles(
        "#include <concepts>\n#include <span>\ntemplate <std::integral T> T one() { return 1; }\n"
        "int main() { return one<int>() - 1; }\n"
    )


def _has_venv() -> bool:
    return all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))


def _has_python_headers() -> bool:
    return (Path(sysconfig.get_path("include")) / "Python.h").exists()


def _has_googletest() -> bool:
    return _compiles(
        "#include <gtest/gtest.h>\nTEST(A, B) {}\n", "-lgtest_main", "-lgtest", "-lpthread"
    )


def clang() -> str | None:
    """A Clang that brings libFuzzer and the sanitizers, and can build the engine."""
    found = shutil.which("clang++")
    source = (
        "#include <coroutine>\n#include <cstddef>\n#include <cstdint>\n"
        'extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) {\n'
        "  return std::noop_coroutine().done();\n}\n"
    )
    flags = "-fsanitize=address,undefined,fuzzer"
    return found if found and _compiles(source, flags, compiler=found) else None


def _try_to_install(purpose: str, *packages: str) -> bool:
    """Whether that could be done, and was."""
    prefix = administrator()
    if shutil.which("apt-get") is None or prefix is None:
        return False
    command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", *APT_GET, "install", "-y"]
    try:
        run("Reading the list of system packages", [*prefix, *APT_GET, "update"])
        run(
            f"Installing for {purpose}: {' '.join(packages)}",
            [*command, "--no-install-recommends", *packages],
        )
    except CommandFailed:
        return False
    return True


def install_clang() -> None:
    """Installs Clang and libFuzzer where that can be done; without them there is no fuzzing.

    Clang then builds the tests with sanitizers too, in little more than half the time of GCC.
    """
    # The library is in a package of its own on newer systems.
    for packages in (["clang"], ["clang", "libclang-rt-dev"]):
        if clang() is not None:
            return
        if not _try_to_install("tests/fuzz", *packages):
            break
    if clang() is None:
        say("no Clang with libFuzzer (Debian and Ubuntu: clang libclang-rt-dev): no fuzzing")


def install_verbs_header() -> None:
    """Installs rdma-core's header where that can be done: a test compares our layouts with it."""
    header = "#include <infiniband/verbs.h>\nint main() {}\n"
    if not _compiles(header) and not _try_to_install("tests/unit/verbs", "libibverbs-dev"):
        say("no <infiniband/verbs.h> (Debian and Ubuntu: libibverbs-dev): its test is skipped")


# In which tests look at what people look at.
_SCREENS = ("chromium", "tmux", "zsh", "fish")


def install_screens() -> None:
    """Installs a browser, a terminal and shells where that can be done."""
    missing = [name for name in _SCREENS if shutil.which(name) is None]
    if missing and not _try_to_install("tests of what people look at", *missing):
        say(f"not there: {', '.join(missing)} (Debian's names): tests that need them are skipped")


def needs(*, tests: bool) -> list[Need]:
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [
        Need("a C++20 compiler", "g++", _has_compiler),
        Need("Python's venv module", f"{python}-venv", _has_venv),
        Need("Python's headers", f"{python}-dev", _has_python_headers),
    ]
    if tests:
        found.append(Need("GoogleTest", "libgtest-dev", _has_googletest))
    return found


@functools.cache
def administrator() -> list[str] | None:
    """What to put before a command that changes the system; None if we may not."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo"):
        allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
        if allowed.returncode == 0:
            return ["sudo", "-n"]
    return None


def needs_of_rdma() -> list[Need]:
    """What tests/rdma needs to boot a virtual machine with soft-RoCE, and to look at it there."""

    def program(what: str, name: str, package: str) -> Need:
        return Need(f"{what} ({name})", package, lambda: shutil.which(name) is not None)

    def has_provider() -> bool:
        return any(Path("/usr/lib").glob("*/libibverbs/librxe-*.so"))

    def has_busybox() -> bool:
        busybox = Path("/bin/busybox")  # of package busybox it needs libraries, and cannot be first
        return busybox.exists() and b"/lib64/ld-linux" not in busybox.read_bytes()

    return [
        program("a virtual machine", "qemu-system-x86_64", "qemu-system-x86"),
        Need("a busybox that needs no libraries", "busybox-static", has_busybox),
        program("what makes RDMA devices", "rdma", "iproute2"),
        program("RDMA's own benchmarks", "ib_write_bw", "perftest"),
        Need("libibverbs with its provider for soft-RoCE", "ibverbs-providers", has_provider),
    ]


def refuse_rdma_elsewhere() -> None:
    """Ends where tests/rdma has never run."""
    if platform.machine() != "x86_64":
        fail(
            "the tests of RDMA boot an x86-64 kernel with the programs of this machine, which is "
            f"{platform.machine()}: nobody has tried that, and it is not supported"
        )


def install_missing(wanted: list[Need]) -> None:
    """Installs the system packages that are missing, or names them and stops."""
    missing = [need for need in wanted if not need.works()]
    if not missing:
        return
    packages = [need.package for need in missing]
    for need in missing:
        say(f"missing: {need.what} (Debian and Ubuntu: {need.package})")
    prefix = administrator()
    if shutil.which("apt-get") is None:
        fail("this system has no apt-get: please install what is missing, then try again")
    if prefix is None:
        fail(f"please run this, then try again:\n  sudo apt-get install {' '.join(packages)}")
    assert prefix is not None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", *APT_GET, "install", "-y"]
    install += ["--no-install-recommends", *packages]
    try:
        run("Reading the list of system packages", [*prefix, *APT_GET, "update"], env=environment)
        run(f"Installing system packages: {' '.join(packages)}", install, env=environment)
    except CommandFailed:
        fail(f"apt-get failed; by hand: sudo apt-get install {' '.join(packages)}")
    for need in missing:
        if not need.works():
            fail(f"{need.package} is installed, and {need.what} still does not work")
