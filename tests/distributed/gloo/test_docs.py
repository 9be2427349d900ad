"""docs/backends/gloo.md says what Gloo and the backend do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchcomms

TOOL = Path(__file__).parents[3] / "tools" / "docs_gloo.py"


@pytest.mark.skipif(not torchcomms.is_backend_built("gloo"), reason="built with USE_GLOO=0")
@pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) < (2, 11),
    reason="the page is about the Gloo of torch 2.11 and newer",
)
def test_tables_are_true() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--check"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
