"""The corners of what is supported: builds and smoke-tests torchcomms in an environment of each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from console import ROOT, CommandFailed, attach, fail, say
from environment import Environment


@dataclass(frozen=True)
class Corner:
    python: str
    torch: str  # a requirement

    @property
    def name(self) -> str:
        return f"{self.python}-{self.torch.replace('==', '')}"


CORNERS = (
    Corner("3.10", "torch==2.8.0"),
    Corner("3.12", "torch==2.11.0"),
    Corner("3.13", "torch"),
)


def _candidates(version: str) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for folder in sorted(pyenv.glob(f"versions/{version}.*"), reverse=True):
        yield str(folder / "bin" / "python")


def find_python(version: str) -> str | None:
    """An interpreter of that version, X.Y, that runs and can make environments."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
    for candidate in _candidates(version):
        try:
            answer = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
        except OSError:
            continue
        words = answer.stdout.split()
        if answer.returncode == 0 and words[0] == version:
            return words[1]
    return None


def check(corner: Corner) -> None:
    say(f"\n==== Python {corner.python}, {corner.torch}")
    python = find_python(corner.python)
    if python is None:
        say(
            f"  Python {corner.python} is missing: no python{corner.python} on PATH, none under "
            "~/.pyenv/versions (pyenv install brings it)"
        )
        raise CommandFailed(corner.name)
    environment = Environment(ROOT / f".venv-compat-{corner.name}", python)
    environment.create()
    environment.install_torch(corner.torch)
    environment.install_tools(tests=True)
    environment.pip(
        f"Building torchcomms for {corner.name}",
        "-v",
        "--no-build-isolation",
        "--no-deps",
        "--force-reinstall",
        f"-Cbuild-dir=build/compat-{corner.name}",
        ".",
    )
    attach(
        f"Smoke-testing {corner.name}",
        [environment.tool("pytest"), "tests/compat"],
        env=environment.variables(),
    )


def corners() -> dict[str, Callable[[], None]]:
    """A check for each corner, by its name; COMPAT, as in COMPAT=3.10, chooses one Python."""
    wanted = os.environ.get("COMPAT")
    chosen = [corner for corner in CORNERS if wanted in (None, "", corner.python)]
    if not chosen:
        fail(f"COMPAT={wanted}: there are {', '.join(corner.python for corner in CORNERS)}")
    return {corner.name: lambda corner=corner: check(corner) for corner in chosen}  # type: ignore[misc]
