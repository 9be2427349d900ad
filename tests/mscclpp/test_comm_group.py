"""Groups of ranks: how they come together, what they know, and what goes wrong."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from harness import Rank, Ranks
from harness.ports import free_port
from harness.programs import finish, start

import mscclpp
from mscclpp.native_communicator import NativeCommunicator
from mscclpp.native_library import library

MakeRanks = Callable[[int], Ranks]


def exchange(group: mscclpp.CommGroup) -> None:
    """Everyone tells the next one who it is."""
    rank, size = group.my_rank, group.nranks
    following, previous = (rank + 1) % size, (rank - 1) % size
    mine, theirs = torch.tensor([rank, 7]), torch.zeros(2, dtype=torch.int64)
    if rank % 2 == 0:
        group.send(mine, following, tag=3)
        group.recv(theirs, previous, tag=3)
    else:
        group.recv(theirs, previous, tag=3)
        group.send(mine, following, tag=3)
    assert theirs.tolist() == [previous, 7]
    group.barrier()


def knows(group: mscclpp.CommGroup, rank: Rank) -> None:
    assert (group.my_rank, group.nranks) == (rank.rank, rank.size)
    assert group.nranks_per_node == group.nranks_per_ipc_domain == rank.size
    exchange(group)


def by_address(rank: Rank, trio: str) -> None:
    for _ in range(2):  # the port is free again
        with mscclpp.CommGroup(
            interfaceIpPortTrio=trio, rank=rank.rank, size=rank.size, timeout=60
        ) as group:
            knows(group, rank)


@pytest.mark.parametrize("where", ["lo:127.0.0.1:{}", "127.0.0.1:{}"])
def test_ranks_meet_at_an_address(ranks: MakeRanks, where: str) -> None:
    ranks(4).run(by_address, where.format(free_port()))


def by_store(rank: Rank) -> None:
    store = rank.store("mscclpp")
    for _ in range(2):
        with mscclpp.CommGroup(store=store, rank=rank.rank, size=rank.size) as group:
            knows(group, rank)


def test_ranks_meet_through_a_store(ranks: MakeRanks) -> None:
    ranks(4).run(by_store)


def by_torch_group(rank: Rank) -> None:
    dist.init_process_group("gloo", store=rank.store("world"), rank=rank.rank, world_size=rank.size)
    try:
        with pytest.raises(TypeError, match="pass it as torch_group"):
            mscclpp.CommGroup(dist.group.WORLD)
        with mscclpp.CommGroup(torch_group=dist.group.WORLD) as group:
            knows(group, rank)
    finally:
        dist.destroy_process_group()


def test_ranks_of_a_torch_group_meet(ranks: MakeRanks) -> None:
    ranks(2).run(by_torch_group)


class Mpi:
    """As mpi4py has it: messages are buffers."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._store = rank.store("mpi")

    def Get_rank(self) -> int:
        return self._rank.rank

    def Get_size(self) -> int:
        return self._rank.size

    def Allgather(self, mine: bytearray, everyone: bytearray) -> None:
        self._store.set(str(self._rank.rank), bytes(mine).decode())
        parts = [self._store.get(str(rank)) for rank in range(self._rank.size)]
        everyone[:] = b"".join(parts)


def by_mpi(rank: Rank) -> None:
    with mscclpp.CommGroup(mpi_comm=Mpi(rank)) as group:
        knows(group, rank)


def test_ranks_of_mpi_meet(ranks: MakeRanks) -> None:
    ranks(2).run(by_mpi)


def of_torchcomms(rank: Rank) -> None:
    comm = rank.comm("ctran")
    group = mscclpp.CommGroup.from_comm(comm)
    knows(group, rank)
    assert group.communicator.name == comm.get_name()
    mine = torch.ones(3)
    comm.all_reduce(mine, torch_sum(), async_op=False)
    assert mine.tolist() == [rank.size] * 3
    with pytest.raises(ValueError, match="is none of the engine ctran"):
        mscclpp.CommGroup.from_comm(rank.comm("gloo"))
    with pytest.raises(TypeError, match="from_comm takes communicators of torchcomms"):
        mscclpp.CommGroup(comm)
    with pytest.raises(TypeError, match="from_comm takes communicators of torchcomms"):
        mscclpp.CommGroup(torch_group=comm)


