"""How programs end, in interpreters of their own: nothing hangs, nothing is said without need."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from harness.failing import until
from harness.programs import Program, kill, run_ranks
from harness.ranks import state_of

import torchcomms

PRELUDE = """
import sys
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


@pytest.mark.parametrize("backend", ["ctran", "gloo"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_end_is_clean(tmp_path: Path, ending: str, backend: str) -> None:
    if not torchcomms.is_backend_built(backend):
        pytest.skip("built with USE_GLOO=0")
    program = PRELUDE.replace('"ctran"', f'"{backend}"') + ENDINGS[ending]
    for ended in run_ranks(program, 2, tmp_path):
        assert (ended.code, ended.err) == (0, "")


PENDING = """
# The other ranks never join this.
work = comm.all_reduce(torch.ones(1000), ReduceOp.SUM, async_op=True) if rank == 0 else None
print("issued", flush=True)
if rank != 0:
    sys.stdin.read()  # as long as the test wants
"""


WAITING = """
# Threads that wait for what the other ranks never join.
import threading, time

def one_call():
    comm.all_reduce(torch.ones(1000), ReduceOp.SUM, async_op=False)

def many_calls():
    while True:
        own.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()

own = torchcomms.new_comm("ctran", torch.device("cpu"), "own")
if rank == 0:
    for target in (one_call, many_calls, many_calls):
        threading.Thread(target=target, daemon=True).start()
    time.sleep(0.5)
print("issued", flush=True)
if rank != 0:
    sys.stdin.read()
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


@pytest.mark.parametrize("attempt", range(3))
def test_threads_in_calls_do_not_break_the_end(tmp_path: Path, attempt: int) -> None:
    for ended in run_ranks(PRELUDE + BUSY, 2, tmp_path):
        assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("ending", [PENDING, WAITING], ids=["works", "threads that wait"])
def test_what_is_pending_does_not_keep_a_program_from_ending(tmp_path: Path, ending: str) -> None:
    store = str(tmp_path / "store")
    folder = tmp_path / "programs"
    folder.mkdir()
    programs = [Program(PRELUDE + ending, folder, [str(r), "2", store]) for r in range(2)]
    try:
        assert programs[1].first_line() == "issued"
        ended = programs[0].end()
        assert (ended.code, ended.err) == (0, "")
    finally:
        for program in programs:
            kill(program.process)
            program.process.communicate()


INTERRUPTED = """
print("calling", flush=True)
if rank != 0:
    sys.stdin.read()
{call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)",
        "comm.all_reduce(tensor, ReduceOp.SUM, async_op=True).wait()",
        "comm.split([0, 1], 'child')",
        "comm.all_reduce(tensor, ReduceOp.SUM, async_op=True); comm.finalize()",
        "torchcomms.new_comm('ctran', torch.device('cpu'), 'second', options=options)",
    ],
)
def test_ctrl_c_ends_a_blocked_program(tmp_path: Path, call: str) -> None:
    store = str(tmp_path / "store")
    folder = tmp_path / "programs"
    folder.mkdir()
    source = PRELUDE + INTERRUPTED.format(call=call)
    programs = [Program(source, folder, [str(r), "2", store]) for r in range(2)]
    try:
        for program in programs:
            assert program.first_line() == "calling"
        until(lambda: state_of(programs[0].pid) == "S", "rank 0 blocks")
        programs[0].process.send_signal(signal.SIGINT)
        ended = programs[0].end()
        assert ended.code == -signal.SIGINT
        assert "KeyboardInterrupt" in ended.err
    finally:
        for program in programs:
            kill(program.process)
            program.process.communicate()
