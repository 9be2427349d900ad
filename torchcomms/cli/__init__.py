"""The command `torchcomms`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from torchcomms._errors import CommError
from torchcomms.cli import bench, completion, doctor, env, records, select
from torchcomms.plan import _cli as plan_cli
from torchcomms.version import __version__

_END = """\
`torchcomms COMMAND --help` says more about one of them, with examples and exit codes.

example:
  torchcomms doctor
      whether, and how fast, torchcomms will run here
  torchcomms analyze
      what is wrong with the job that runs on this host
  source <(torchcomms completion bash)
      lets the Tab key complete all of this
"""
_FAILED = 2
_INTERRUPTED, _NO_READER = 130, 141  # as shells tell of SIGINT and SIGPIPE


def parser() -> argparse.ArgumentParser:
    """Of all commands, with their options."""
    made = argparse.ArgumentParser(
        prog="torchcomms",
        description="Looks at what torchcomms does, and at what it could do.",
        epilog=_END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"torchcomms {__version__}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    plan_cli.add_command(commands)
    env.add_command(commands)
    bench.add_command(commands)
    doctor.add_command(commands)
    records.add_commands(commands)
    select.add_commands(commands)
    completion.add_command(commands)
    return made


def _run(parsed: argparse.Namespace, given: Sequence[str]) -> int:
    if parsed.command == "env":
        return env.run(parsed)
    if parsed.command == "bench":
        return bench.run(parsed, given)
    if parsed.command == "doctor":
        return doctor.run(parsed)
    if parsed.command in records.NAMES:
        return records.run(parsed)
    if parsed.command == "explain":
        return select.explain(parsed)
    if parsed.command == "tune":
        return select.tune(parsed)
    if parsed.command == "completion":
        print(completion.script(parsed.shell, parser()), end="")
        return 0
    return plan_cli.run(parsed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # µ is not in every locale
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = parser().parse_args(given)
    try:
        code = _run(parsed, given)
        if sys.stdout is not None:  # else it was closed by whoever started this
            sys.stdout.flush()
        return code
    except CommError as error:
        _say_error(f"torchcomms {parsed.command}: {error}")
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # whoever read has enough, as `head` does
        _drop_output()
        return _NO_READER
    except OSError as error:
        if sys.stdout is not None and _is_stuck(sys.stdout):
            _drop_output()
        where = "" if error.filename is None else f"{error.filename}: "
        _say_error(f"torchcomms {parsed.command}: {where}{error.strerror or error}")
        return _FAILED


def _say_error(text: str) -> None:
    """Writes a line to stderr, in one piece: ranks share it."""
    if sys.stderr is not None:  # else it was closed by whoever started this
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _is_stuck(stream: TextIO) -> bool:
    """Whether what was printed cannot be written: the disk is full, say."""
    try:
        stream.flush()
    except OSError:
        return True
    return False


def _drop_output() -> None:
    """Python would complain when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
