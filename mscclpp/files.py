"""Files that several processes may write and read at the same time."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_at_once"]


def write_at_once(path: Path, data: bytes) -> None:
    """Writes a file, and the folders above it: readers see all of it, or what was there before.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(data)
    draft.replace(path)
