"""The version: that of torchcomms, beside which this package is installed, without importing it."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

__all__ = ["version"]

version: str = run_path(str(Path(__file__).parents[1] / "torchcomms" / "version.py"))["__version__"]
