"""What tests of compiled functions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import Ranks


class Graphs:
    """A backend of torch.compile that keeps what it is given, and hands it on."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.code: list[str] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Any:
        from torch._dynamo.backends.registry import lookup_backend

        self.code.append(module.code)
        return lookup_backend(self.backend)(module, inputs)


def compiled(function: Any, backend: str = "aot_eager") -> tuple[Any, Graphs]:
    """`function` compiled as one graph, by default by ahead-of-time autograd alone: that is where
    effects, mutations and gradients are sorted out."""
    import torch._inductor.config as inductor

    # What compiles many graphs faster and one slower; and processes for it.
    inductor.cpp_cache_precompile_headers = False
    inductor.compile_threads = 1
    graphs = Graphs(backend)
    torch._dynamo.reset()
    return torch.compile(function, backend=graphs, fullgraph=True), graphs


# torch.compile takes long where the machine is busy, the import of Dynamo first of all.
GUARD_SECONDS = 280.0


def run(ranks: Ranks, function: Callable[..., Any], *args: Any) -> list[Any]:
    """As `ranks.run`, with patience."""
    return ranks.start(function, *args).results(GUARD_SECONDS)
