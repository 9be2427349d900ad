"""What torch.distributed asks of a backend about memory: its allocator, and pools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from harness import Rank, Ranks

import torchcomms

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


@dataclass
class Pool:
    """As much of a torch.cuda.MemPool as is looked at, of tensors."""

    id: tuple[int, int]
    segments: list[torch.Tensor] = field(default_factory=list)

    def snapshot(self) -> list[dict[str, int]]:
        return [
            {"device": 0, "address": one.data_ptr(), "total_size": one.nbytes}
            for one in self.segments
        ]


def registers_pools(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "pools")
    backend = torchcomms._comms._BackendWrapper(comm)
    memory = [backend.mem_allocator.empty([1000]) for _ in range(3)]
    pool, other = Pool((0, 7), memory[:1]), Pool((0, 8), memory[2:])
    backend.register_mem_pool(pool)
    backend.register_mem_pool(other)
    pool.segments.append(memory[1])
    backend.register_mem_pool(pool)  # knows the first
    for tensor in memory:
        with pytest.raises(torchcomms.CommError, match="Double registration"):
            comm.tensor_register(tensor)
    backend.deregister_mem_pool(pool)
    for tensor in memory[:2]:
        comm.tensor_register(tensor)
        comm.tensor_deregister(tensor)
    with pytest.raises(torchcomms.CommError, match="Double registration"):
        comm.tensor_register(memory[2])
    with pytest.raises(torchcomms.CommError, match="This pool is not registered"):
        backend.deregister_mem_pool(pool)
    backend.deregister_mem_pool(other)
    comm.finalize()


def test_pools_are_registered(ranks: MakeRanks) -> None:
    ranks(2).run(registers_pools)
