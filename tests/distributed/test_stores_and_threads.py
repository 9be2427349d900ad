"""Every store of torch brings ranks together; ranks and communicators may be threads' own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def make(
    store: dist.Store, rank: int, size: int, name: str = "stored", backend: str = BACKEND
) -> torchcomms.TorchComm:
    options = torchcomms.CommOptions()
    options.rank, options.size, options.store = rank, size, store
    options.timeout = timedelta(seconds=60)
    return torchcomms.new_comm(backend, torch.device("cpu"), name, options=options)


def sum_of_ranks(comm: torchcomms.TorchComm, count: int = 3, times: int = 1) -> float:
    for _ in range(times):
        tensor = torch.full((count,), float(comm.get_rank()))
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    return tensor[-1].item()


def meets_in_a_tcp_store(rank: Rank) -> float:
    if rank.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        rank.say(store.port)
    else:
        store = dist.TCPStore("127.0.0.1", rank.listen(), is_master=False)
    result = sum_of_ranks(make(store, rank.rank, rank.size))
    return result + sum_of_ranks(make(dist.PrefixStore("again", store), rank.rank, rank.size))


def test_tcp_store_and_prefix_store(ranks: MakeRanks) -> None:
    job = ranks(3).start(meets_in_a_tcp_store)
    port = job.hear(0)
    job.say(1, port)
    job.say(2, port)
    assert job.results() == [6.0] * 3


def meets_in_a_file_store(rank: Rank, path: str) -> float:
    return sum_of_ranks(make(dist.FileStore(path, rank.size), rank.rank, rank.size))


def test_file_store(ranks: MakeRanks, tmp_path: Any) -> None:
    assert ranks(3).run(meets_in_a_file_store, str(tmp_path / "store")) == [3.0] * 3


def leaves_no_key_in_a_file_store(rank: Rank, path: str) -> list[str]:
    os.umask(0)
    file = Path(path)
    if rank.rank == 1:
        # Rank 0 has come, and tells where it listens, with the key, in a file of this user alone.
        told: list[Path] = []
        while not told:
            beside = [other for other in file.parent.iterdir() if other != file]
            told = [other for other in beside if b"ctran-" in other.read_bytes()]
        assert [other.stat().st_mode & 0o777 for other in told] == [0o600]
        assert b"ctran-" not in file.read_bytes()
    comm = make(dist.PrefixStore("some", dist.FileStore(path, rank.size)), rank.rank, rank.size)
    assert sum_of_ranks(comm) == 1.0
    assert b"ctran-" not in file.read_bytes()
    return [other.name for other in file.parent.iterdir()]


def test_a_file_store_never_has_the_key(fresh_ranks: MakeRanks, tmp_path: Any) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    found = fresh_ranks(2).run(leaves_no_key_in_a_file_store, str(folder / "file"))
    assert found == [["file"]] * 2


@pytest.mark.parametrize("count", [3, 100_000])
def test_hash_store_and_threads_as_ranks(count: int) -> None:
    store = dist.HashStore()
    size = 4

    def run(rank: int) -> float:
        comm = make(store, rank, size)
        result = sum_of_ranks(comm, count, times=50)
        work = comm.all_reduce(torch.ones(count), ReduceOp.SUM, async_op=True)
        work.wait()
        comm.finalize()
        return result

    with ThreadPoolExecutor(size) as pool:
        assert list(pool.map(run, range(size))) == [6.0] * size


def works_in_threads(rank: Rank) -> list[float]:
    """A communicator per thread; nothing orders what the threads do."""
    comms = [rank.new_comm(BACKEND, f"thread-{i}") for i in range(4)]
    with ThreadPoolExecutor(len(comms)) as pool:
        return list(pool.map(lambda comm: sum_of_ranks(comm, 20_000, times=50), comms))


def test_communicators_of_several_threads(ranks: MakeRanks) -> None:
    assert ranks(3).run(works_in_threads) == [[3.0] * 4] * 3


def makes_in_threads(rank: Rank, backend: str) -> set[float]:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True) if rank.rank == 0 else None
    ports = rank.store(f"makes-{backend}")
    if server is not None:
        ports.set("port", str(server.port))
    # Far less than the timeout of the communicators, which the threads never come to use up.
    store = dist.TCPStore("127.0.0.1", int(ports.get("port")), timeout=timedelta(seconds=20))
    names = [f"thread {i}" for i in range(16)]
    with ThreadPoolExecutor(len(names)) as pool:
        made = pool.map(lambda name: make(store, rank.rank, rank.size, name, backend), names)
        found = {sum_of_ranks(comm) for comm in made}
    rank.comm(BACKEND).barrier(async_op=False)  # the server stays until all have what they need
    return found


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_threads_make_communicators_over_one_connection(ranks: MakeRanks, backend: str) -> None:
    assert ranks(2).run(makes_in_threads, backend) == [{1.0}] * 2


def waits_in_threads(rank: Rank) -> list[float]:
    """One thread issues; others wait and look."""
    comm = rank.comm(BACKEND)
    tensors = [torch.full((5_000,), float(rank.rank)) for _ in range(20)]
    works = [comm.all_reduce(t, ReduceOp.SUM, async_op=True) for t in tensors]
    threads = [threading.Thread(target=work.wait) for work in works]
    for thread in threads:
        thread.start()
    while not all(work.is_completed() for work in works):
        pass
    for thread in threads:
        thread.join()
    return [t[0].item() for t in tensors]


def test_works_are_waited_for_in_any_thread(ranks: MakeRanks) -> None:
    assert ranks(3).run(waits_in_threads) == [[3.0] * 20] * 3
