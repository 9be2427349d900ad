"""How programs end: nothing hangs, nothing is said without need."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from harness.programs import Ended, forks_of_ranks, run_forks

import torchcomms

PRELUDE = """
import gc, sys
gc.unfreeze()  # at its end all is collected, as in an interpreter that is no fork
from datetime import timedelta
import torch, torchcomms
from torchcomms import ReduceOp

rank, size = int(sys.argv[1]), int(sys.argv[2])
options = torchcomms.CommOptions()
options.rank, options.size = rank, size
options.store = torch.distributed.FileStore(sys.argv[3], -1)
comm = torchcomms.new_comm("ctran", torch.device("cpu"), "exit", options=options)
tensor = torch.ones(5)
comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
assert tensor[0] == size
"""

ENDINGS = {
    "without finalize": "",
    "with finalize": "comm.finalize()",
    "with works that have ended": """
work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
work.wait()
""",
    "with works that nobody waited for": """
for _ in range(20):
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
""",
    "with the communicator in a cycle": """
class Holder: pass
holder = Holder()
holder.itself, holder.comm = holder, comm
del comm
""",
    "by sys.exit in the middle": "sys.exit(0)",
    "with callbacks and hooks in a cycle": """
class Holder: pass
holder = Holder()
holder.itself, holder.comm = holder, comm
comm.register_pre_hook(lambda *args: holder)
holder.work = comm.all_reduce(torch.ones(3_000_000), ReduceOp.SUM, async_op=True)
holder.work.add_done_callback(lambda work: holder)
del comm
""",
    "while a tensor takes its time to go": """
import threading, time
goes = threading.Event()
class Slow(torch.Tensor):
    def __del__(self):
        goes.set()
        time.sleep(0.3)
if rank == 0:  # it ends on another thread
    comm.all_reduce(tensor.as_subclass(Slow), ReduceOp.SUM, async_op=True)
    options.store.set("posted", "yes")
    assert goes.wait(60)
else:
    options.store.wait(["posted"])
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
""",
    "in a callback that takes its time": """
import threading, time
began = threading.Event()
def last(work):
    began.set()
    time.sleep(600)
if rank != 0:
    options.store.wait(["registered"])
work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
if rank == 0:  # before it ends: then another thread calls it
    work.add_done_callback(last)
    options.store.set("registered", "yes")
    assert began.wait(60)
work.wait()
""",
}


def ends_of(programs: dict[str, str], folder: Path) -> dict[str, list[Ended]]:
    """How two ranks of each end."""
    return run_forks(
        {name: forks_of_ranks(program, 2, folder) for name, program in programs.items()}, folder
    )


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
def test_end_is_clean(tmp_path: Path, backend: str) -> None:
    if not torchcomms.is_backend_built(backend):
        pytest.skip("built with USE_GLOO=0")
    prelude = PRELUDE.replace('"ctran"', f'"{backend}"')
    found = ends_of({name: prelude + ending for name, ending in ENDINGS.items()}, tmp_path)
    for ending, ranks in found.items():
        assert [(one.code, one.err) for one in ranks] == [(0, "")] * 2, ending


# Ranks that stay until rank 0 has ended. They ask for its state, and may send it a signal.
STAYING = """
import os, signal, time

def state_of_rank_0():
    try:
        with open(f"/proc/{int(options.store.get('pid'))}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"

def until_rank_0_is(states):
    while state_of_rank_0() not in states:
        time.sleep(0.01)

def stay():
    until_rank_0_is("ZX")
    os._exit(0)

def tell():
    options.store.set("pid", str(os.getpid()))
"""

PENDING = """
# The other ranks never join this.
if rank != 0:
    stay()
work = comm.all_reduce(torch.ones(1000), ReduceOp.SUM, async_op=True)
tell()
"""


WAITING = """
# Threads that wait for what the other ranks never join.
import threading

def one_call():
    comm.all_reduce(torch.ones(1000), ReduceOp.SUM, async_op=False)

def many_calls():
    while True:
        own.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()

own = torchcomms.new_comm("ctran", torch.device("cpu"), "own")
if rank != 0:
    stay()
for target in (one_call, many_calls, many_calls):
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.5)
tell()
"""

# Threads in calls that go on, and let go of tensors, while the interpreter goes. (Calls of torch
# itself in such a thread end the process.)
BUSY = """
import threading, time

def call(comm, is_async):
    tensor = torch.ones(1000)
    try:
        while True:
            work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=is_async)
            if is_async:
                work.wait()
    except torchcomms.CommError:  # the other rank has left
        time.sleep(100)

for is_async in (True, False):
    own = comm.split(list(range(size)), f"own {is_async}")
    threading.Thread(target=call, args=[own, is_async], daemon=True).start()
time.sleep(0.5)
"""


def test_threads_in_calls_do_not_break_the_end(tmp_path: Path) -> None:
    found = ends_of({f"attempt {attempt}": PRELUDE + BUSY for attempt in range(3)}, tmp_path)
    for attempt, ranks in found.items():
        assert [(one.code, one.err) for one in ranks] == [(0, "")] * 2, attempt


def test_what_is_pending_does_not_keep_a_program_from_ending(tmp_path: Path) -> None:
    endings = {"works": PENDING, "threads that wait": WAITING}
    programs = {name: PRELUDE + STAYING + ending for name, ending in endings.items()}
    for ending, ranks in ends_of(programs, tmp_path).items():
        assert [(one.code, one.err) for one in ranks] == [(0, "")] * 2, ending


INTERRUPTED = """
if rank != 0:
    until_rank_0_is("S")
    os.kill(int(options.store.get("pid")), signal.SIGINT)
    stay()
tell()
{call}
"""

BLOCKED = [
    "comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)",
    "comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()",
    "comm.split([0, 1], 'child')",
    "comm.all_reduce(tensor, ReduceOp.SUM, async_op=True); comm.finalize()",
    "torchcomms.new_comm('ctran', torch.device('cpu'), 'second', options=options)",
]


def test_ctrl_c_ends_a_blocked_program(tmp_path: Path) -> None:
    programs = {call: PRELUDE + STAYING + INTERRUPTED.format(call=call) for call in BLOCKED}
    for call, (ended, other) in ends_of(programs, tmp_path).items():
        assert ended.code == -signal.SIGINT, (call, ended)
        assert "KeyboardInterrupt" in ended.err, (call, ended)
        assert (other.code, other.err) == (0, ""), (call, other)
