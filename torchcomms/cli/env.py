"""`torchcomms env`: the variables, and how to change some of them in a running job."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

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
_SET_END = """\
example:
  torchcomms env set TORCHCOMM_LOG info,transport=debug
      the only job of this user on this host logs more from now on
  torchcomms env set TORCHCOMM_TIMEOUT_SECONDS 60 --job 4711 --json
      what each rank of that job says, for programs

exit code: 0; 1 if a rank has not taken the value; 2 if there is no such job
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
        epilog=_SET_END,
        formatter_class=raw,
    )
    name = change.add_argument(
        "name", metavar="NAME", help="as `torchcomms env` lists it, of those live"
    )
    name.completes = _live  # type: ignore[attr-defined]
    change.add_argument("value", metavar="VALUE", help="what it is set to")
    change.add_argument("--json", action="store_true", help="print data, for programs")
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


def _live() -> list[str]:
    return [row.name for row in _variables.variables() if row.is_live]


def run(parsed: argparse.Namespace) -> int:
    """Returns the exit code."""
    if parsed.action == "set":
        return _set(parsed)
    rows = _variables.variables()
    if parsed.json:
        print(json.dumps([{**row._asdict(), "page": row.page} for row in rows]))
    else:
        print(_variables.listing(rows), end="")
    return 0


def _set(parsed: argparse.Namespace) -> int:
    name, value = parsed.name, parsed.value
    try:
        memories, others = job.writable_memories(parsed.job)
        asked = [_Asked(communicator, path, name, value) for communicator, path in memories]
    except (job.NotFoundError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    deadline = time.monotonic() + parsed.seconds
    while not all(one.is_complete() for one in asked) and time.monotonic() < deadline:
        time.sleep(0.01)
    answers = [answer for one in asked for answer in one.close(f"{name}={value}")]
    answers += [
        _Answer(communicator, None, "takes no settings, as it is not ctran's", True)
        for communicator in others
    ]
    if parsed.json:
        print(json.dumps([answer._asdict() for answer in answers]))
    else:
        for answer in answers:
            rank = "" if answer.rank is None else f", rank {answer.rank}"
            print(f"{answer.communicator}{rank}: {answer.text}")
    return 0 if all(answer.is_fine for answer in answers) else 1


class _Answer(NamedTuple):
    """What a rank says, or, without one, what is said of a communicator."""

    communicator: str
    rank: int | None
    text: str
    is_fine: bool  # it has taken the value, or takes none


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

    def close(self, what: str) -> Iterator[_Answer]:
        """What each rank says, at last."""
        answers = native.answers(self._descriptor, self._number)
        os.close(self._descriptor)
        if not answers:
            yield _Answer(self._communicator, None, "takes no settings, as it has one rank", True)
        for rank, answer in sorted(answers.items()):
            if answer is None:
                text = "has not answered: it has ended, is stopped, or cannot be told"
            else:
                text = what if answer == "" else answer.splitlines()[0]
            yield _Answer(self._communicator, rank, text, answer == "")
