"""The commands themselves: arguments and exit codes."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchcomms import _arguments, _files
from torchcomms.cli.records import (
    flight_recorder,
    job,
    recording,
    serve,
    sources,
    terminal,
    timeline,
    top,
    traffic,
)
from torchcomms.cli.records.calls import current, named
from torchcomms.cli.records.verdicts import judge, state_of

NAMES = ("analyze", "top", "trace")
SCHEMA = Path(__file__).parent / "analyze.schema.json"

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
  torchcomms analyze --schema
      what --json prints, as a JSON Schema

  torchcomms analyze --serve
      a page that shows the job as it runs
  torchcomms analyze 4711 'http://host1:9100/?token=...'
      the ranks of this host and of another one, on which `torchcomms analyze --serve host1:9100`
      runs and has printed that address

exit code: 0 nothing is wrong; 1 something is; 2 there is no such job or file
"""
_TOP = """\
Shows what every rank of a running job is in, for how long, and for whom it waits: calls, and how
many a second since the last look; megabytes a second and the share of time that went into waiting,
of the last second; the slowest rank of the last minute, or of the last calls that are looked at;
and the ways between ranks on which most has gone since the last look, with the transport. ~ marks
what is of less than a second, where what is recorded goes no further back. Ctrl-C ends it, and so
does the end of the job.
"""
_TOP_END = """\
example:
  torchcomms top
      the only job of this user on this host, every second
  torchcomms top 4711 'http://host1:9100/?token=...'
      the ranks of another host, too, on which `torchcomms analyze --serve host1:9100` runs
  torchcomms top 4711 --interval 0.2 --times 50
      the job of that process, for ten seconds
  torchcomms top --times 1 --json
      one look, for programs: what `torchcomms analyze --json` prints, a line for each look

exit code: 0; 2 if there is no such job or file
"""
_TRACE = """\
Writes what the ranks have recorded as a time line, all ranks below each other, for
https://ui.perfetto.dev or chrome://tracing. Arrows go from a send to its receive, and from the rank
that came last to a collective to those that waited for it. Or as PyTorch's flight recorder does, a
file for each rank, for its analyzer. The job goes on meanwhile.
"""
_TRACE_END = """\
example:
  torchcomms trace -o job.json
      all that the only job of this user on this host remembers
  torchcomms trace 4711 -o job.json --last 10s
      the last ten seconds of the job of that process
  torchcomms trace host0.json host1.json -o job.json
      what `torchcomms analyze --save` has kept on two hosts
  torchcomms trace --format flight_recorder -o dumps
  python -m torch.distributed.flight_recorder.fr_trace dumps
      what PyTorch's analyzer says about a job in which nobody has registered a FlightRecorderHook

exit code: 0; 2 if there is no such job or file, or the output cannot be written
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
    _add_sources(analyze)
    analyze.add_argument("--json", action="store_true", help="print data, for programs")
    analyze.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of what --json prints, alone"
    )
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
    analyze.set_defaults(error=analyze.error)
    live = commands.add_parser(
        "top",
        help="watch what the ranks of a running job are in",
        description=_TOP,
        epilog=_TOP_END,
        formatter_class=raw,
    )
    _add_sources(live)
    live.add_argument(
        "--interval",
        type=_arguments.seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default: 1)",
    )
    live.add_argument(
        "--times", type=_arguments.count(0), default=0, metavar="N", help="end after so many looks"
    )
    live.add_argument("--json", action="store_true", help="print data, for programs")
    _add_after(live)
    trace = commands.add_parser(
        "trace",
        help="write a time line of all ranks for Perfetto",
        description=_TRACE,
        epilog=_TRACE_END,
        formatter_class=raw,
    )
    _add_sources(trace)
    trace.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="where to write: a file, or '-' for standard output; of flight_recorder a folder",
    )
    trace.add_argument(
        "--format",
        choices=("perfetto", "flight_recorder"),
        default="perfetto",
        help="a time line, or a folder of files for PyTorch's analyzer (default: perfetto)",
    )
    trace.add_argument(
        "--last", type=_arguments.seconds, metavar="TIME", help="the last 10s, 500ms or 2min alone"
    )
    trace.add_argument(
        "--json", action="store_true", help="print what was written where as data, for programs"
    )
    trace.set_defaults(error=trace.error)


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "of",
        nargs="*",
        metavar="PID|FILE|URL",
        help="a process of this host, files, and addresses that `torchcomms analyze --serve` has "
        "printed on other hosts; together if there are several (default: the only job here)",
    )


def _add_after(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--after",
        type=_arguments.seconds,
        default=1.0,
        metavar="SECONDS",
        help="an operation that takes longer is stuck (default: 1)",
    )


def _fault(parsed: argparse.Namespace) -> str:
    """Options that have no meaning together; empty if they have one."""
    if parsed.command == "analyze":
        if parsed.schema and (parsed.of or parsed.serve is not None or parsed.save is not None):
            return "--schema looks at no job: use it alone"
        if parsed.serve is None:
            return "--token is for --serve" if parsed.token is not None else ""
        host, _, port = parsed.serve.rpartition(":")
        if not host or not port.isdecimal():
            return f"'{parsed.serve}' is not ADDRESS:PORT"
        if parsed.save is not None:
            return "--save keeps one look, --serve looks again and again: use one of them"
        return "--json prints one look, --serve prints none: use one of them" if parsed.json else ""
    if parsed.command == "trace" and parsed.json and str(parsed.output) == "-":
        return "--json says what was written to a file: with -o - standard output has the trace"
    if parsed.command == "trace" and parsed.last and parsed.format == "flight_recorder":
        return "--last is for --format perfetto: PyTorch's analyzer compares whole records"
    return ""


def run(parsed: argparse.Namespace) -> int:
    """Returns the exit code."""
    fault = _fault(parsed)
    if fault:
        parsed.error(fault)
    if parsed.command == "analyze" and parsed.schema:
        print(SCHEMA.read_text(), end="")
        return 0
    try:
        if parsed.command == "top":
            with suppress(KeyboardInterrupt):
                _watch(parsed)
            return 0
        serves = parsed.command == "analyze" and parsed.serve is not None
        communicators = sources.find(parsed.of, stacks=parsed.command == "analyze" and not serves)
        if serves:
            return _serve(parsed)
    except job.NotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if parsed.command == "trace":
        _trace(parsed, communicators)
        return 0
    return _analyze(parsed, communicators)


def _watch(parsed: argparse.Namespace) -> None:
    rates = top.Rates()
    followed = sources.Followed()
    is_here = all(name.isdecimal() for name in parsed.of)
    looks = 0

    def look() -> str | None:
        nonlocal looks
        try:
            found = sources.find(parsed.of, live=followed.live)
        except job.NotFoundError as error:
            if looks == 0 or not is_here:  # of another host it is not known why it is silent
                raise
            print(f"the job has ended: {error}", file=sys.stderr)
            return None
        looks += 1
        return show(found)

    def show(communicators: Sequence[job.Communicator]) -> str:
        if parsed.json:
            return json.dumps(_describe(communicators, parsed.after))
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
        return top.screen(communicators, parsed.after, rates, width)

    top.watch(
        look,
        parsed.interval,
        parsed.times,
        as_screen=not parsed.json,
    )


def _trace(parsed: argparse.Namespace, communicators: Sequence[job.Communicator]) -> None:
    ranks = sum(len(one.ranks) for one in communicators)
    if parsed.format == "flight_recorder":
        count = flight_recorder.write(parsed.output, communicators)
        text = (
            f"{parsed.output}: {count} ranks; python -m torch.distributed.flight_recorder.fr_trace "
            f"{parsed.output} judges them"
        )
    else:
        count = 1
        line = json.dumps(timeline.events(communicators, parsed.last))
        if str(parsed.output) == "-":
            print(line)
            return
        _files.write(parsed.output, line)
        text = (
            f"{parsed.output}: {ranks} ranks of {len(communicators)} communicators; "
            "open it in https://ui.perfetto.dev"
        )
    if parsed.json:
        about = {"output": str(parsed.output), "format": parsed.format, "files": count}
        print(json.dumps({**about, "communicators": len(communicators), "ranks": ranks}))
    else:
        print(text, file=sys.stderr)


def _serve(parsed: argparse.Namespace) -> int:
    host, _, port = parsed.serve.rpartition(":")
    followed = sources.Followed()
    try:
        with suppress(KeyboardInterrupt):
            serve.serve(
                lambda: sources.find(parsed.of, live=followed.live),
                lambda found: _describe(found, parsed.after),
                (host.strip("[]"), int(port)),
                parsed.token,
            )
    except (OSError, OverflowError) as error:
        print(f"{parsed.serve}: {error}", file=sys.stderr)
        return 2
    return 0


def _judged(
    communicators: Sequence[job.Communicator], after: float
) -> list[tuple[job.Communicator, list[dict[str, Any]]]]:
    return [(one, judge(one, after, communicators)) for one in communicators]


def _describe(communicators: Sequence[job.Communicator], after: float) -> dict[str, Any]:
    return report(_judged(communicators, after))


def report(found: Sequence[tuple[job.Communicator, list[dict[str, Any]]]]) -> dict[str, Any]:
    """What --json prints: as SCHEMA says."""
    return {"format": recording.FORMAT, "communicators": [_data(*one) for one in found]}


def _analyze(parsed: argparse.Namespace, communicators: Sequence[job.Communicator]) -> int:
    if parsed.save is not None:
        _files.write(parsed.save, json.dumps(job.records(communicators, stacks=True)))
    found = _judged(communicators, parsed.after)
    if parsed.json:
        print(json.dumps(report(found)))
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
        "traffic": traffic.rows(communicator),
        "ranks": [
            {
                **{key: rank[key] for key in ("rank", "host", "pid", "state", "error")},
                "calls": rank["collectives"],
                "replayed": rank.get("replayed", 0),
                "queued": rank["queued"],
                "off": rank.get("off", False),
                "links": rank.get("links", []),
                "clock_offset": rank.get("clock_offset", 0),
                "clock_error": rank.get("clock_error"),
                "in": current(rank),
            }
            for _, rank in sorted(communicator.ranks.items())
        ],
    }


def _paragraph(communicator: job.Communicator, verdicts: Sequence[dict[str, Any]]) -> str:
    state = state_of(communicator, verdicts)
    seen = len(communicator.ranks)
    lines = [f"{communicator.name} ({seen} of {communicator.size} ranks): {state}"]
    off = [rank for rank, about in communicator.ranks.items() if about.get("off")]
    if off:
        lines.append(
            f"  {named(off)} records nothing: `torchcomms env set CTRAN_TRACE 1` turns it on"
        )
    lines += [f"  {verdict['text']}" for verdict in verdicts]
    return "\n".join(map(terminal.printable, lines))
