"""torchcomms.transport between processes, on the stand-in for libibverbs.so.1."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any

import pytest
import torch
from harness import Died, Rank, Ranks, Returned, standins
from harness.programs import Ended, Fork, run_forks

import torchcomms

BYTES = 1 << 20


def take_standin(rank: Rank, library: str, variables: dict[str, str]) -> None:
    os.environ.update({"CTRAN_VERBS_LIBRARY": library}, **variables)


def pair(fresh_ranks: Callable[[int], Ranks], **variables: str) -> Ranks:
    ranks = fresh_ranks(2)
    ranks.run(take_standin, str(standins.verbs()), variables)
    return ranks


def tell(rank: Rank, name: str, value: Any) -> Any:
    """What the other rank has told under that name."""
    store = rank.store("transport")
    store.set(f"{name}/{rank.rank}", pickle.dumps(value))
    return pickle.loads(store.get(f"{name}/{1 - rank.rank}"))


def connected(rank: Rank, tensor: torch.Tensor, **options: Any) -> tuple[Any, Any, Any]:
    """A transport to the other rank, the tensor's memory, and the other rank's."""
    from torchcomms.transport import RdmaMemory, RdmaTransport

    memory = RdmaMemory(tensor)
    transport = RdmaTransport("cpu", **options)
    url, remote = tell(rank, "url", (transport.bind(), memory.to_remote_buffer()))
    assert transport.connect(url) == 0
    tell(rank, "connected", True)
    return transport, memory, remote


def sends_and_receives(rank: Rank) -> None:
    from torchcomms.transport import RdmaTransport

    assert RdmaTransport.supported()
    tensor = torch.zeros(2, BYTES, dtype=torch.uint8)
    transport, memory, remote = connected(rank, tensor)
    assert transport.connected()
    tensor[0] = torch.arange(BYTES).to(torch.uint8) + rank.rank
    there = remote.slice(BYTES, BYTES)
    arrives = transport.wait_for_write()
    done = transport.write(memory.to_view(0, BYTES), there, notify=True)
    assert isinstance(done, Future)
    assert arrives.result(60) is None
    assert done.result(60) is None
    expected = torch.arange(BYTES).to(torch.uint8)
    assert torch.equal(tensor[1], expected + (1 - rank.rank))
    # Back again, by a read of what the other end has got.
    tell(rank, "arrived", True)
    tensor[0].zero_()
    transport.read(memory.to_mutable_view(0, BYTES), there).result(60)
    assert torch.equal(tensor[0], expected + rank.rank)
    tell(rank, "read", True)


@pytest.mark.parametrize(
    "variables",
    [{}, {"STAND_IN_VERBS_DEVICES": "1"}, {"CTRAN_IB_QPS": "4", "STAND_IN_VERBS_DEVICES": "4"}],
    ids=str,
)
def test_tensors_are_written_and_read(
    fresh_ranks: Callable[[int], Ranks], variables: dict[str, str]
) -> None:
    pair(fresh_ranks, **variables).run(sends_and_receives)


def sends_batches(rank: Rank) -> None:
    count, each = 2000, 512
    tensor = torch.full((2, count * each), 1 + rank.rank, dtype=torch.uint8)
    transport, memory, remote = connected(rank, tensor)

    def write(part: range) -> list[Future[None]]:
        view, offset = memory.createView, count * each
        return [
            transport.write(
                view(i * each, each), remote.slice(offset + i * each, each), i == count - 1
            )
            for i in part
        ]

    # Of two threads; the last write of all tells the other end.
    others: list[Future[None]] = []
    thread = threading.Thread(target=lambda: others.extend(write(range(count // 2))))
    thread.start()
    thread.join()
    futures = others + write(range(count // 2, count))
    transport.waitForWrite().result(60)
    assert (tensor[1] == 2 - rank.rank).all()
    assert not wait(futures, 60).not_done
    for future in futures:
        future.result()
    tell(rank, "end", True)


def test_a_batch_of_futures_from_two_threads(fresh_ranks: Callable[[int], Ranks]) -> None:
    pair(fresh_ranks).run(sends_batches)


def upstream_spelling(rank: Rank) -> None:
    from torchcomms._transport import RdmaMemory, RdmaTransport

    tensor, into = torch.full((5000,), rank.rank + 1.0), torch.zeros(5000)
    memory, target = RdmaMemory(tensor), RdmaMemory(into)
    transport = RdmaTransport(torch.device("cpu"))
    url, remote = tell(rank, "url", (transport.bind(), memory.to_remote_buffer()))
    assert transport.connect(url) == 0
    tell(rank, "connected", True)
    assert transport.read(target.to_mutable_view(), remote) == 0
    assert (into == 2.0 - rank.rank).all()
    tell(rank, "read", True)
    if rank.rank == 0:
        assert transport.write(RdmaMemory(into * 3).to_view(), remote) == 0
    tell(rank, "written", True)
    if rank.rank == 1:
        assert (tensor == 6).all()


def test_the_spelling_of_upstream(fresh_ranks: Callable[[int], Ranks]) -> None:
    pair(fresh_ranks).run(upstream_spelling)


def waits_for_who_is_killed(rank: Rank) -> str:
    tensor = torch.zeros(8)
    transport, memory, remote = connected(rank, tensor)
    transport.write(memory.to_view(), remote, notify=True).result(60)
    transport.wait_for_write().result(60)
    tell(rank, "both", True)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(torchcomms.PeerLostError, match="has not answered"):
        transport.wait_for_write().result(60)
    with pytest.raises(torchcomms.PeerLostError):
        transport.write(memory.to_view(), remote).result(60)
    assert not transport.connected()
    return "noticed"


def test_who_waits_for_a_killed_peer_is_told(fresh_ranks: Callable[[int], Ranks]) -> None:
    job = pair(fresh_ranks).start(waits_for_who_is_killed)
    assert list(job.outcomes()) == [Returned("noticed"), Died(-signal.SIGKILL)]


def stops(rank: Rank) -> None:
    tensor = torch.zeros(8)
    transport, memory, remote = connected(rank, tensor, timeout=timedelta(seconds=2))
    waiting = transport.wait_for_write()
    transport.close()
    with pytest.raises(torchcomms.AbortedError, match="closed"):
        waiting.result(60)
    with pytest.raises(torchcomms.CommError, match="closed"):
        transport.write(memory.to_view(), remote)
    assert not transport.connected()


def test_closing_ends_what_is_under_way(fresh_ranks: Callable[[int], Ranks]) -> None:
    pair(fresh_ranks).run(stops)


def refuses(rank: Rank) -> None:
    from torchcomms.transport import RdmaMemory, RdmaRemoteBuffer, RdmaTransport

    tensor = torch.zeros(1000)
    transport, memory, remote = connected(rank, tensor)
    for call, text in (
        (lambda: RdmaMemory(torch.zeros(4, 4).t()), "contiguous"),
        (lambda: memory.to_view(0, 4001), "do not lie in"),
        (lambda: memory.to_view(4001), "do not lie in"),
        (lambda: memory.to_view(-1), "0 bytes at offset -1 do not lie in"),
        (lambda: memory.to_mutable_view(0, -1), "-1 bytes at offset 0 do not lie in"),
        (lambda: remote.slice(-1, 1), "do not lie in"),
        (lambda: memory.create_view(tensor.data_ptr() + 4000, 1), "do not lie in"),
        (lambda: remote.slice(1, 4000), "do not lie in"),
        (lambda: transport.write(memory.to_view(), remote.slice(0, 10)), "do not fit"),
        (lambda: RdmaRemoteBuffer(0, 10, "key"), "no key"),
        (lambda: transport.write(memory.to_view(), remote.slice(0, 0)), "do not fit"),
        (lambda: transport.read(memory.to_mutable_view(), remote.slice(0, 0)), "do not fit"),
        (lambda: RdmaTransport("cpu", timeout=timedelta(0)), "must be positive"),
        (lambda: transport.connect(b"x"), "no URL"),
        (lambda: transport.connect(b"\xff"), "no URL"),
        (lambda: RdmaTransport("cpu").wait_for_write(), "not connected"),
        (
            lambda: transport.write(memory.to_view(), memory.to_remote_buffer()),
            "not of the process",
        ),
    ):
        with pytest.raises(torchcomms.CommError, match=text):
            call()
    with pytest.raises(TypeError):
        transport.read(memory.to_view(), remote)
    with pytest.raises(ValueError, match="not meta"):
        RdmaTransport("meta")
    with pytest.raises(ValueError, match="must not be negative"):
        RdmaTransport("cpu", timeout=timedelta(seconds=-1))
    with pytest.raises(TypeError, match="timedelta, not int"):
        RdmaTransport("cpu", timeout=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        transport.connect(None)
    transport.write(memory.to_view(), remote).result(60)
    tell(rank, "end", True)


def test_what_cannot_be_is_refused(fresh_ranks: Callable[[int], Ranks]) -> None:
    pair(fresh_ranks).run(refuses)


def keeps_memory(rank: Rank) -> None:
    from torchcomms.transport import RdmaMemory

    tensor = torch.arange(100_000)
    memory = RdmaMemory(tensor)
    assert not memory.reused_registration
    part = RdmaMemory(tensor[10:])
    assert part.reused_registration
    assert part.local_key == memory.localKey()
    assert part.remote_key != memory.remoteKey()
    assert part.remote_key == part.to_remote_buffer().access_key
    assert RdmaMemory(tensor).remote_key == memory.remoteKey()
    assert part.contains(tensor.data_ptr() + 80, 8)
    assert not part.contains(tensor.data_ptr(), 8)
    assert part.create_view(tensor.data_ptr() + 80, 8).ptr == part.to_view(0, 8).ptr
    assert len(part.to_view()) == 99_990 * 8
    buffer = part.to_remote_buffer()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(buffer, protocol))
        assert (again.ptr, again.len) == (buffer.ptr, buffer.len)
        assert again.access_key == buffer.access_key
    view = RdmaMemory(torch.full((1000,), 7.0)).to_view()  # nothing else holds that tensor
    into = torch.zeros(1000)
    transport, _, remote = connected(rank, into)
    gc.collect()
    transport.write(view, remote, True).result(60)
    transport.wait_for_write().result(60)
    assert (into == 7).all()
    # Other memory at the same tensor is never found under the old registration.
    tensor.resize_(1_000_000)
    with pytest.raises(torchcomms.CommError, match="resize_"):
        memory.to_view()
    assert not RdmaMemory(tensor).reused_registration
    # Nor other memory that has come to the same address.
    tensor = torch.zeros(10 * BYTES)  # as malloc() always maps
    memory, address = RdmaMemory(tensor), tensor.data_ptr()
    tensor.untyped_storage().resize_(0)
    tensor.untyped_storage().resize_(tensor.nbytes)
    assert tensor.data_ptr() == address
    with pytest.raises(torchcomms.CommError, match="resize_"):
        memory.to_view()
    assert not RdmaMemory(tensor).reused_registration
    tell(rank, "end", True)


def test_memory_is_kept_and_registered_once(fresh_ranks: Callable[[int], Ranks]) -> None:
    pair(fresh_ranks).run(keeps_memory)


START = "import torch, torchcomms\nfrom torchcomms.transport import *\n"
LOOPBACK = (
    START
    + """
