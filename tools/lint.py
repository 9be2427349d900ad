"""`make lint`: formats, types, floors, stubs, and clang-tidy on what changed."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import site_of_docs as site
from console import ROOT, CommandFailed, attach, say
from environment import Environment, Stamp

CPP = (".h", ".hpp", ".cpp", ".cuh", ".inl")
SKIPPED = {"build", "dist", ".git"}


def sources(*suffixes: str) -> list[Path]:
    """Files of the repository with these suffixes."""
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        hidden = [name for name in folders if name.startswith(".venv") or name in SKIPPED]
        folders[:] = sorted(set(folders) - set(hidden))
        found += [Path(folder) / name for name in sorted(files) if name.endswith(suffixes)]
    return found


def clang_tidy(environment: Environment, build: Path) -> None:
    """clang-tidy on ctran; a file is looked at again when it, a header, or the list changed."""
    say("==> clang-tidy on ctran/")
    units = [file for file in sources(".cpp") if file.is_relative_to(ROOT / "ctran")]
    headers = [f for f in sources(".h", ".inl", ".cuh") if f.is_relative_to(ROOT / "ctran")]
    common = [ROOT / ".clang-tidy", ROOT / "requirements-dev.txt", *headers]
    stamps = {
        unit: Stamp(build / "tidy" / str(unit.relative_to(ROOT)).replace("/", "-"), [unit, *common])
        for unit in units
    }
    todo = [unit for unit in units if not stamps[unit].is_current()]

    def look(unit: Path) -> tuple[Path, int, str]:
        command = [environment.tool("clang-tidy"), "--quiet", "-p", str(build), str(unit)]
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment.variables()
        )
        return unit, result.returncode, result.stdout + result.stderr

    failed = False
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        jobs = [pool.submit(look, unit) for unit in todo]
        for number, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            unit, code, output = job.result()
            say(f"  [{number}/{len(todo)}] {unit.relative_to(ROOT)}")
            if code == 0:
                stamps[unit].set()
            else:
                failed = True
                say(output)
    say(f"  {len(todo)} files looked at, {len(units) - len(todo)} unchanged since they passed")
    if failed:
        raise CommandFailed("clang-tidy")


def checks(environment: Environment, build: Path) -> dict[str, Callable[[], None]]:
    """The checks by name; each raises CommandFailed. `build` has compile_commands.json."""
    python = environment.tool("python")

    def command(title: str, *arguments: str | Path) -> Callable[[], None]:
        return lambda: attach(title, arguments, env=environment.variables())

    files = map(str, sources(*CPP))
    return {
        "floors": command("Includes and imports point down", python, ROOT / "tools/lint_floors.py"),
        "clang-format": command(
            "clang-format", environment.tool("clang-format"), "--dry-run", "-Werror", *files
        ),
        "ruff": command("ruff check", environment.tool("ruff"), "check", "."),
        "ruff format": command("ruff format", environment.tool("ruff"), "format", "--check", "."),
        "mypy": command("mypy --strict", environment.tool("mypy")),
        "docs": command("The site has no warnings", *site.command(environment)),
        "stubs": command("Stubs against the binary", python, ROOT / "tools/check_stubs.py"),
        "clang-tidy": lambda: clang_tidy(environment, build),
    }


def format_all(environment: Environment) -> None:
    variables = environment.variables()
    files = map(str, sources(*CPP))
    attach("clang-format", [environment.tool("clang-format"), "-i", *files], env=variables)
    attach("ruff format", [environment.tool("ruff"), "format", "."], env=variables)
    attach("ruff check", [environment.tool("ruff"), "check", "--fix", "."], env=variables)
