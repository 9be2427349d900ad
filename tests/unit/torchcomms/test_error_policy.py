"""abort_process_on_timeout_or_error: what becomes of an error that nobody looks at."""

from __future__ import annotations

import signal
from pathlib import Path

from harness.programs import Ended, Fork, run_forks

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


HOOK_WAITS = """
import threading
seen = threading.Event()
comm.register_abort_hook(lambda: print("told before" if seen.wait(60) else "held up", flush=True))
work = issue()
try: work.wait()
except torchcomms.CommError: seen.set()
else: raise SystemExit("no error")
"""
HOOK_IS_SLOW = """
import time
comm.register_abort_hook(lambda: (time.sleep(3), print("dumped", flush=True)))
work = issue()
try: work.wait()
except torchcomms.CommError: pass
"""


def settings(grace: str, abort: str = "1") -> dict[str, str]:
    return {"TORCHCOMM_ERROR_GRACE_SECONDS": grace, "TORCHCOMM_ABORT_ON_ERROR": abort}


def run(cases: dict[str, tuple[str, dict[str, str]]], folder: Path) -> dict[str, Ended]:
    jobs = {name: [Fork(PROGRAM, [body], env)] for name, (body, env) in cases.items()}
    return {name: ended for name, (ended,) in run_forks(jobs, folder).items()}


def test_an_error_that_nobody_sees_ends_the_process(tmp_path: Path) -> None:
    cases = {event: (body, settings("0.1")) for event, body in EVENTS.items()}
    for event, ended in run(cases, tmp_path).items():
        assert ended.code == -signal.SIGABRT, (event, ended)
        assert ended.out == "issued\n", event
        for said in (
            "communicator 'default' (ctran)",
            "failed and nobody looked at its work",
            "timed out",
            "TORCHCOMM_ABORT_ON_ERROR=0",
        ):
            assert said in ended.err, (event, ended)


def test_an_error_that_is_seen_does_not(tmp_path: Path) -> None:
    # Its work is dropped at the end: the process would not survive that, had it not been seen.
    cases = {how: (body + "\nwork = None", settings("100")) for how, body in SEEN.items()}
    for how, ended in run(cases, tmp_path).items():
        assert (ended.code, ended.out) == (0, "issued\nsurvived\n"), (how, ended)


def test_settings_and_hooks(tmp_path: Path) -> None:
    dropped = "work = issue(); until_it_has_failed(work); del work\nissue = None"
    cases = {
        "the program may choose to go on": (dropped, settings("0", abort="0")),
        "an error does not wait for hooks that take long": (HOOK_WAITS, settings("1.5")),
        "the process ends when its abort hooks have ended": (HOOK_IS_SLOW, settings("10")),
        "nonsense is refused where the communicator is made": ("pass", settings("a while")),
    }
    said = [(0, "survived"), (0, "told before"), (0, "dumped"), (1, "")]
    found = run(cases, tmp_path)
    for (name, ended), (code, line) in zip(found.items(), said, strict=True):
        assert ended.code == code, (name, ended)
        assert line in ended.out, (name, ended)
        assert ("survived" in ended.out) == (code == 0), (name, ended)
    says = "TORCHCOMM_ERROR_GRACE_SECONDS='a while' is not a number of seconds"
    assert says in ended.err