a, b = RdmaTransport(), RdmaTransport()
a.connect(b.bind())
b.connect(a.bind())
memory = RdmaMemory(torch.zeros(1000))
"""
)


def test_a_wait_can_be_interrupted() -> None:
    body = LOOPBACK + "print('waits')\ntry:\n    a.wait_for_write().result()\n"
    body += "except KeyboardInterrupt:\n    print('interrupted')\n"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", body],
        env={**os.environ, "CTRAN_VERBS_LIBRARY": str(standins.verbs())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)  # until it waits; if it does not yet, the test says less
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert out == "interrupted\n", err
    assert process.returncode == 0, err


UNDER_WAY = """
import gc
gc.unfreeze()  # at its end all is collected, as in an interpreter that is no fork
waits = [a.wait_for_write() for _ in range(10)]
writes = [a.write(memory.to_view(), memory.to_remote_buffer()) for _ in range(1000)]
"""
WAITS_IN_A_CALLBACK = """
told = []
def called(done):
    told.append(done.result())
    told.append(never.done())
    for wait in (never.result, never.exception, lambda: never.result(600)):
        try:
            wait()
        except torchcomms.CommError as error:
            told.append("callback" in str(error))
import threading
never, awaited = a.wait_for_write(), b.wait_for_write()
write = lambda: a.write(memory.to_view(), memory.to_remote_buffer(), True).result(30)
if HAS_ENDED:  # it is called on this thread
    write()
    awaited.result(30)
