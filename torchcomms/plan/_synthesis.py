"""Plans made for a topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchcomms.plan._native import call
from torchcomms.plan._plan import Plan, Timeline

# Of GPUs, whose own memory is far faster than what links them: bytes per second.
_MEMORY = {"copy_bandwidth": 1e12, "reduce_bandwidth": 1e12}


@dataclass(frozen=True)
class Synthesis:
    """A plan made for a topology, and how fast the links let it be.

    `bound` is the rate, in GB/s, at which every rank can send what it has to all others, at most:
    no set of nodes lets out more. `rate` is the plan's; the two differ only where whole shares do
    not fit. An all-reduce scatters and gathers, each at these rates.
    """

    plan: Plan
    machine: dict[str, Any]  # for `Plan.simulate`: topology, routes of the data, speed of memory
    bound: float
    rate: float
    _bound_seconds: float
    _seconds: float

    def bound_seconds(self, bytes: float) -> float:
        """How long the links need at least, for blocks of that size."""
        return self._bound_seconds * bytes

    def seconds(self, bytes: float) -> float:
        """How long the plan keeps the busiest link busy."""
        return self._seconds * bytes

    def simulate(
        self, bytes: int, machine: Mapping[str, Any] | None = None, *, units: int = 32
    ) -> Timeline:
        """The plan on its topology in virtual time; `machine` may say more, as for
        `Plan.simulate`."""
        return self.plan.simulate(bytes, {**self.machine, **(machine or {})}, units=units)


def synthesize(
    topology: str | Mapping[str, Any],
    collective: str = "all_gather",
    *,
    shares: int = 64,
    depth: int = 2,
) -> Synthesis:
    """The plan with the highest throughput that there is for a topology.

    Trees from every rank are packed so that together they fill the links (after ForestColl,
    arXiv 2402.06787), in polynomial time and with whole numbers alone.

    Args:
        topology: "nvswitch:8", "pcie:8", "hosts:2x8x4", "torus:4x4", or ranks, switches and links
            (see docs/plans.md).
        collective: all_gather, reduce_scatter or all_reduce.
        shares: into which a rank's data may be divided at most. More come closer to the bound where
            the speeds of links have no large divisor.
        depth: copies of scratch: how many units may be on their way at a time.

    Raises:
        ValueError: the topology makes no sense, or has no way from some rank to some other.
    """
    if not isinstance(topology, (str, Mapping)):
        raise ValueError(f"a topology is a name or an object, not {topology!r:.40}")
    answer = call(
        "synthesize",
        topology=topology if isinstance(topology, str) else dict(topology),
        collective=collective,
        shares=shares,
        depth=depth,
    )
    return Synthesis(
        Plan(answer["plan"]),
        {"topology": answer["topology"], "routes": answer["routes"], **_MEMORY},
        answer["bound"] / 1000,
        answer["rate"] / 1000,
        answer["bound_seconds_per_byte"],
        answer["seconds_per_byte"],
    )
