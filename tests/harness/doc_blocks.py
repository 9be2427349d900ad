"""The code blocks of the documentation, and what they say about how they are tested.

The words behind the language of a block say it:

    python ranks=2        starts a program that runs on so many ranks
    python continued      goes on with that program, with its names
    python needs=gpu      is compiled only; its first line is a comment that says so to readers
    bash run              is run, from a folder with examples/ and the page's named programs
    bash parsed="why"     is parsed only; the make targets and files it names have to exist
    cpp compiled, c compiled
    json, text            is parsed; is no code
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/README.md"]
)
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)(?P=ticks) *$",
    re.M | re.S,
)


class Unmarked(AssertionError):
    """A block does not say how it is tested."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of its first line of code
    language: str
    marks: dict[str, str]
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """What a program is called, if its first line is a comment with a file's name."""
        name = re.match(r"# (\w+\.py)\n", self.code)
        return name[1] if name else None

    def compiled(self) -> object:
        """With the line numbers of the page."""
        return compile("\n" * (self.line - 1) + self.code, str(ROOT / self.page), "exec")


_MARKS = {
    "python": ({"ranks"}, {"continued"}, {"needs"}),
    "bash": ({"run"}, {"parsed"}),
    "cpp": ({"compiled"},),
    "c": ({"compiled"},),
    "json": (set(),),
    "text": (set(),),
}


def blocks_of(page: str, text: str | None = None) -> list[Block]:
    """Raises Unmarked for a block that does not say how it is tested."""
    found = []
    text = (ROOT / page).read_text() if text is None else text
    for fence in _FENCE.finditer(text):
        if fence["info"].startswith("{"):
            continue  # a directive of the site
        language, *words = shlex.split(fence["info"]) or [""]
        marks = {name: value for name, _, value in (word.partition("=") for word in words)}
        line = text.count("\n", 0, fence.start()) + 2
        block = Block(page, line, language, marks, fence["code"])
        if set(marks) not in _MARKS.get(language, ()):
            allowed = " or ".join(
                " ".join([name, *mark]) for name, forms in _MARKS.items() for mark in forms
            )
            raise Unmarked(f"{block.place}: ```{fence['info']} is none of: {allowed}")
        if not marks.get("ranks", "1").isdigit():
            raise Unmarked(f"{block.place}: ranks={marks['ranks']} is no number")
        if "needs" in marks and not re.match(r"# Needs a ", block.code):
            raise Unmarked(f"{block.place}: the first line is no comment '# Needs a ...'")
        found.append(block)
    return found


@dataclass
class Program:
    """Python blocks that run one after another, with the same names, on so many ranks."""

    ranks: int
    blocks: list[Block] = field(default_factory=list)


def programs_of(page: str) -> Iterator[Program]:
    program: Program | None = None
    for block in blocks_of(page):
        if "ranks" in block.marks:
            if program is not None:
                yield program
            program = Program(int(block.marks["ranks"]))
        if block.marks.keys() & {"ranks", "continued"}:
            if program is None:
                raise Unmarked(f"{block.place}: there is no program to continue")
            program.blocks.append(block)
    if program is not None:
        yield program
