"""`make lint`: formats, types, floors, stubs, and clang-tidy on what changed."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shlex
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


# Files that clang-tidy reads as one: most of its time goes into the headers that they share.
TOGETHER = 12


def _tidy_groups(build: Path) -> dict[str, tuple[list[Path], list[str]]]:
    """Files of one folder of ctran that are compiled alike, and how, by a name for them."""
    alike: dict[tuple[Path, tuple[str, ...]], list[Path]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        unit = Path(entry["file"])
        if not unit.is_relative_to(ROOT / "ctran"):
            continue
        # Everything between the compiler and "-o OBJECT -c FILE".
        flags = shlex.split(entry["command"])[1:]
        flags = flags[: flags.index("-o")]
        folder = Path(*unit.relative_to(ROOT).parts[:2])
        alike.setdefault((folder, tuple(flags)), []).append(unit)
    groups: dict[str, tuple[list[Path], list[str]]] = {}
    for (folder, flags_of_all), units in alike.items():
        for first in range(0, len(units), TOGETHER):
            name = f"{folder.name}-{len(groups)}"
            groups[name] = (sorted(units)[first : first + TOGETHER], list(flags_of_all))
    return groups


def clang_tidy(environment: Environment, build: Path) -> None:
    """clang-tidy on ctran; files are looked at again when one of them, a header, or the list
    changed."""
    say("==> clang-tidy on ctran/")
    headers = [f for f in sources(".h", ".inl", ".cuh") if f.is_relative_to(ROOT / "ctran")]
    common = [ROOT / ".clang-tidy", ROOT / "requirements-dev.txt", *headers]
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    (folder / ".clang-tidy").write_text((ROOT / ".clang-tidy").read_text())
    groups = _tidy_groups(build)
    stamps = {
        name: Stamp(folder / name, [*map(str, units), *flags, *units, *common])
        for name, (units, flags) in groups.items()
    }
    todo = [name for name in groups if not stamps[name].is_current()]

    def look(name: str, units: list[Path], flags: list[str]) -> tuple[int, str]:
        together = folder / f"{name}.cpp"
        together.write_text("".join(f'#include "{unit}"\n' for unit in units))
        command = [environment.tool("clang-tidy"), "--quiet", str(together), "--", *flags]
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment.variables()
        )
        if result.returncode and "clang-diagnostic-error" in result.stdout and len(units) > 1:
            # Two of them call something alike, each in a namespace of its own without a name.
            half = len(units) // 2
            code, output = look(f"{name}a", units[:half], flags)
            other_code, other_output = look(f"{name}b", units[half:], flags)
            return max(code, other_code), output + other_output
        return result.returncode, result.stdout + result.stderr

    failed = False
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        jobs = {pool.submit(look, name, *groups[name]): name for name in todo}
        for number, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            (code, output), units = job.result(), groups[jobs[job]][0]
            say(f"  [{number}/{len(todo)}] {len(units)} files from {units[0].relative_to(ROOT)} on")
            if code == 0:
                stamps[jobs[job]].set()
            else:
                failed = True
                say(output)
    say(f"  {len(todo)} of {len(groups)} groups of files looked at, the others have not changed")
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
        "mypy of tests": command(
            "mypy on the names that tests, examples and benchmarks use",
            environment.tool("mypy"),
            "--config-file",
            ROOT / "tests/mypy.toml",
        ),
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