ended = threading.Event()
awaited.add_done_callback(lambda done: (called(done), ended.set()))
if not HAS_ENDED:
    write()
assert ended.wait(30)
print(told)
"""
WAITS_IN_A_CHILD = """
import os, signal
never = a.wait_for_write()
a.write(memory.to_view(), memory.to_remote_buffer(), True).result(30)
done = b.wait_for_write()
done.result(30)
while not done.is_told:
    pass
for lock in (False, True):  # as a thread of the parent's may have it
    if lock:
        never._condition.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        assert done.result() is None
        told = 0
        for wait in (never.result, never.exception):
            try:
                wait()
            except torchcomms.CommError as error:
                told += "forked" in str(error)
        os._exit(2 - told)
    assert os.waitpid(child, 0)[1] == 0
print("parent")
"""
USES_IT_IN_A_CHILD = """
import os
child = os.fork()
if child == 0:
    try:
        a.write(memory.to_view(), memory.to_remote_buffer())
    except torchcomms.CommError as error:
        assert "forked" in str(error), error
        print("refused", flush=True)
    mine = RdmaMemory(torch.zeros(1000))
    c, d = RdmaTransport(), RdmaTransport()
    c.connect(d.bind())
    d.connect(c.bind())
    c.write(mine.to_view(), mine.to_remote_buffer(), True).result(30)
    d.wait_for_write().result(30)
    print("made", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
a.write(memory.to_view(), memory.to_remote_buffer(), True).result(30)
b.wait_for_write().result(30)
print("parent")
"""
CHILDREN_END = """
import ctypes, gc, os, sys
objects = ctypes.CDLL(os.environ["CTRAN_VERBS_LIBRARY"]).standInVerbsObjects
there = objects()
waits = [b.wait_for_write() for _ in range(400)]
for turn in range(40):  # at all moments of the thread that moves data
    writes = [a.write(memory.to_view(), memory.to_remote_buffer(), True) for _ in range(10)]
    if os.fork() == 0:
        assert not a.connected()
        a.close()
        if turn % 2 == 0:
            sys.exit(0)
        del a, b, memory, writes, waits
        gc.collect()
        os._exit(0 if objects() >= there else 1)
    assert os.wait()[1] == 0
    for write in writes:
        write.result(30)
for wait in waits:
    wait.result(30)
print("parent")
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """How programs end that have both ends of a transport: forks of one interpreter."""
    programs = {
        "under way": UNDER_WAY,
        "ended": WAITS_IN_A_CALLBACK.replace("HAS_ENDED", "True"),
        "not ended": WAITS_IN_A_CALLBACK.replace("HAS_ENDED", "False"),
        "waits in a child": WAITS_IN_A_CHILD,
        "uses it in a child": USES_IT_IN_A_CHILD,
        "children end": CHILDREN_END,
    }
    library = {"CTRAN_VERBS_LIBRARY": str(standins.verbs())}
    jobs = {name: [Fork(LOOPBACK + body, env=library)] for name, body in programs.items()}
    body = "print(RdmaTransport.supported())\nRdmaTransport()\n"
    jobs["no device"] = [
        Fork(START + body, env={"CTRAN_VERBS_LIBRARY": "/nowhere/libibverbs.so.1"})
    ]
    found = run_forks(jobs, tmp_path_factory.mktemp("transport"))
    return {name: one for name, (one,) in found.items()}


def test_a_process_ends_with_transfers_under_way(ended: dict[str, Ended]) -> None:
    assert ended["under way"] == Ended(0, "", "")


@pytest.mark.parametrize("when", ["ended", "not ended"])
def test_a_callback_that_would_wait_for_ever_is_told(ended: dict[str, Ended], when: str) -> None:
    assert ended[when].out == "[None, False, True, True, True]\n", ended[when]


def test_a_forked_child_is_told_that_it_would_wait_for_ever(ended: dict[str, Ended]) -> None:
    one = ended["waits in a child"]
    assert one.out == "parent\n", one


def test_a_forked_child_is_refused_and_can_make_its_own(ended: dict[str, Ended]) -> None:
    one = ended["uses it in a child"]
    assert one.out.split() == ["refused", "made", "parent"], one


def test_a_forked_child_ends_and_takes_nothing_from_its_parent(ended: dict[str, Ended]) -> None:
    one = ended["children end"]
    assert one.out == "parent\n", one


def test_without_a_device_it_says_why(ended: dict[str, Ended]) -> None:
    one = ended["no device"]
    assert one.out == "False\n"
    assert "RDMA cannot be used" in one.err
    assert "/nowhere/libibverbs.so.1" in one.err
