"""torch.distributed on the ranks of a test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from harness.worker import TIMEOUT, Rank
from torchcomms import _c10d

# gloo through torchcomms: torch's own has the plain name.
OVER_GLOO = "torchcomms_gloo"
# Groups so far, by size: on these the processes of a world agree, whatever else they have run.
_made: Counter[int] = Counter()


@contextmanager
def process_group(rank: Rank, backend: str = "ctran", **options: Any) -> Iterator[None]:
    """The default process group of all ranks of this case, for the time of the case."""
    if backend == OVER_GLOO and backend.upper() not in dist.Backend._plugins:
        _c10d.register_backend(backend, ["cpu"], backend="gloo")
    _made[rank.size] += 1
    dist.init_process_group(
        backend,
        store=rank.store(f"group/{_made[rank.size]}"),
        rank=rank.rank,
        world_size=rank.size,
        **{"timeout": TIMEOUT, **options},
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
