"""tools/lint_floors.py finds what points up, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LINT = Path(__file__).parents[2] / "tools" / "lint_floors.py"


def lint(root: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [sys.executable, str(LINT), str(root)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()


LEGAL = {
    "include/ctran/base/error.h": "#include <string>\n#include <memory>\n",
    "include/ctran/communicator.h": '#include "ctran/base/error.h"\n',
    "ctran/api/communicator.cpp": '#include "ctran/communicator.h"\n',
    "ctran/base/rank_list.h": '#include "ctran/base/error.h"\n',
    "ctran/os/signal.h": "#include <signal.h>\n",
    "ctran/engine/work.h": '#include "ctran/base/error.h"\n',
    "ctran/engine/work.cpp": '#include "ctran/engine/work.h"\n#include "work.h"\n',
    "include/comms/torchcomms/TorchComm.hpp": "#include <c10/core/Allocator.h>\n",
    "torchcomms/csrc/TorchComm.cpp": "#include <comms/torchcomms/TorchComm.hpp>\n",
    "torchcomms/csrc/backends/fake/fake.cpp": '#include "comms/torchcomms/TorchComm.hpp"\n',
    "torchcomms/csrc/bindings/module.cpp": '#include "torchcomms/csrc/backends/fake/fake.h"\n',
    "torchcomms/csrc/backends/fake/fake.h": '#include "ctran/engine/work.h"\n',
    "torchcomms/__init__.py": "import torch\nfrom torchcomms import _comms\nfrom . import other\n",
    "torchcomms/other.py": "",
    "tests/unit/base/error_test.cpp": '#include "ctran/engine/work.h"\n',
    "tests/helper.py": "",
}


def test_what_points_down_passes(tmp_path: Path) -> None:
    assert lint(tmp_path, LEGAL) == (0, [])


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("ctran/base/up.h", '\n#include "ctran/engine/work.h"\n', 2),
        ("ctran/base/relative.h", '#include "../engine/work.h"\n', 1),
        ("ctran/os/up.cpp", '#include "torchcomms/csrc/backends/fake/fake.h"\n', 1),
        ("ctran/os/up.cpp", "  #  include <comms/torchcomms/TorchComm.hpp>\n", 1),
        ("ctran/os/test.cpp", '#include "tests/unit/base/error_test.cpp"\n', 1),
        ("ctran/os/torch.cpp", "#include <ATen/ATen.h>\n", 1),
        ("ctran/os/cuda.cpp", "#include <cuda_runtime.h>\n", 1),
        ("ctran/os/python.cpp", "#include <Python.h>\n", 1),
        ("ctran/elsewhere/new.cpp", "", 1),
        ("torchcomms/csrc/up.cpp", '#include "torchcomms/csrc/backends/fake/fake.h"\n', 1),
        ("include/ctran/base/up.h", '#include "ctran/communicator.h"\n', 1),
        ("include/ctran/alone.h", '#include "ctran/base/rank_list.h"\n', 1),
        ("include/comms/torchcomms/alone.hpp", '#include "ctran/engine/work.h"\n', 1),
        ("include/comms/torchcomms/up.hpp", '#include "torchcomms/csrc/backends/fake/fake.h"\n', 1),
        ("torchcomms/other.py", "def f():\n    from torchcomms.other import f\n", 2),
        ("torchcomms/up.py", "import os\nimport tests.helper\n", 2),
        ("torchcomms/up.py", "def f():\n    from tests import helper\n", 2),
    ],
)
def test_what_points_up_is_named_with_its_line(
    tmp_path: Path, file: str, text: str, line: int
) -> None:
    code, complaints = lint(tmp_path, {**LEGAL, file: text})
    assert code == 1
    assert len(complaints) == 1
    assert complaints[0].startswith(f"{file}:{line}: ")


def test_files_that_import_each_other_in_a_circle_are_named(tmp_path: Path) -> None:
    circle = {
        "torchcomms/a.py": "from typing import TYPE_CHECKING\nfrom torchcomms import b, other\n",
        "torchcomms/b.py": "import os\n\nfrom torchcomms.c import name\n",
        "torchcomms/c.py": "def name():\n    from . import a\n",
        "torchcomms/above.py": "from torchcomms import a\n",
    }
    assert lint(tmp_path, {**LEGAL, **circle}) == (
        1,
        [
            "torchcomms/a.py:2: torchcomms/b.py is imported in a circle",
            "torchcomms/b.py:3: torchcomms/c.py is imported in a circle",
            "torchcomms/c.py:2: torchcomms/a.py is imported in a circle",
        ],
    )
