"""The command itself: its arguments, progress, and exit code."""

from __future__ import annotations

import argparse
import os
import sys
from socket import gethostname

from torchcomms import _arguments
from torchcomms._errors import CommError
from torchcomms.cli.doctor import self_test
from torchcomms.cli.doctor.finding import Host, broken, why_no_torch
from torchcomms.cli.doctor.host import examine
from torchcomms.cli.doctor.rendezvous import CameLate, LostFirst, Progress
from torchcomms.cli.doctor.report import Finding, Place, Report
from torchcomms.cli.doctor.text import text_of
from torchcomms.version import __version__

_DEFAULT_RANKS = 2
_DESCRIPTION = """\
Looks at all that decides whether, and how fast, torchcomms will run here: each is good,
slow or broken, with the reason and what to type. As the ranks of a launcher, looks at all
their hosts and at what is between them.
"""
_EPILOG = """\
example:
  torchcomms doctor --ranks 8
      whether 8 ranks would run well on this host
  torchrun --nnodes 2 --nproc-per-node 8 ... -m torchcomms doctor
      all hosts of a job, and what is between them; rank 0 prints

exit code: 0 all is good, or slow; 1 something is broken; 2 wrong arguments
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what decides whether, and how fast, it will run here (docs/troubleshooting.md)",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print a report for programs")
    parser.add_argument(
        "-n",
        "--ranks",
        type=_arguments.count(),
        help="that are to run on this host (default: LOCAL_WORLD_SIZE, the launcher's ranks here, "
        f"or {_DEFAULT_RANKS})",
    )
    parser.add_argument(
        "--seconds",
        type=_arguments.seconds,
        default=self_test.SECONDS,
        help="how long a step may wait for other ranks (default %(default).0f)",
    )


def _progress(silent: bool) -> Progress:
    """On stderr; a single line where that is a terminal."""

    def show(what: str) -> None:
        if silent:
            return
        if sys.stderr.isatty():
            print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)
        else:
            print(what, file=sys.stderr, flush=True)

    return show


def _alone(host: Host, seconds: float, progress: Progress) -> Report:
    report = Report(__version__, places=[Place(0, gethostname())])
    report.findings = examine(host, progress)
    test = self_test.check(progress, seconds)
    report.findings.append(Finding.of(test.name, test.subject, test.about, test.run(host)))
    for one in report.findings:
        one.ranks = [0]
    return report


def _cannot_start(error: Exception, todo: str) -> Report:
    """The ranks of a launcher do not find each other."""
    rank = os.environ.get("RANK", "0")
    report = Report(__version__, places=[Place(int(rank) if rank.isdigit() else 0, gethostname())])
    outcome = broken(str(error), todo)
    report.findings = [Finding.of("launcher", "launcher", "rank, size and store", outcome)]
    report.findings[0].ranks = [report.places[0].rank]
    return report


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit code."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    ranks = arguments.ranks or (int(local) if local.isdigit() else 0)
    host = Host(ranks=ranks or _DEFAULT_RANKS)
    report: Report | None
    try:
        if not why_no_torch() and self_test.environment_is_of_a_launcher():
            from torchcomms.cli.doctor import launched

            progress = _progress(os.environ.get("RANK", "0") != "0")
            report = launched.run(host, ranks > 0, arguments.seconds, progress)
        else:
            progress = _progress(False)
            report = _alone(host, arguments.seconds, progress)
    except (CommError, LostFirst) as error:
        report = _cannot_start(error, "docs/launching.md says what each launcher sets")
    except CameLate as error:
        report = _cannot_start(
            error, "start all ranks together, or let them wait longer: --seconds"
        )
    if report is None:
        return 0
    if sys.stderr.isatty():
        progress("")
    report.settle()
    print(report.to_json() if arguments.json else text_of(report), flush=True)
    return report.exit_code
