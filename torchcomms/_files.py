"""Files that commands write."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Replaces the content of a file.

    Raises:
        OSError: it cannot be written; `filename` is its path, also where the disk is full.
    """
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
