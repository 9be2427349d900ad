"""The code in docs/*.md runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness.programs import Program

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ["communicators.md", "compile.md", "hooks.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    assert blocks
    source = "".join(blocks).replace("/tmp/", f"{tmp_path}/")
    ended = Program(source, tmp_path).end()
    assert ended.code == 0, ended.err
    assert ended.out
