#!/usr/bin/env python3
"""A folder stands above all that it includes: an include or import that points up is an error.
Public headers include public headers alone, and files of Python import each other in no circle.

Prints file:line of each, and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# From the ground up. A folder may use what stands before it, and itself.
FLOORS = (
    "ctran/base",
    "ctran/os",
    "ctran/gpu",
    "ctran/verbs",
    "ctran/trace",
    "ctran/reduce",
    "ctran/bootstrap",
    "ctran/topology",
    "ctran/memory",
    "ctran/transport",
    "ctran/rdma",
    "ctran/plan",
    "ctran/collective",
    "ctran/select",
    "ctran/stream",
    "ctran/engine",
    "ctran/window",
    "ctran/capi",
    "ctran/api",
    "torchcomms/csrc/nccl_plugin",
    "torchcomms/csrc",
    "torchcomms/csrc/backends",
    "torchcomms/csrc/bindings",
    "torchcomms",
    "mscclpp",
    "torchcomms_command",
)
# The public headers are the face of csrc, of the engine, and of mscclpp. Those in folders of
# include/ctran are of the same folder of the engine.
PUBLIC_HEADERS = "include/comms"
PUBLIC_HEADERS_OF_CTRAN = "include/ctran"
PUBLIC_HEADERS_OF_MSCCLPP = "include/mscclpp"
# Above the house: it may use everything, and nothing in the house may use it.
OUTSIDE = ("benchmarks", "examples", "tests", "tools")
# The engine is free of these.
FOREIGN_TO_CTRAN = re.compile(
    r"(torch|ATen|c10|caffe2|pybind11|Python\.h|cuda|nccl|rccl|hip|infiniband|comms)([/_.]|$|\w*\.h)"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
CPP = {".h", ".hpp", ".cpp", ".cuh", ".inl", ".cc"}


def floor_of(path: str) -> int | None:
    """The floor on which a file stands, from its path in the repository."""
    if path.startswith(PUBLIC_HEADERS + "/"):
        return FLOORS.index("torchcomms/csrc")
    if path.startswith(PUBLIC_HEADERS_OF_CTRAN + "/"):
        folder = path.removeprefix("include/").rpartition("/")[0]
        return FLOORS.index(folder if folder in FLOORS else "ctran/api")
    if path.startswith(PUBLIC_HEADERS_OF_MSCCLPP + "/"):
        return FLOORS.index("mscclpp")
    if path.split("/")[0] in OUTSIDE:
        return len(FLOORS)
    best: int | None = None
    for floor, folder in enumerate(FLOORS):
        if path.startswith(folder + "/") and (best is None or len(folder) > len(FLOORS[best])):
            best = floor
    return best


def name_of(floor: int) -> str:
    return FLOORS[floor] if floor < len(FLOORS) else "outside the house"


def included(root: Path, file: Path, name: str, quoted: bool) -> str | None:
    """The path in the repository of an included file; None if it is not one of ours."""
    for folder in [file.parent] * quoted + [root, root / "include"]:
        path = folder / name
        resolved = path.resolve()
        if resolved.is_file() and resolved.is_relative_to(root):
            return str(resolved.relative_to(root))
    return None


def includes(root: Path, file: Path) -> Iterator[tuple[int, str, str | None]]:
    """(line, what is written, path in the repository) of each include."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[2], included(root, file, match[2], match[1] == '"')


def imports(root: Path, file: Path) -> Iterator[tuple[int, str, str | None]]:
    """(line, what is written, path in the repository) of each import, wherever it stands."""
    package = file.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            folder = root / module.replace(".", "/")
            parts = [alias.name for alias in node.names]
            names = [f"{module}.{p}" if (folder / f"{p}.py").is_file() else module for p in parts]
        else:
            continue
        for name in dict.fromkeys(names):
            ours = (root / name.split(".")[0]).is_dir()
            yield node.lineno, name, name.replace(".", "/") + "/" if ours else None


def in_circles(imported: dict[str, dict[str, int]]) -> list[tuple[str, str]]:
    """(file, what it imports) wherever both are left when files that import none of the others, or
    that none of the others imports, are taken away again and again."""
    pairs = {(file, other) for file, others in imported.items() for other in others}
    while True:
        left = {a for a, _ in pairs} & {b for _, b in pairs}
        kept = {(a, b) for a, b in pairs if a in left and b in left}
        if kept == pairs:
            return sorted(pairs)
        pairs = kept


def complaints(root: Path) -> Iterator[str]:
    root = root.resolve()
    imported: dict[str, dict[str, int]] = {}
    for top in ("ctran", "include", "torchcomms", "torchcomms_command", "mscclpp"):
        for file in sorted((root / top).rglob("*")):
            path = str(file.relative_to(root))
            if file.suffix in CPP:
                found = includes(root, file)
            elif file.suffix in (".py", ".pyi"):
                found = imports(root, file)
            else:
                continue
            floor = floor_of(path)
            if floor is None:
                yield f"{path}:1: this folder is not in the list of floors in tools/lint_floors.py"
                continue
            for line, written, target in found:
                if file.suffix == ".py" and target and (root / f"{target[:-1]}.py").is_file():
                    imported.setdefault(path, {})[f"{target[:-1]}.py"] = line
                if path.startswith("ctran/") and not target and FOREIGN_TO_CTRAN.match(written):
                    yield f"{path}:{line}: {written}: the engine includes none of its headers"
                if path.startswith("include/") and target and not target.startswith("include/"):
                    yield f"{path}:{line}: {written}: public headers include public headers alone"
                    continue
                other = floor_of(target) if target else None
                if other is not None and other > floor:
                    yield (
                        f"{path}:{line}: {written} points up, "
                        f"from {name_of(floor)} to {name_of(other)}"
                    )
    for path, circular in in_circles(imported):
        yield f"{path}:{imported[path][circular]}: {circular} is imported in a circle"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    found = list(complaints(parser.parse_args().root))
    for complaint in found:
        print(complaint)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
