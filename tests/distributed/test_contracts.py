"""What docs/contracts.md promises and no other test shows: threads, forks, signals, leftovers."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks
from harness.devices import CTRAN_GPU
from harness.failing import all_reduce, barrier, error_of, until, until_blocked, wait_for_async
from harness.programs import Program

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
BACKEND = "ctran"


def two_threads_call(rank: Rank, backend: str) -> list[str]:
    comm = rank.comm(backend)
    if rank.rank == 1:
        rank.listen()  # until one of the two threads of rank 0 has been refused
        barrier(comm)
        return []
    errors: list[str] = []

    def call() -> None:
        try:
            barrier(comm)
        except torchcomms.CommError as error:
            errors.append(str(error))
            rank.say("refused")

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("backend", [BACKEND, "gloo"])
def test_a_second_thread_is_refused_and_the_first_goes_on(
    fresh_ranks: MakeRanks, backend: str
) -> None:
    job = fresh_ranks(2).start(two_threads_call, backend)
    assert job.hear(0) == "refused"
    job.say(1)
    (error,) = job.results()[0]
    assert "two threads use communicator" in error
    assert "a communicator of its own" in error


def keep_the_interpreters_lock(rank: Rank, fifo: str) -> None:
    """Until the test writes to the FIFO. Tells the test before."""
    file = os.open(fifo, os.O_RDWR)
    rank.say("keeps it")
    ctypes.PyDLL(None).read(file, ctypes.create_string_buffer(1), 1)  # PyDLL keeps the lock
    os.close(file)


def posts_and_keeps_the_lock(rank: Rank, hosts: int, fifo: str) -> None:
    comm = rank.comm(BACKEND, hosts)
    works = [comm.all_reduce(torch.ones(4), ReduceOp.SUM, async_op=True) for _ in range(20)]
    if rank.rank == 0:
        keep_the_interpreters_lock(rank, fifo)
    for work in works:
        work.wait()


@pytest.mark.parametrize("hosts", [1, 2], ids=["one host", "two hosts"])
def test_operations_go_on_while_the_program_keeps_the_interpreters_lock(
    fresh_ranks: MakeRanks, tmp_path: Path, hosts: int
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    job = fresh_ranks(2).start(posts_and_keeps_the_lock, hosts, str(fifo))
    assert job.hear(0) == "keeps it"
    until(lambda: 1 in job.ended(), "rank 1 has ended")
    fifo.write_bytes(b"1")
    job.results()


def keeps_the_lock_beside_a_gpu(rank: Rank, fifo: str) -> str:
    comm, other = (rank.new_comm(CTRAN_GPU, name) for name in ("this", "other"))

    def tensor() -> torch.Tensor:
        return rank.gpu().place(torch.ones(4))

    if rank.rank == 0:
        late = other.recv(tensor(), 1, async_op=True, timeout=timedelta(seconds=2))
        batch = comm.batch_op_create()
        batch.send(tensor(), 1)
        batch.issue(async_op=True)
        del batch  # nobody else has the tensor
        keep_the_interpreters_lock(rank, fifo)
        return str(error_of(late.wait_blocking))
    rank.listen()
    comm.recv(tensor(), 0, async_op=True).wait_blocking()
    forever = timedelta(hours=1)
    return str(error_of(other.recv(tensor(), 0, async_op=True, timeout=forever).wait_blocking))


def test_what_is_late_on_a_gpu_is_found_while_the_program_keeps_the_interpreters_lock(
    fresh_ranks: MakeRanks, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    job = fresh_ranks(2).start(keeps_the_lock_beside_a_gpu, str(fifo))
    assert job.hear(0) == "keeps it"
    job.say(1)
    until(lambda: 1 in job.ended(), "rank 1 has ended")
    fifo.write_bytes(b"1")
    for error in job.results():
        assert "recv" in error


def names_of_threads(rank: Rank) -> list[str]:
    comms = [rank.new_comm(BACKEND, f"threads-{i}") for i in range(3)]
    for comm in comms:
        wait_for_async(comm)
    names = [Path(task, "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return sorted(name for name in names if name.startswith(("ctran", "comms")))


def test_any_number_of_communicators_has_three_threads(fresh_ranks: MakeRanks) -> None:
    for names in fresh_ranks(2).run(names_of_threads):
        assert set(names) <= {"ctran-progress", "ctran-watcher", "comms-release"}
        assert len(names) == len(set(names))


def forks_and_makes_a_communicator(rank: Rank) -> int:
    all_reduce(rank.comm(BACKEND))
    child = os.fork()
    if child == 0:
        options = torchcomms.CommOptions()
        options.rank, options.size = 0, 1
        alone = torchcomms.new_comm(BACKEND, torch.device("cpu"), "child", options=options)
        wait_for_async(alone)
        alone.finalize()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    all_reduce(rank.comm(BACKEND))
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_makes_communicators_of_its_own(fresh_ranks: MakeRanks) -> None:
    assert fresh_ranks(2).run(forks_and_makes_a_communicator) == [0, 0]


def is_signalled(rank: Rank) -> list[int]:
    seen: list[int] = []
    comm = rank.comm(BACKEND)
    if rank.rank == 0:

        def handler(number: int, _: object) -> None:
            seen.append(number)
            rank.say("handled")

        signal.signal(signal.SIGUSR2, handler)
        rank.say("calling")
    else:
        rank.listen()  # until the handler of rank 0 has run, while its call blocks
    all_reduce(comm)
    return seen


def test_handlers_run_while_a_call_blocks_and_it_goes_on(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(is_signalled)
    until_blocked(job, 0)
    ranks.processes[0].signal(signal.SIGUSR2)
    assert job.hear(0) == "handled"
    job.say(1)
    assert job.results() == [[signal.SIGUSR2], []]


CAUGHT = """
import re
from pathlib import Path

def caught():
    return re.search(r"SigCgt:\\s*(\\w+)", Path("/proc/self/status").read_text())[1]

before = caught()
import torchcomms, torch
comm = torchcomms.new_comm("ctran", torch.device("cpu"))
comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, async_op=True).wait()
print(before, caught())
"""


def test_no_signal_handler_is_installed(tmp_path: Path) -> None:
    ended = Program(CAUGHT, tmp_path).end()
    assert ended.code == 0, ended.err
    before, after = ended.out.split()
    assert before == after


def files_of_shared_memory(rank: Rank) -> list[str]:
    """Those mapped here by which processes could leave something behind."""
    all_reduce(rank.comm(BACKEND), 100_000)
    maps = Path("/proc/self/maps").read_text()
    shared = re.findall(r"^\S+ .w.s \S+ \S+ \d+ +(\S.*)$", maps, re.M)
    assert any(name.startswith("/memfd:") for name in shared)
    return [name for name in shared if not name.startswith("/memfd:")]


def test_shared_memory_has_no_name(fresh_ranks: MakeRanks) -> None:
    assert fresh_ranks(2).run(files_of_shared_memory) == [[], []]
