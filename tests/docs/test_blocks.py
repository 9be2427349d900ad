"""Every code block of the README and of docs/ is run, or at least parsed: none is left out."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from harness import Rank, Ranks
from harness.doc_blocks import PAGES, ROOT, Block, Unmarked, blocks_of, programs_of
from harness.programs import GUARD_SECONDS, finish, start

from torchcomms.cli import main

MakeRanks = Callable[[int], Ranks]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(language: str, mark: str) -> list[Block]:
    return [b for b in BLOCKS if b.language == language and mark in b.marks]


def by_place(blocks: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", blocks, ids=[block.place for block in blocks])


def test_a_block_that_does_not_say_how_it_is_tested_is_refused() -> None:
    for info in ("", "python", "python ranks", "bash", "rust", "python needs=gpu"):
        with pytest.raises(Unmarked):
            blocks_of("page.md", f"# A page\n\n```{info}\n1 + 1\n```\n")
    assert len(BLOCKS) > 40


def runs(rank: Rank, programs: list[Block], port: int, folder: str) -> None:
    os.chdir(folder)
    os.environ |= {"RANK": str(rank.rank), "WORLD_SIZE": str(rank.size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HOME": folder}
    names = {"__name__": "__main__"}
    for block in programs:
        exec(block.compiled(), names)  # type: ignore[call-overload]


def free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("page", [page for page in PAGES if list(programs_of(page))])
def test_python(page: str, fresh_ranks: MakeRanks, tmp_path: Path) -> None:
    for program in programs_of(page):
        fresh_ranks(program.ranks).run(runs, program.blocks, free_port(), str(tmp_path))


@by_place(of("python", "needs"))
def test_python_that_needs_something_else_is_compiled(block: Block) -> None:
    block.compiled()


@by_place(of("bash", "run"))
def test_shell(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for other in blocks_of(block.page):
        if other.file_name is not None:
            (tmp_path / other.file_name).write_text(other.code)
    monkeypatch.chdir(tmp_path)
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["torchcomms"] and not set(words) & {"|", ">", "&&"}:
            assert main(words[1:]) == 0, f"{block.place}: {line}"  # as the command, at once
        elif words:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            ended = finish(start(["bash", "-ec", line], tmp_path, {"PATH": path}), GUARD_SECONDS)
            assert ended.code == 0, f"{block.place}: {line}\n{ended.out}\n{ended.err}"


@by_place(of("bash", "parsed"))
def test_shell_that_is_not_run_names_what_exists(block: Block) -> None:
    assert block.marks["parsed"], f"{block.place}: say why it is not run"
    subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^\s*(?:\w+=\S+ )*make +([a-z-]+)", block.code, re.M):
        assert re.search(rf"^\s*@echo \"make {target} ", makefile, re.M), f"{block.place}: {target}"
    for path in re.findall(r"\b(?:benchmarks|examples|tools|tests/gpu)/[\w./-]+", block.code):
        assert (ROOT / path).exists(), f"{block.place}: {path}"


@by_place([*of("cpp", "compiled"), *of("c", "compiled")])
def test_compiles(block: Block, tmp_path: Path) -> None:
    import torch
    from torch.utils.cpp_extension import include_paths

    source = tmp_path / f"block.{block.language}"
    source.write_text(block.code)
    compiler, standard = ("cc", "c11") if block.language == "c" else ("c++", "c++20")
    folders = [ROOT, ROOT / "include", *include_paths(), sysconfig.get_paths()["include"]]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    command = [compiler, f"-std={standard}", "-fsyntax-only", abi]
    subprocess.run([*command, *(f"-I{folder}" for folder in folders), source], check=True)


@by_place([block for block in BLOCKS if block.language == "json"])
def test_json(block: Block) -> None:
    json.loads(block.code)