def of_one_name(rank: Rank) -> None:
    """The rows and the columns of a mesh have one name."""
    world = rank.comm("ctran")
    pairs = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    own = [next(pair for pair in one if rank.rank in pair) for one in pairs]
    comms = [world.split(pair, "same") for pair in own]
    for pair, comm in zip(own, comms, strict=True):
        assert comm is not None
        group = mscclpp.CommGroup.from_comm(comm)
        theirs, peer = torch.zeros(1), 1 - group.my_rank
        for _ in range(2):
            if group.my_rank == 0:
                group.send(torch.tensor([float(rank.rank)]), peer)
                group.recv(theirs, peer)
            else:
                group.recv(theirs, peer)
                group.send(torch.tensor([float(rank.rank)]), peer)
            assert theirs.item() == pair[peer]
        assert comm.explain("all_reduce", 8).algorithm


def test_communicators_of_one_name_are_told_apart(ranks: MakeRanks) -> None:
    ranks(4).run(of_one_name)


def torch_sum() -> object:
    from torchcomms import ReduceOp

    return ReduceOp.SUM


def test_a_communicator_of_torchcomms_is_a_group(ranks: MakeRanks) -> None:
    ranks(2).run(of_torchcomms)


def test_torchrun_needs_no_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, mscclpp\n"
        "with mscclpp.CommGroup() as group:\n"
        "    group.barrier()\n"
        "    said = f'{group.my_rank} {group.nranks} {group.nranks_per_node}\\n'\n"
        "    os.write(1, said.encode())\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ended = finish(start([*command, str(program)], tmp_path, {"OMP_NUM_THREADS": "1"}))
    assert ended.code == 0, ended.err
    assert sorted(ended.out.split("\n")) == ["", "0 2 2", "1 2 2"]


@pytest.mark.parametrize("ranks_of_group", [1, 2])
def test_the_environment_of_the_guide_needs_no_torch(tmp_path: Path, ranks_of_group: int) -> None:
    source = (
        "import sys; sys.modules['torch'] = None\n"
        "import mscclpp\n"
        "group = mscclpp.CommGroup()\n"
        "group.barrier()\n"
        "print(group.my_rank, group.nranks)\n"
    )
    where = {"MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", source],
            env={**os.environ, **where, "RANK": str(r), "WORLD_SIZE": str(ranks_of_group)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for r in range(ranks_of_group)
    ]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks_of_group
    assert said == [f"{r} {ranks_of_group}\n" for r in range(ranks_of_group)]


def test_one_process_is_a_group_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    group = mscclpp.CommGroup()
    assert (group.my_rank, group.nranks, group.nranks_per_node) == (0, 1, 1)
    group.barrier()


