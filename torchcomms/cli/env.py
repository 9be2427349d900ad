"""`torchcomms env`: the variables, and how to change some of them in a running job."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from torchcomms import _arguments, _variables
from torchcomms.cli.records import job, native

_END = """\
example:
  torchcomms env
      all variables, with types, defaults and what they are set to here
  torchcomms env set TORCHCOMM_LOG info,transport=debug --job 4711
      what the ranks of that job on this host log from now on

exit code: 0; of `set` 1 if a rank has not taken the value, 2 if there is no such job
"""
_SET = """\
Changes a variable in all ranks of a running job on this host, which need not have prepared
anything. `torchcomms env` marks as live those that can be changed: what is logged, whether
operations are recorded, how long new operations may take. Each rank says what it has done.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        "env",
        help="list the environment variables, or change one in a running job",
        description="Lists the environment variables that mean something to torchcomms.",
        epilog=_END,
        formatter_class=raw,
    )
    parser.add_argument("--json", action="store_true", help="print data, for programs")
    actions = parser.add_subparsers(dest="action", metavar="set")
    change = actions.add_parser(
        "set",
        help="change a variable in a running job",
        description=_SET,
        formatter_class=raw,
    )
    change.add_argument("name", metavar="NAME")
    change.add_argument("value", metavar="VALUE")
    change.add_argument(
        "--job",
        type=_arguments.count(),
        metavar="PID",
        help="a process of the job (default: the only job of this user)",
    )
    change.add_argument(
        "--seconds",
        type=_arguments.seconds,
        default=5.0,
        help="how long to wait for the ranks (default: 5)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Returns the exit code."""
    if parsed.action == "set":
        return _set(parsed.name, parsed.value, parsed.job, parsed.seconds)
    rows = _variables.variables()
    if parsed.json:
        print(json.dumps([{**row._asdict(), "page": row.page} for row in rows]))
    else:
        print(_variables.listing(rows), end="")
    return 0


def _set(name: str, value: str, pid: int | None, seconds: float) -> int:
    try:
        memories, others = job.writable_memories(pid)
        asked = [_Asked(communicator, path, name, value) for communicator, path in memories]
    except (job.NotFoundError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    deadline = time.monotonic() + seconds
    while not all(one.is_complete() for one in asked) and time.monotonic() < deadline:
        time.sleep(0.01)
    code = max(one.tell(f"{name}={value}") for one in asked)
    for communicator in others:
        print(f"{communicator}: takes no settings, as it is not ctran's")
    return code


class _Asked:
    """What the ranks of a communicator on this host were asked, and say."""

    def __init__(self, communicator: str, path: str, name: str, value: str) -> None:
        self._communicator = communicator
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._number = native.ask(self._descriptor, name, value)
        except OSError:
            os.close(self._descriptor)
            raise

    def is_complete(self) -> bool:
        return None not in native.answers(self._descriptor, self._number).values()

    def tell(self, what: str) -> int:
        """Prints a line for each rank; 1 if one has not taken the value."""
        code = 0
        answers = native.answers(self._descriptor, self._number)
        if not answers:
            print(f"{self._communicator}: takes no settings, as it has one rank")
        for rank, answer in sorted(answers.items()):
            if answer is None:
                text = "has not answered: it has ended, is stopped, or cannot be told"
            else:
                text = what if answer == "" else answer.splitlines()[0]
            code |= answer != ""
            print(f"{self._communicator}, rank {rank}: {text}")
        os.close(self._descriptor)
        return code
