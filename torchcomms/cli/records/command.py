"""The commands themselves: arguments and exit codes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchcomms.cli.records import job, processes, serve, timeline, top
from torchcomms.cli.records.verdicts import current, judge, named, state_of

NAMES = ("analyze", "top", "trace")

_ANALYZE = """\
Says what is wrong with a job: a rank that has died, that has not called, that calls something
else or another size, that is slow. Looks into the memory of running processes, which need not
have prepared anything and are not disturbed, or into files.
"""
_ANALYZE_END = """\
example:
  torchcomms analyze
      the only job of this user on this host
  torchcomms analyze 4711 --save rank0.json
      the job of that process; keeps what it has recorded
  torchcomms analyze host0.json host1.json --json
      what was kept on two hosts, together, for programs

  torchcomms analyze --serve
      a page that shows the job as it runs

exit code: 0 nothing is wrong; 1 something is; 2 there is no such job or file
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    analyze = commands.add_parser(
        "analyze",
        help="say what is wrong with a running, stuck or broken job",
        description=_ANALYZE,
        epilog=_ANALYZE_END,
        formatter_class=raw,
    )
    analyze.add_argument("of", nargs="*", metavar="PID|FILE", help="a process, or files")
    analyze.add_argument("--json", action="store_true", help="print data, for programs")
    analyze.add_argument(
        "--serve",
        nargs="?",
        const="127.0.0.1:0",
        metavar="ADDRESS:PORT",
        help="serve a page, data and metrics for Prometheus instead (default: a free port, here "
        "alone)",
    )
    analyze.add_argument(
        "--token", help="that whoever asks has to show, empty for none (default: a fresh one)"
    )
    analyze.add_argument("--save", type=Path, metavar="FILE", help="keep what was read")
    _add_after(analyze)
    live = commands.add_parser(
        "top",
        help="watch what the ranks of a running job are in",
        description="Shows what every rank of a running job is in, for how long, and for whom it "
        "waits: calls, calls and megabytes of the last second, and the share of it that went "
        "into waiting. Ctrl-C ends it.",
    )
    live.add_argument("of", nargs="*", metavar="PID|FILE", help="a process, or files")
    live.add_argument("--interval", type=float, default=1.0, metavar="SECONDS")
    live.add_argument("--times", type=int, default=0, help="end after so many looks")
    _add_after(live)
    trace = commands.add_parser(
        "trace",
        help="write a time line of all ranks for Perfetto",
        description="Writes what the ranks have recorded as a time line, for ui.perfetto.dev or "
        "chrome://tracing.",
    )
    trace.add_argument("of", nargs="*", metavar="PID|FILE", help="a process, or files")
    trace.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    trace.add_argument("--last", type=float, metavar="SECONDS", help="the last so many seconds")


def _add_after(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--after",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="an operation that takes longer is stuck (default: 1)",
    )


def _find(of: Sequence[str]) -> list[job.Communicator]:
    if len(of) == 1 and of[0].isdecimal():
        return job.live(int(of[0]))
    return job.load([Path(path) for path in of]) if of else job.live()


def run(parsed: argparse.Namespace) -> int:
    """Returns the exit code."""
    try:
        if parsed.command == "top":
            with suppress(KeyboardInterrupt):
                top.watch(lambda: _find(parsed.of), parsed.after, parsed.interval, parsed.times)
            return 0
        communicators = _find(parsed.of)
        if parsed.command == "analyze" and parsed.serve is not None:
            return _serve(parsed)
    except job.NotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if parsed.command == "trace":
        parsed.output.write_text(json.dumps(timeline.events(communicators, parsed.last)))
        return 0
    return _analyze(parsed, communicators)


def _serve(parsed: argparse.Namespace) -> int:
    host, _, port = parsed.serve.rpartition(":")
    if not host or not port.isdecimal():
        print(f"'{parsed.serve}' is not ADDRESS:PORT", file=sys.stderr)
        return 2

    def describe(communicators: Sequence[job.Communicator]) -> dict[str, Any]:
        return _report([(one, judge(one, parsed.after)) for one in communicators])

    try:
        with suppress(KeyboardInterrupt):
            serve.serve(
                lambda: _find(parsed.of), describe, (host.strip("[]"), int(port)), parsed.token
            )
    except (OSError, OverflowError) as error:
        print(f"{parsed.serve}: {error}", file=sys.stderr)
        return 2
    return 0


def _report(found: Sequence[tuple[job.Communicator, list[dict[str, Any]]]]) -> dict[str, Any]:
    return {"format": job.FORMAT, "communicators": [_data(*one) for one in found]}


def _analyze(parsed: argparse.Namespace, communicators: Sequence[job.Communicator]) -> int:
    if parsed.save is not None:
        for communicator in communicators:
            for rank in communicator.ranks.values():
                if rank["process"] is not None:
                    rank["where"] = processes.where(rank["process"])
        job.save(parsed.save, communicators)
    found = [(communicator, judge(communicator, parsed.after)) for communicator in communicators]
    if parsed.json:
        print(json.dumps(_report(found)))
    else:
        for communicator, verdicts in found:
            print(_paragraph(communicator, verdicts))
    return 1 if any(verdicts for _, verdicts in found) else 0


def _data(communicator: job.Communicator, verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": communicator.name,
        "group": communicator.group,
        "size": communicator.size,
        "state": state_of(communicator, verdicts),
        "verdicts": verdicts,
        "ranks": [
            {
                **{key: rank[key] for key in ("rank", "host", "pid", "state", "error")},
                "calls": rank["collectives"],
                "queued": rank["queued"],
                "off": rank.get("off", False),
                "links": rank.get("links", []),
                "in": current(rank),
            }
            for _, rank in sorted(communicator.ranks.items())
        ],
    }


def _paragraph(communicator: job.Communicator, verdicts: Sequence[dict[str, Any]]) -> str:
    state = state_of(communicator, verdicts)
    seen = len(communicator.ranks)
    text = f"{communicator.name} ({seen} of {communicator.size} ranks): {state}"
    off = [rank for rank, about in communicator.ranks.items() if about.get("off")]
    if off:
        text += f"\n  {named(off)} records nothing: `torchcomms env set CTRAN_TRACE 1` turns it on"
    return text + "".join(f"\n  {verdict['text']}" for verdict in verdicts)
