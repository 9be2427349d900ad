"""The virtual environment, and the build that is installed into it."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from console import ROOT, CommandFailed, run, say

VENV = ROOT / ".venv"
SWITCHES = ("NCCL", "NCCLX", "GLOO", "RCCL", "RCCLX", "XCCL", "TRANSPORT")
UV = "uv==0.13.9"
# What `pip config list` shows of settings that uv does not read, and that choose what is installed.
ONLY_PIP_READS = re.compile(r"\.(index-url|extra-index-url|no-index|constraint|pre)=")


def fingerprint(*parts: str | Path) -> str:
    """A hash of texts, and of the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class Stamp:
    """Remembers in a file what a step was done with, so that it is not done twice."""

    def __init__(self, file: Path, inputs: Iterable[str | Path]) -> None:
        self._file = file
        self._wanted = fingerprint(*inputs)

    def is_current(self) -> bool:
        return self._file.exists() and self._file.read_text() == self._wanted

    def set(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self._wanted)


def parallel_jobs() -> int:
    """Compilers at a time: one per core, if there are 2 GB of memory for each."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)), memory // (2 << 30)))


class Environment:
    """A virtual environment with some torch, and torchcomms built for it."""

    def __init__(self, folder: Path = VENV, python: str = sys.executable) -> None:
        self.folder = folder
        self._base_python = python

    def tool(self, name: str) -> str:
        """The path of a program that is installed in here."""
        return str(self.folder / "bin" / name)

    def variables(self) -> dict[str, str]:
        """The environment variables of a command that runs in here."""
        # Without bytecode the Python tests take twice the processor: each rank compiles its module.
        unset = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
        result = {k: v for k, v in os.environ.items() if k not in unset}
        result.update(
            VIRTUAL_ENV=str(self.folder),
            PATH=f"{self.folder / 'bin'}:{result.get('PATH', os.defpath)}",
            CMAKE_BUILD_PARALLEL_LEVEL=str(parallel_jobs()),
            PIP_DISABLE_PIP_VERSION_CHECK="1",
            PIP_NO_INPUT="1",
        )
        if shutil.which("ccache"):
            for language in ("C", "CXX"):
                result.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", "ccache")
            # What one checkout or build folder has compiled, others get.
            result.setdefault("CCACHE_BASEDIR", str(ROOT))
            result.setdefault("CCACHE_NOHASHDIR", "1")
            result.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros")
        return result

    def build_folder(self) -> Path:
        version = self.ask("import sys; print('py%d%d' % sys.version_info[:2])")
        return ROOT / "build" / version

    def ask(self, code: str) -> str:
        """What that Python prints when it runs `code`."""
        return subprocess.run(
            [self.tool("python"), "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env=self.variables(),
        ).stdout.strip()

    def _stamp(self, name: str, *inputs: str | Path) -> Stamp:
        return Stamp(self.folder / ".stamps" / name, inputs)

    def create(self) -> None:
        what = "import sys; print(sys.version, sys.base_prefix)"
        base = subprocess.run(
            [self._base_python, "-c", what], check=True, capture_output=True, text=True
        ).stdout
        # The folder is one of the inputs: an environment that was moved does not work.
        stamp = self._stamp("venv", base, str(self.folder))
        if stamp.is_current():
            return
        name = self.folder.name
        if self.folder.exists():
            shutil.rmtree(self.folder)
        run(f"Making {name}", [self._base_python, "-m", "venv", self.folder])
        self.pip(f"Updating pip in {name}", "--upgrade", "pip>=25.1")
        with suppress(CommandFailed):  # not on this platform: pip does without
            self.pip("Installing uv", "--only-binary", ":all:", UV)
        stamp.set()

    def pip(self, title: str, *arguments: str) -> None:
        command = [self.tool("python"), "-m", "pip", "install", *arguments]
        run(title, command, env=self.variables())

    def _has_uv(self) -> bool:
        """Whether uv can install what pip would."""
        if not Path(self.tool("uv")).exists():
            return False
        command = [self.tool("python"), "-m", "pip", "config", "list"]
        settings = subprocess.run(command, capture_output=True, text=True, env=self.variables())
        return not ONLY_PIP_READS.search(settings.stdout)

    def install(self, name: str, title: str, *arguments: str, files: Iterable[Path] = ()) -> None:
        """Installs from PyPI, unless it was done with these arguments and files.

        By uv, which unpacks on all cores: half the time of pip for torch. Options other than `-r`
        are pip's, and pip installs then, as where uv cannot.
        """
        stamp = self._stamp(name, *arguments, *files)
        if stamp.is_current():
            return
        options = [argument for argument in arguments if argument.startswith("-")]
        if set(options) <= {"-r"} and self._has_uv():
            command = [self.tool("uv"), "pip", "install", "--python", self.tool("python")]
            try:
                run(title, [*command, *arguments], env=self.variables())
                return stamp.set()
            except CommandFailed:
                say("  pip tries it")
        # Each percent of a download on a line of its own, which console makes readable.
        self.pip(title, "--progress-bar", "raw", *arguments)
        stamp.set()

    def install_torch(self, requirement: str) -> None:
        """`requirement` may carry options of pip, as in "torch --index-url ..."."""
        title = f"Installing {requirement.split()[0]} into {self.folder.name} (a download of GBs)"
        self.install("torch", title, *shlex.split(requirement))

    def install_tools(self, *, tests: bool) -> None:
        build, dev = ROOT / "requirements-build.txt", ROOT / "requirements-dev.txt"
        if tests:
            self.install("tools", "Installing tools", "-r", str(dev), files=[build, dev])
        else:
            title = "Installing build tools"
            self.install("build-tools", title, "-r", str(build), files=[build])

    def build(self) -> None:
        """Builds torchcomms and installs it editable: the Python files stay where they are.

        The first time, and when something changed that pip must know of, by pip. After that CMake
        alone brings the binaries up to date.
        """
        for name in ("RCCL", "RCCLX", "XCCL"):  # tests run them on stand-ins
            os.environ.setdefault(f"USE_{name}", "ON")
        folder = self.build_folder()
        python_files = sorted(
            str(file.relative_to(ROOT))
            for package in ("torchcomms", "torchcomms_command", "mscclpp")
            for file in (ROOT / package).glob("**/*.py")
        )
        switches = [os.environ.get(f"USE_{name}", "") for name in SWITCHES]
        torch = "from importlib.metadata import version; print(version('torch'))"
        inputs = [self.ask(torch), *switches, *python_files]
        files = [ROOT / "pyproject.toml", ROOT / "torchcomms" / "version.py"]
        stamp = self._stamp("torchcomms", *inputs, *files)
        if stamp.is_current() and (folder / "build.ninja").exists():
            cmake = self.tool("cmake")
            site = self.ask("import sysconfig; print(sysconfig.get_path('platlib'))")
            build = [cmake, "--build", str(folder), "--target", "installed"]
            run("Building torchcomms", build, env=self.variables())
            install = [cmake, "--install", str(folder), "--prefix", site]
            run("Installing its binaries", install, env=self.variables())
            return
        self.pip(
            "Building torchcomms and installing it, editable",
            "-v",
            "--no-build-isolation",
            "--no-deps",
            f"-Cbuild-dir={folder}",
            "--editable",
            str(ROOT),
        )
        stamp.set()
