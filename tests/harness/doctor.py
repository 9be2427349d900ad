"""A host for the checks of `torchcomms doctor`, made of files of a test."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torchcomms.cli.doctor.finding import Host


def host_of(
    root: Path,
    files: Mapping[str, str] | None = None,
    ranks: int = 2,
    environ: Mapping[str, str] | None = None,
) -> Host:
    """`files`: by path such as "/proc/meminfo"."""
    for name, text in (files or {}).items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return Host(root=root, environ=environ or {}, ranks=ranks)


@contextmanager
def soft_limit(kind: int, value: int) -> Iterator[None]:
    """A lower limit of this process for a while."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