@pytest.mark.parametrize(
    ("trio", "says"),
    [
        ("lo", "'lo' is no interface, address and port"),
        ("lo:localhost:5000", "is no interface, address and port"),
        ("lo:127.0.0.1:99999", "has no port from 1 to 65535"),
        ("nosuch0:127.0.0.1:5000", "there is no network interface 'nosuch0' here; there are .*lo"),
        ("lo:192.0.2.1:5000", "'lo' does not have the address 192.0.2.1; it has 127.0.0.1"),
    ],
)
def test_an_address_that_makes_no_sense_is_named(trio: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mscclpp.CommGroup(interfaceIpPortTrio=trio, rank=0, size=2)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("MSCCLPP_MASTER_ADDR", "nohost.invalid", "is 'nohost.invalid', which cannot be found"),
        ("MSCCLPP_MASTER_PORT", "p", "must be a number, but is 'p'"),
        ("WORLD_SIZE", "x", "must be a number, but is 'x'"),
        ("RANK", "", "must be a number, but is ''"),
    ],
)
def test_variables_that_make_no_sense_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    right = {"MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": "50000", "RANK": "0"}
    for name, text in {**right, "WORLD_SIZE": "2", variable: value}.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=f"{variable} {says}"):
        mscclpp.CommGroup()


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ("MSCCLPP_MASTER_ADDR", "MSCCLPP_MASTER_PORT"),
        ("MSCCLPP_MASTER_PORT", "MSCCLPP_MASTER_ADDR"),
    ],
)
def test_an_address_without_a_port_and_a_port_without_an_address_are_refused(
    monkeypatch: pytest.MonkeyPatch, there: str, missing: str, empty: bool
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", missing):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(there, "5000")
    if empty:
        monkeypatch.setenv(missing, "")
    with pytest.raises(ValueError, match=f"{there} is set, and {missing} is not"):
        mscclpp.CommGroup()


def test_ranks_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match="there is no rank 2 among 2 ranks"):
        mscclpp.CommGroup(interfaceIpPortTrio="127.0.0.1:5000", rank=2, size=2)
    with pytest.raises(ValueError, match="1000000000 ranks: a group has at most 1048576"):
        mscclpp.CommGroup(interfaceIpPortTrio="127.0.0.1:5000", rank=0, size=10**9)
    with pytest.raises(TypeError, match="needs rank= and size="):
        mscclpp.CommGroup(interfaceIpPortTrio="127.0.0.1:5000", rank=0)
    with pytest.raises(TypeError, match="rank must be an int, not '0'"):
        mscclpp.CommGroup(interfaceIpPortTrio="127.0.0.1:5000", rank="0", size=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="by which ranks find each other"):
        mscclpp.CommGroup(rank=0, size=2)
    with pytest.raises(TypeError, match="mpi_comm must be a communicator of mpi4py"):
        mscclpp.CommGroup(mpi_comm=object())
    for nothing in (5, "host:1", b""):
        with pytest.raises(TypeError, match="store must be one of torch's, or have set, get and"):
            mscclpp.CommGroup(store=nothing, rank=0, size=1)
    with pytest.raises(TypeError, match="torch_group must be a group of torch"):
        mscclpp.CommGroup(torch_group=object())
    with pytest.raises(ValueError, match="no member of torch_group"):
        mscclpp.CommGroup(torch_group=dist.GroupMember.NON_GROUP_MEMBER)
    for seconds in (0, float("inf"), 1e300):
        with pytest.raises(ValueError, match=r"positive number of seconds, not (0|inf|1e\+300)"):
            mscclpp.CommGroup(timeout=seconds)
    with pytest.raises(TypeError, match="a number of seconds, not 'x'"):
        mscclpp.CommGroup(timeout="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes one of"):
        mscclpp.CommGroup(interfaceIpPortTrio="127.0.0.1:5000", store=object(), rank=0, size=2)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(mscclpp.CommError, match=rf"127.0.0.1:{port}.*in use"):
            mscclpp.CommGroup(interfaceIpPortTrio=f"127.0.0.1:{port}", rank=0, size=2, timeout=5)


def test_ranks_that_do_not_come_are_named() -> None:
    trio = f"127.0.0.1:{free_port()}"
    with pytest.raises(mscclpp.CommTimeoutError, match=f"at {trio} for ranks 1, 2 of 3") as raised:
        mscclpp.CommGroup(interfaceIpPortTrio=trio, rank=0, size=3, timeout=0.5)
    assert raised.value.ranks == (1, 2)
    with pytest.raises(mscclpp.CommTimeoutError, match="rank 1 found no rank 0") as raised:
        mscclpp.CommGroup(interfaceIpPortTrio=trio, rank=1, size=3, timeout=0.5)
    assert raised.value.ranks == (0,)


def with_another_secret(rank: Rank, trio: str) -> str:
    os.environ["MSCCLPP_SECRET"] = f"secret {rank.rank}"
    try:
        mscclpp.CommGroup(interfaceIpPortTrio=trio, rank=rank.rank, size=rank.size, timeout=2)
    except (mscclpp.CommError, ValueError) as error:
        return str(error)
    finally:
        del os.environ["MSCCLPP_SECRET"]
    return ""


def test_who_does_not_have_the_secret_cannot_join(ranks: MakeRanks) -> None:
    first, second = ranks(2).run(with_another_secret, f"127.0.0.1:{free_port()}")
    assert "who did not come; a caller from 127.0.0.1 has another secret" in first
    assert "another key" in second
    assert "MSCCLPP_SECRET" in first
    assert "MSCCLPP_SECRET" in second


