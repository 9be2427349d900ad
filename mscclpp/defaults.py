"""The algorithms that are there by default, under the names of MSCCL++, and some beyond.

They are the engine's. A name says which one is taken on one host, and which on GPUs; across hosts
the engine chooses. All of them reduce in the order of the ranks. Those with `nvls` in their names
are served without multicast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mscclpp.algorithm import KINDS, NO_LIMIT, Algorithm, gpu_hints

if TYPE_CHECKING:
    from mscclpp._runtime import Communicator

__all__ = ["DefaultAlgorithm", "default_algorithms"]

_KB, _MB = 1 << 10, 1 << 20


class _Default(NamedTuple):
    collective: str
    on_one_host: str  # "": as the engine likes
    on_gpus: tuple[str, ...]  # the first that can serve the call; none: as the engine likes
    least: int = 0
    most: int = NO_LIMIT
    tags: tuple[str, ...] = ()


_PACKETS = ("one_shot", "two_shot", "pipeline")
_TWO = ("two_shot", "pipeline")
_LINES = ("lines", "pipeline")

# Sizes are those for which a selector should take them; every one serves every size.
_DEFAULTS = {
    "default_allreduce_allpair_packet": _Default("allreduce", "direct", _PACKETS, most=16 * _KB),
    "default_allreduce_nvls_packet": _Default(
        "allreduce", "", _TWO, most=512 * _KB, tags=("nvls",)
    ),
    "default_allreduce_packet": _Default("allreduce", "two_phase", (), most=4 * _MB),
    "default_allreduce_nvls_zero_copy": _Default("allreduce", "", (), tags=("nvls", "zero_copy")),
    "default_allreduce_nvls_warp_pipeline": _Default(
        "allreduce", "two_phase", ("pipeline",), tags=("nvls",)
    ),
    "default_allreduce_nvls_block_pipeline": _Default(
        "allreduce", "two_phase", ("pipeline",), tags=("nvls",)
    ),
    "default_allreduce_fullmesh": _Default("allreduce", "direct", _LINES),
    "default_allreduce_rsag": _Default("allreduce", "two_phase", _LINES),
    "default_allreduce_rsag_pipeline": _Default("allreduce", "two_phase", ("pipeline",)),
    "default_allreduce_rsag_zero_copy": _Default(
        "allreduce", "pull", (), least=512 * _KB, tags=("zero_copy",)
    ),
    "default_allgather_fullmesh": _Default("allgather", "rounds", ()),
    "default_allgather_fullmesh2": _Default("allgather", "pull", ("direct",), tags=("zero_copy",)),
    "default_reduce_scatter_fullmesh": _Default("reducescatter", "rounds", ()),
    "default_reduce_scatter_zero_copy": _Default(
        "reducescatter", "pull", ("pipeline",), tags=("zero_copy",)
    ),
    "default_alltoall_fullmesh": _Default("alltoall", "rounds", ()),
    "default_alltoall_zero_copy": _Default("alltoall", "pull", ("direct",), tags=("zero_copy",)),
    "default_broadcast_fullmesh": _Default("broadcast", "rounds", ()),
    "default_broadcast_zero_copy": _Default("broadcast", "pull", ("direct",), tags=("zero_copy",)),
}


class DefaultAlgorithm(Algorithm):
    """One of the engine's."""

    def __init__(self, name: str) -> None:
        default = _DEFAULTS[name]
        super().__init__(
            name,
            default.collective,
            message_size_range=(default.least, default.most),
            tags=dict.fromkeys(default.tags, 1),
        )
        self._on_one_host = default.on_one_host
        self._on_gpus = default.on_gpus
        if default.collective == "broadcast":
            self._extras = ("root",)

    def _hints(self, comm: Communicator) -> dict[str, str]:
        hints = {"ctran::deterministic": "rank_order"}
        if self._on_one_host and len(set(comm.hosts())) == 1:
            kind = KINDS[self.collective]
            hints["ctran::algorithm"] = f"{kind}={self._on_one_host}"
        return hints

    def _gpu_hints(self, comm: Communicator) -> dict[str, str]:
        return gpu_hints(self.collective, *self._on_gpus)


def default_algorithms() -> list[Algorithm]:
    """All of them, new."""
    return [DefaultAlgorithm(name) for name in _DEFAULTS]
