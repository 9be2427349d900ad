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
from console import ROOT, CommandFailed, attach, attach_all, say
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


def _tidy_units(build: Path) -> dict[tuple[str, ...], list[Path]]:
    """Sources of ctran that are compiled alike, by how."""
    alike: dict[tuple[str, ...], list[Path]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        if not source.is_relative_to(ROOT / "ctran"):
            continue
        # Everything between the compiler and "-o OBJECT -c FILE".
        flags = shlex.split(entry["command"])[1:]
        alike.setdefault(tuple(flags[: flags.index("-o")]), []).append(source)
    return alike


def clang_tidy(environment: Environment, build: Path) -> None:
    """clang-tidy on ctran. Sources that are compiled alike are read as one: most of its time goes
    into the headers that they share, and it finds names that are in two of them, which the build
    may compile together as well. They are looked at again when one of them, a header, or the list
    of checks changed."""
    say("==> clang-tidy on ctran/")
    headers = [f for f in sources(".h", ".inl", ".cuh") if f.is_relative_to(ROOT / "ctran")]
    common = [ROOT / ".clang-tidy", ROOT / "requirements-dev.txt", *headers]
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    (folder / ".clang-tidy").write_text((ROOT / ".clang-tidy").read_text())

    def look(name: str, flags: tuple[str, ...], units: list[Path]) -> str:
        """What it has to say of them."""
        stamp = Stamp(folder / name, [*map(str, units), *flags, *units, *common])
        if stamp.is_current():
            return ""
        together = folder / f"{name}.cpp"
        together.write_text("".join(f'#include "{unit}"\n' for unit in units))
        command = [environment.tool("clang-tidy"), "--quiet", str(together), "--", *flags]
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment.variables()
        )
        if result.returncode == 0:
            stamp.set()
            return ""
        return result.stdout + result.stderr

    alike = _tidy_units(build)
    names = [f"unit-{number}" for number in range(len(alike))]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = "".join(pool.map(look, names, alike.keys(), map(sorted, alike.values())))
    say(f"  {sum(map(len, alike.values()))} files, compiled in {len(alike)} ways")
    if found:
        say(found)
        raise CommandFailed("clang-tidy")


def checks(environment: Environment, build: Path) -> dict[str, Callable[[], None]]:
    """The checks by name; each raises CommandFailed. `build` has compile_commands.json."""
    python = environment.tool("python")

    def command(title: str, *arguments: str | Path) -> Callable[[], None]:
        return lambda: attach(title, arguments, env=environment.variables())

    files = map(str, sources(*CPP))
    mypy = environment.tool("mypy")
    slow: dict[str, list[str | Path]] = {
        "mypy --strict": [mypy],
        "mypy on the names that tests, examples and benchmarks use": [
            mypy,
            "--config-file",
            ROOT / "tests/mypy.toml",
        ],
        "The site has no warnings": site.command(environment),
        "Stubs against the binary": [python, ROOT / "tools/check_stubs.py"],
    }
    return {
        "floors": command("Includes and imports point down", python, ROOT / "tools/lint_floors.py"),
        "clang-format": command(
            "clang-format", environment.tool("clang-format"), "--dry-run", "-Werror", *files
        ),
        "ruff": command("ruff check", environment.tool("ruff"), "check", "."),
        "ruff format": command("ruff format", environment.tool("ruff"), "format", "--check", "."),
        # Each of these keeps one core busy.
        "types, docs, stubs": lambda: attach_all(slow, env=environment.variables()),
        "clang-tidy": lambda: clang_tidy(environment, build),
    }


def format_all(environment: Environment) -> None:
    variables = environment.variables()
    files = map(str, sources(*CPP))
    attach("clang-format", [environment.tool("clang-format"), "-i", *files], env=variables)
    attach("ruff format", [environment.tool("ruff"), "format", "."], env=variables)
    attach("ruff check", [environment.tool("ruff"), "check", "--fix", "."], env=variables)