def messages_of_arrays(rank: Rank) -> None:
    with mscclpp.CommGroup(store=rank.store("arrays"), rank=rank.rank, size=rank.size) as group:
        if rank.rank == 0:
            group.send(np.arange(5.0), 1)
            group.send(b"read only", 1, 9)
        else:
            got = np.zeros(5)
            group.recv(got, 0)
            assert got.tolist() == [0, 1, 2, 3, 4]
            text = bytearray(9)
            group.recv(text, 0, 9)
            assert text == b"read only"
            with pytest.raises(TypeError, match="read-write"):
                group.recv(b"read only", 0)
            with pytest.raises(ValueError, match="contiguous"):
                group.send(torch.zeros(4, 4).t(), 0)


def test_messages_are_any_buffers(ranks: MakeRanks) -> None:
    ranks(2).run(messages_of_arrays)


def aborted(rank: Rank) -> None:
    group = mscclpp.CommGroup(store=rank.store("abort"), rank=rank.rank, size=rank.size)
    if rank.rank == 0:
        group.abort("enough")
    with pytest.raises(mscclpp.AbortedError, match="enough"):
        group.barrier()
    assert group.communicator.is_aborted()


def test_an_abort_ends_calls_of_all_ranks(fresh_ranks: MakeRanks) -> None:
    fresh_ranks(2).run(aborted)


def waits_in_vain(rank: Rank) -> None:
    group = mscclpp.CommGroup(store=rank.store("dies"), rank=rank.rank, size=rank.size)
    if rank.rank == 1:
        os._exit(3)
    with pytest.raises(mscclpp.PeerLostError) as raised:
        group.barrier()
    assert raised.value.ranks == (1,)


def test_a_rank_that_dies_is_named(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(waits_in_vain)
    from harness import Died, Returned

    assert [type(outcome) for outcome in job.outcomes()] == [Returned, Died]


def too_late(rank: Rank) -> None:
    group = mscclpp.CommGroup(store=rank.store("late"), rank=rank.rank, size=rank.size, timeout=30)
    group.communicator.timeout = 0.3
    if rank.rank == 0:
        with pytest.raises(mscclpp.CommTimeoutError) as raised:
            group.barrier()
        assert raised.value.ranks == (1,)
        rank.say("late")
    rank.listen()


def test_a_deadline_names_who_is_late(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(too_late)
    job.hear(0)
    for rank in range(2):
        job.say(rank)
    job.results()


def interrupted(rank: Rank) -> str:
    group = mscclpp.CommGroup(store=rank.store("ctrl-c"), rank=rank.rank, size=rank.size)
    if rank.rank == 1:
        rank.listen()
        return ""
    rank.say("blocked")
    try:
        group.barrier()
    except KeyboardInterrupt:
        return "interrupted"
    return "ended"


def test_ctrl_c_ends_a_wait(fresh_ranks: MakeRanks) -> None:
    ranks = fresh_ranks(2)
    job = ranks.start(interrupted)
    job.hear(0)
    while not ranks.processes[0].is_asleep():
        pass
    ranks.processes[0].signal(signal.SIGINT)
    job.say(1)
    assert job.results() == ["interrupted", ""]


@pytest.mark.parametrize("way", ["address", "store", "native by address", "native by store"])
def test_ctrl_c_ends_a_meeting(way: str, tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    meet: dict[str, Callable[[], object]] = {
        "address": lambda: mscclpp.CommGroup(None, None, where, 0, 2, timeout=60),
        "store": lambda: mscclpp.CommGroup(
            store=dist.FileStore(str(tmp_path / "store"), 2), rank=0, size=2, timeout=60
        ),
        "native by address": lambda: NativeCommunicator(0, 2, where, 60),
        "native by store": lambda: NativeCommunicator(0, 2, f"file://{tmp_path}", 60),
    }
    library()  # so that the signal comes later than its loading
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            meet[way]()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 30


def from_two_threads(rank: Rank) -> None:
    group = mscclpp.CommGroup(store=rank.store("threads"), rank=rank.rank, size=rank.size)
    if rank.rank == 1:
        rank.listen()
        group.barrier()
        return
    waiting = threading.Thread(target=group.barrier)
    waiting.start()
    said = ""
    while "another thread is in a call on this communicator" not in said:  # it is not there yet
        with pytest.raises((RuntimeError, ValueError)) as raised:
            group.communicator.recv(bytearray(0), 7, 0)
        said = str(raised.value)
    rank.say("refused")
    waiting.join()


def test_a_second_thread_is_refused(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(2).start(from_two_threads)
    job.hear(0)
    job.say(1)
    job.results()
