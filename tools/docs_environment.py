#!/usr/bin/env python3
"""Writes docs/environment.md from the variables that the code declares.

With --check nothing is written, and a difference is exit status 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchcomms import _variables

PAGE = Path(__file__).parents[1] / "docs" / "environment.md"
BEGIN = "<!-- written by tools/docs_environment.py: from here -->"
END = "<!-- to here -->"


def table() -> str:
    lines = ["", "| variable | type | default | live | meaning |", "|---|---|---|---|---|"]
    for row in _variables.variables():
        kind = row.type.replace("|", ", ")
        default = f"`{row.default}`" if row.default else ""
        doc = row.doc.replace("|", "\\|")
        page = row.page.removeprefix("docs/")
        if page != PAGE.name:
            doc += f" [{Path(page).stem}]({page})"
        lines.append(f"| `{row.name}` | {kind} | {default} | {'yes' * row.is_live} | {doc} |")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it differs")
    check = parser.parse_args().check
    before, _, rest = PAGE.read_text().partition(BEGIN)
    inside, end, after = rest.partition(END)
    assert end, f"{PAGE} lacks the lines between which the table stands"
    made = table()
    if check:
        if made == inside:
            return 0
        print(f"{PAGE} differs from what the code declares; run `make docs`:\n{made}")
        return 1
    PAGE.write_text(before + BEGIN + made + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
