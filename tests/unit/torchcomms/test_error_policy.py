"""abort_process_on_timeout_or_error: what becomes of an error that nobody looks at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

# Rank 0 issues an operation to which rank 1, a thread of the same process, never comes.
PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
import torch, torch.distributed as dist, torchcomms
from torchcomms import CommOptions, CommTimeoutError, ReduceOp

store = dist.HashStore()

def make(rank):
    options = CommOptions()
    options.rank, options.size = rank, 2
    return torchcomms.new_comm("ctran", torch.device("cpu"), options=options, store=store)

with ThreadPoolExecutor(2) as pool:
    comm, other = pool.map(make, range(2))
soon = timedelta(milliseconds=20)
issue = lambda: comm.all_reduce(torch.ones(2), ReduceOp.SUM, async_op=True, timeout=soon)

def until_it_has_failed(work):
    while not work.is_completed():
        pass

print("issued", flush=True)
exec(sys.argv[1])
print("survived", flush=True)
"""

EVENTS = {
    "dropped while it runs": "issue()\nwhile True: pass",
    "dropped after it failed": "work = issue(); until_it_has_failed(work); del work\n"
    "while True: pass",  # another thread may be the last to let go of it
    "never waited for": "work = issue()\nwhile True: pass",
    "a batch, dropped": "batch = comm.batch_op_create(); batch.recv(torch.ones(1), 1)\n"
    "batch.issue(True, torchcomms.BatchP2POptions(timeout=soon))\nwhile True: pass",
}
SEEN = {
    "waited for": """
work = issue()
try: work.wait()
except CommTimeoutError: pass
else: raise SystemExit("no error")
""",
    "read": "work = issue(); until_it_has_failed(work); assert work.exception() is not None",
    "asked for": "work = issue(); until_it_has_failed(work); assert comm.is_aborted()",
    "raised by a later call": """
work = issue()
until_it_has_failed(work)
try: comm.barrier(False)
except torchcomms.CommError: pass
else: raise SystemExit("no error")
""",
    "caused by the program": "work = issue(); comm.abort(); until_it_has_failed(work)",
    "of a communicator that is gone": """
tensor = torch.ones(2)
free = tensor._use_count()
work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
assert tensor._use_count() > free
del work, comm
other.abort()
while tensor._use_count() > free: pass
""",
}


def run(body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, body],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize("event", EVENTS)
def test_an_error_that_nobody_sees_ends_the_process(event: str) -> None:
    result = run(EVENTS[event], TORCHCOMM_ERROR_GRACE_SECONDS="0.1", TORCHCOMM_ABORT_ON_ERROR="1")
    assert "issued" in result.stdout
    assert "survived" not in result.stdout
    assert result.returncode == -signal.SIGABRT, result.stderr
    assert "communicator 'default' (ctran)" in result.stderr
    assert "failed and nobody looked at its work" in result.stderr
    assert "timed out" in result.stderr
    assert "TORCHCOMM_ABORT_ON_ERROR=0" in result.stderr


@pytest.mark.parametrize("how", SEEN)
def test_an_error_that_is_seen_does_not(how: str) -> None:
    # Its work is dropped at the end: the process would not survive that, had it not been seen.
    result = run(
        SEEN[how] + "\nwork = None",
        TORCHCOMM_ERROR_GRACE_SECONDS="100",
        TORCHCOMM_ABORT_ON_ERROR="1",
    )
    assert result.returncode == 0, result.stderr
    assert "survived" in result.stdout


def test_the_program_may_choose_to_go_on() -> None:
    body = "work = issue(); until_it_has_failed(work); del work\nissue = None"
    result = run(body, TORCHCOMM_ERROR_GRACE_SECONDS="0", TORCHCOMM_ABORT_ON_ERROR="0")
    assert result.returncode == 0, result.stderr
    assert "survived" in result.stdout


def test_nonsense_is_refused_where_the_communicator_is_made() -> None:
    result = run("pass", TORCHCOMM_ERROR_GRACE_SECONDS="a while")
    assert result.returncode == 1
    assert "TORCHCOMM_ERROR_GRACE_SECONDS='a while' is not a number of seconds" in result.stderr


def test_an_error_does_not_wait_for_hooks_that_take_long() -> None:
    body = """
import threading
seen = threading.Event()
comm.register_abort_hook(lambda: print("told before" if seen.wait(60) else "held up", flush=True))
work = issue()
try: work.wait()
except torchcomms.CommError: seen.set()
else: raise SystemExit("no error")
"""
    result = run(body, TORCHCOMM_ERROR_GRACE_SECONDS="1.5", TORCHCOMM_ABORT_ON_ERROR="1")
    assert result.returncode == 0, result.stderr
    assert "survived" in result.stdout
    assert "told before" in result.stdout


def test_the_process_ends_when_its_abort_hooks_have_ended() -> None:
    body = """
import time
comm.register_abort_hook(lambda: (time.sleep(3), print("dumped", flush=True)))
work = issue()
try: work.wait()
except torchcomms.CommError: pass
"""
    result = run(body, TORCHCOMM_ERROR_GRACE_SECONDS="10", TORCHCOMM_ABORT_ON_ERROR="1")
    assert result.returncode == 0, result.stderr
    assert "dumped" in result.stdout
