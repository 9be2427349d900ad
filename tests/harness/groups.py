"""torch.distributed on the ranks of a test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from harness.worker import TIMEOUT, Rank
from torchcomms import _c10d

# gloo through torchcomms: torch's own has the plain name.
OVER_GLOO = "torchcomms_gloo"
_numbers = itertools.count()


@contextmanager
def process_group(rank: Rank, backend: str = "ctran", **options: Any) -> Iterator[None]:
    """The default process group of all ranks of this case, for the time of the case."""
    if backend == OVER_GLOO and backend.upper() not in dist.Backend._plugins:
        _c10d.register_backend(backend, ["cpu"], backend="gloo")
    dist.init_process_group(
        backend,
        store=rank.store(f"group/{next(_numbers)}"),
        rank=rank.rank,
        world_size=rank.size,
        **{"timeout": TIMEOUT, **options},
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
