"""What the newest torch.distributed can ask of a backend: windows, abort hooks, new members."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks
from harness.groups import process_group
from torch import Tensor

import torchcomms

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"

pytestmark = pytest.mark.skipif(
    not hasattr(dist, "_new_window"),
    reason="this torch knows neither windows nor abort hooks",
)


def puts(rank: Rank) -> None:
    with process_group(rank, BACKEND):
        assert dist._supports_window()
        peer = 1 - rank.rank
        memory = torch.zeros(6)
        window = dist._new_window(memory)
        window.put(torch.full((2,), rank.rank + 1.0), peer, 3, False)
        window.signal(peer, True).wait()
        window.wait_signal(peer, True).wait()
        expected = torch.zeros(6)
        expected[3:5] = peer + 1.0
        assert torch.equal(memory, expected)
        with pytest.raises(torchcomms.CommError, match="put"):
            window.put(torch.zeros(4), peer, 3, False)
        window.tensor_deregister()
        shared = torchcomms.empty_shared([4], torch.float32).fill_(rank.rank)
        window.tensor_register(shared)
        mapped: Tensor = window.map_remote_tensor(peer)
        assert mapped.tolist() == [float(peer)] * 4
        assert window.get_attr(peer).access_type.name == "UNIFIED"
        window.tensor_deregister()


def hears_of_aborts(rank: Rank) -> None:
    comm = rank.new_comm(BACKEND, "aborted")
    backend = torchcomms._comms._BackendWrapper(comm)
    assert backend.supports_abort_hooks
    heard: list[int] = []
    for number in range(1, 4):
        backend.register_abort_hook(number, partial(heard.append, number))
    backend.unregister_abort_hook(1)
    backend.unregister_abort_hook(7)
    with pytest.raises(torchcomms.CommError, match="abort hook 2 already"):
        backend.register_abort_hook(2, lambda: None)
    gone = torchcomms._comms._BackendWrapper(comm)
    gone.register_abort_hook(2, lambda: heard.append(4))
    del gone
    comm.abort()
    assert heard == [2, 3]


def changes_members(rank: Rank) -> None:
    with process_group(rank, BACKEND, enable_reconfigure=True):
        assert dist._supports_reconfigure()
        store = rank.store("handles")
        store.set(str(rank.rank), dist._get_reconfigure_handle())
        handles = [store.get(str(r)).decode() for r in range(rank.size)]
        monitored_barrier = partial(dist.group.WORLD.monitored_barrier, timedelta(seconds=20), True)
        if rank.rank == 0:
            # Rank 1 comes later, and has met in no barrier.
            dist._reconfigure(6, handles[:1]).wait()
            monitored_barrier()
        dist._reconfigure(7, handles[::-1]).wait()
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert (backend.rank(), backend.size()) == (rank.size - 1 - rank.rank, rank.size)
        for _ in range(2):
            monitored_barrier()
        value = torch.full((3,), backend.rank() + 1.0)
        dist.all_reduce(value)
        assert value.tolist() == [3.0] * 3
        dist._reconfigure(8, set(handles)).wait()
        dist.all_reduce(value)
        assert value.tolist() == [6.0] * 3
    with process_group(rank, BACKEND):
        assert not dist._supports_reconfigure()


def test_windows(ranks: MakeRanks) -> None:
    ranks(2).run(puts)


def test_abort_hooks(ranks: MakeRanks) -> None:
    ranks(2).run(hears_of_aborts)


def test_reconfigure(ranks: MakeRanks) -> None:
    ranks(2).run(changes_members)
