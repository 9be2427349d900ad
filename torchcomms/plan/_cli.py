"""`torchcomms plan`: look at plans from the command line."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

from torchcomms import _arguments, _files, _progress
from torchcomms._errors import CommError
from torchcomms.plan._fit import Sample, compare, fit, measure, read_samples
from torchcomms.plan._native import read_json
from torchcomms.plan._plan import Plan, Timeline, library, make
from torchcomms.plan._synthesis import Synthesis, synthesize

T = TypeVar("T")

_FILE = (
    "a plan as JSON (ours, or of MSCCL++), '-' for standard input, "
    "one of the library as NAME:RANKS[:LANES], or a program of mscclpp as FILE.py:NAME"
)

_DESCRIPTION = """\
Shows, proves, simulates and draws plans: those of the library, by name (all_reduce.ring:4), or
those in files. Makes the fastest one for a topology.
"""
_END = """\
example:
  torchcomms plan list
      the plans of the library
  torchcomms plan verify all_reduce.ring:4
      proves that it does what it should, among 4 ranks
  torchcomms plan draw all_reduce.ring:8 --bytes 4M -o ring.svg
      who does what when
  torchcomms plan synthesize hosts:2x8x4 -o plan.json
      the fastest plan for 2 hosts of 8 ranks and 4 network cards

exit code: 0; 1 if a plan is wrong; 2 if it cannot be read, or proved
"""
_EXIT = "exit code: 0; 2 if it cannot be read"
_LIST = f"""\
example:
  torchcomms plan list
      names for NAME:RANKS, and what each is

{_EXIT}
"""
_QUESTIONS = {
    "show": (
        "what each rank does, step by step",
        f"""\
example:
  torchcomms plan show all_reduce.ring:3
      of the library, among 3 ranks
  torchcomms plan show mine.py:all_reduce --ranks 4
      what a function of mine.py writes for 4 ranks

{_EXIT}
""",
    ),
    "json": (
        "the plan as JSON",
        f"""\
example:
  torchcomms plan json all_reduce.ring:4
      to be changed by hand, and read again from a file

{_EXIT}
""",
    ),
    "verify": (
        "prove it right, or say where it is not",
        """\
example:
  torchcomms plan verify plan.json
      for any number of elements, and any number of calls in a row
  torchcomms plan verify mine.py:all_reduce --ranks 8 --json
      the findings as data, for programs

exit code: 0; 1 if it is wrong; 2 if it cannot be read, or proved
""",
    ),
    "simulate": (
        "how long it takes, and who does what when",
        f"""\
example:
  torchcomms plan simulate all_reduce.two_shot:8 --bytes 16M --units 8
      blocks of 16 MiB, cut into 8
  torchcomms plan simulate all_reduce.ring:4 --machine machine.json --json
      on what `torchcomms plan fit` has written, as data

{_EXIT}
""",
    ),
    "draw": (
        "who does what when, as SVG",
        f"""\
example:
  torchcomms plan draw all_reduce.ring:8 --bytes 4M -o ring.svg
      ranks downwards, time to the right

{_EXIT}, or the output written
""",
    ),
}
_SYNTHESIZE = f"""\
example:
  torchcomms plan synthesize hosts:2x8x4 -o plan.json
      all_gather among 2 hosts of 8 ranks and 4 network cards
  torchcomms plan synthesize topology.json --collective all_reduce -o plan.json
      for what a file describes (docs/plans.md)

{_EXIT}, or the output written
"""
_FIT = f"""\
example:
  torchcomms plan fit --ranks 2 -o machine.json
      measures all plans here, for minutes, and writes a machine for `torchcomms plan simulate`
  torchcomms plan fit --samples times.json -o machine.json
      the same of what `ctran-bench --plans all --json times.json` has measured

{_EXIT}, or the output written
"""


class Asked(Protocol):
    """What can be asked of a plan, and of a program that becomes one."""

    def to_json(self) -> str: ...
    def verify(self) -> Any: ...
    def simulate(
        self, bytes: int, machine: Mapping[str, Any] | None = None, *, units: int = 1
    ) -> Timeline: ...


@dataclass(frozen=True)
class _Programs:
    """Packages above this one that read files as programs: modules with `add_arguments(parser)` and
    `read_program(arguments)`, which gives what is asked, or None."""

    modules: list[Any]
    failures: list[str]  # why others cannot be imported

    @staticmethod
    def load() -> _Programs:
        found = _Programs([], [])
        for point in entry_points(group="torchcomms.plans"):
            try:
                found.modules.append(point.load())
            except (Exception, SystemExit) as error:  # of whoever wrote that package
                found.failures.append(
                    f"{point.value}, which reads programs, cannot be imported: "
                    f"{type(error).__name__}: {error}"
                )
        return found


def _read(arguments: argparse.Namespace) -> Asked:
    name: str = arguments.file
    programs: _Programs = arguments.programs
    for module in programs.modules:
        program: Asked | None = module.read_program(arguments)
        if program is not None:
            return program
    if name.rpartition(":")[0].endswith(".py") or name.endswith(".py"):
        why = "; ".join(programs.failures) or "mscclpp, which reads programs, is not installed here"
        raise ValueError(f"{name} is a program in Python, and {why}")
    if name == "-":
        if sys.stdin is None:
            raise ValueError("standard input is closed: give a file, or NAME:RANKS")
        return _named("standard input", lambda: Plan.from_json(sys.stdin.read()))
    parts = name.split(":")
    if parts[0] in library():
        try:
            ranks, lanes = [*map(int, parts[1:]), *(4, 1)[len(parts) - 1 :]]
        except ValueError:
            raise ValueError(f"'{name}' is not NAME:RANKS or NAME:RANKS:LANES") from None
        return _named(name, lambda: make(parts[0], ranks, lanes=lanes))
    file = Path(name)
    if not file.exists():
        raise ValueError(
            f"there is no file '{name}', and no plan of that name in the library: "
            "`torchcomms plan list` shows those that there are"
        )
    return _named(name, lambda: Plan.load(file))


def _named(name: str | Path, question: Callable[[], T]) -> T:
    """What it returns; an error begins with the name of what it is about."""
    try:
        return question()
    except (ValueError, CommError) as error:
        text, file = str(error), str(name).rpartition(":")[0] or str(name)
        raise ValueError(text if text.startswith(file) else f"{name}: {text}") from error


def _object(file: Path, what: str) -> dict[str, Any]:
    content = _named(file, lambda: read_json(file.read_text()))
    if not isinstance(content, dict):
        raise ValueError(f"{file}: {what} is a JSON object: docs/plans.md shows one")
    return content


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(line.strip() for line in str(error).splitlines())


def add_command(of: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = of.add_parser(
        "plan",
        help="look at plans (docs/plans.md)",
        description=_DESCRIPTION,
        epilog=_END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    programs = _Programs.load()
    parser.set_defaults(programs=programs)
    commands = parser.add_subparsers(dest="do", metavar="WHAT", required=True)
    listing = _add(commands, "list", "the plans of the library", _LIST)
    _add_json(listing)
    for name, (text, epilog) in _QUESTIONS.items():
        command = _add(commands, name, text, epilog)
        command.add_argument("file", metavar="FILE", help=_FILE)
        for module in programs.modules:
            module.add_arguments(command)
        if name in ("verify", "simulate"):
            _add_json(command)
        if name in ("simulate", "draw"):
            command.add_argument(
                "--bytes",
                type=_arguments.size(),
                default=1 << 20,
                metavar="N",
                help="of a block: 4096, 64K, 1M (default)",
            )
            command.add_argument(
                "--units", type=_arguments.count(), default=1, help="pieces of a block"
            )
            command.add_argument("--machine", type=Path, help="JSON of what it runs on")
        if name == "draw":
            command.add_argument("-o", "--output", type=Path, help="default: standard output")
    _add_synthesize(commands)
    _add_fit(commands)


def _add(
    to: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help: str,
    epilog: str,
    **more: Any,
) -> argparse.ArgumentParser:
    return to.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **more,
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print data, for programs")


def _add_synthesize(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(
        commands,
        "synthesize",
        "make the fastest plan for a topology",
        _SYNTHESIZE,
        aliases=["synthesise"],
    )
    command.add_argument(
        "topology",
        metavar="TOPOLOGY",
        help="nvswitch:RANKS, pcie:RANKS, hosts:HOSTSxRANKSxCARDS, torus:ROWSxCOLUMNS, or a file",
    )
    command.add_argument(
        "--collective",
        choices=["all_gather", "reduce_scatter", "all_reduce"],
        default="all_gather",
        help="(default: all_gather)",
    )
    command.add_argument(
        "--shares", type=_arguments.count(), default=64, help="of a rank's data, at most (64)"
    )
    command.add_argument(
        "--bytes", type=_arguments.size(), default=1 << 28, help="of a block (256M)"
    )
    command.add_argument(
        "--units", type=_arguments.count(), default=32, help="pieces of a block (32)"
    )
    command.add_argument("-o", "--output", type=Path, help="where to write the plan")
    _add_json(command)


def _add_fit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(commands, "fit", "fit the cost model to times measured on this host", _FIT)
    command.add_argument("--ranks", type=_arguments.count(), default=2, help="of this host (2)")
    command.add_argument("--sizes", default="64K,256K,1M,4M", help="of full buffers")
    command.add_argument(
        "--repeats", type=_arguments.count(), default=15, help="turns of all plans and sizes"
    )
    command.add_argument(
        "--statistic",
        choices=["fastest", "median"],
        default="fastest",
        help="of the turns (default: fastest)",
    )
    command.add_argument(
        "--samples", type=Path, help="what ctran-bench --plans all --json wrote, instead"
    )
    command.add_argument("-o", "--output", type=Path, help="where to write the machine")
    _add_json(command)


def _fit(arguments: argparse.Namespace) -> None:
    if arguments.samples:
        samples = read_samples(arguments.samples, statistic=arguments.statistic)
        if not samples:
            raise ValueError(
                f"{arguments.samples} has no times of plans: `ctran-bench --plans all --json FILE` "
                "writes them"
            )
    else:
        with _progress.during(f"times all plans among {arguments.ranks} ranks"):
            samples = measure(
                arguments.ranks,
                sizes=arguments.sizes,
                repeats=arguments.repeats,
                statistic=arguments.statistic,
            )
    # Errors are told of what the machine has not been fitted to.
    with _progress.during(f"fits a machine to {len(samples)} times"):
        fitted = _named(arguments.samples or "this host", lambda: fit(samples[::2]))
    parts = {"fitted to": samples[::2], "not fitted to": samples[1::2]}
    medians = {what: compare(some, fitted.machine).median for what, some in parts.items() if some}
    errors = compare(samples, fitted.machine).errors
    if arguments.output:
        _files.write(arguments.output, json.dumps(fitted.machine, indent=1))
    if arguments.json:
        rows = [
            {**asdict(sample), "error": error}
            for sample, error in zip(samples, errors, strict=True)
        ]
        about = {f"median_error_{what.replace(' ', '_')}": error for what, error in medians.items()}
        print(json.dumps({"machine": fitted.machine, **about, "samples": rows}))
        return
    for what, error in medians.items():
        print(f"median error of {len(parts[what])} times {what}: {error:.1%}")
    _tell_errors(samples, errors)
    if not arguments.output:
        print(json.dumps(fitted.machine, indent=1))


def _tell_errors(samples: list[Sample], errors: list[float]) -> None:
    """Said / measured - 1: of each plan, by bytes of a block; and the median of their sizes."""
    plans: dict[str, list[tuple[Sample, float]]] = {}
    for sample, error in zip(samples, errors, strict=True):
        plans.setdefault(sample.plan, []).append((sample, error))
    print(f"{'':36} {'median':>7}  by bytes of a block: microseconds, error")
    for name, known in plans.items():
        known.sort(key=lambda item: item[0].bytes)
        each = "  ".join(
            f"{sample.bytes}: {sample.seconds * 1e6:.1f} {error:+.0%}" for sample, error in known
        )
        print(f"{name:36} {median(abs(error) for _, error in known):7.1%}  {each}")
    medians = [median(abs(error) for _, error in known) for known in plans.values()]
    good = sum(each <= 0.15 for each in medians)
    print(f"{good} of {len(medians)} plans have a median error of 15 % or less")


def _synthesize(arguments: argparse.Namespace) -> None:
    file = Path(arguments.topology)
    topology = _object(file, "a topology") if file.is_file() else arguments.topology
    with _progress.during(f"makes a plan for {arguments.topology}"):
        made = _named(
            arguments.topology,
            lambda: synthesize(topology, arguments.collective, shares=arguments.shares),
        )
        report = made.plan.verify()
    if not report:
        raise CommError(f"the plan is wrong, which is a defect of this program:\n{report}")
    ring = make(f"{arguments.collective}.ring", made.plan.ranks)
    size, units = arguments.bytes, arguments.units
    with _progress.during(f"simulates it for {size} bytes"):
        times = _times(made, ring, size, units)
    if arguments.output:
        made.plan.save(arguments.output)
    if arguments.json:
        about = {
            "collective": arguments.collective,
            "ranks": made.plan.ranks,
            "bytes": size,
            "bound_gbs": made.bound,
            "rate_gbs": made.rate,
            "seconds": {what.replace(" ", "_").replace(",", ""): s for what, s in times.items()},
            "machine": made.machine,
            "plan": json.loads(made.plan.to_json()),
        }
        print(json.dumps(about))
        return
    print(f"{arguments.collective} over {made.plan.ranks} ranks, proved right")
    print(f"  every rank can send   {made.bound:10.3f} GB/s to all others, at most")
    print(f"  over the plan's trees {made.rate:10.3f} GB/s")
    for what, seconds in times.items():
        print(f"  {what:28} {seconds * 1e3:10.3f} ms for {size} bytes")


def _times(made: Synthesis, ring: Plan, size: int, units: int) -> dict[str, float]:
    return {
        "at the bound": made.bound_seconds(size),
        "the links need": made.seconds(size),
        "simulated": made.simulate(size, units=units).seconds,
        "a ring, simulated": ring.simulate(
            size, {**made.machine, "routes": []}, units=units
        ).seconds,
    }


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit code: 1 where something is wrong with a plan, 2 where it cannot be read, or
    proved."""
    try:
        return _run(arguments)
    except BrokenPipeError:
        raise
    except (OSError, ValueError, CommError) as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    if arguments.do == "list":
        plans = library()
        if arguments.json:
            print(json.dumps([{"name": n, "summary": summary} for n, summary in plans.items()]))
            return 0
        for name, summary in plans.items():
            print(f"{name:36} {summary}")
    elif arguments.do in ("synthesize", "synthesise"):
        _synthesize(arguments)
    elif arguments.do == "fit":
        _fit(arguments)
    else:
        return _ask(arguments, _read(arguments))
    return 0


def _ask(arguments: argparse.Namespace, plan: Asked) -> int:
    name = arguments.file
    if arguments.do == "show":
        print(_named(name, plan.__str__), end="")
    elif arguments.do == "json":
        print(_named(name, plan.to_json))
    elif arguments.do == "verify":
        report = _named(name, plan.verify)
        if arguments.json:
            print(json.dumps(_verdict(report)))
            return 0 if report else 1
        print(report, end="")
        if not report:
            return 1
        print(f"  in place: {'yes' if report.in_place_safe else 'through a copy'}")
        print(f"  sums in rank order: {'yes' if report.rank_order else 'no'}")
        print(f"  sums in one go: {'yes' if report.flat else 'no'}")
    else:
        timeline = _simulated(arguments, plan)
        if arguments.do == "simulate" and arguments.json:
            print(json.dumps(_as_data(timeline)))
        elif arguments.do == "simulate":
            print(timeline, end="")
        elif arguments.output:
            _files.write(arguments.output, timeline.svg())
        else:
            print(timeline.svg(), end="")
    return 0


def _verdict(report: Any) -> dict[str, Any]:
    """What was found, as data. What is wrong with a program before it comes to the proof has no
    findings but a text."""
    found = getattr(report, "findings", None)
    if found is None:
        findings = [{"kind": "program", "message": str(report).strip()}]
    else:
        findings = [asdict(finding) for finding in found]
    properties = ("in_place_safe", "rank_order", "flat")
    more = {name: getattr(report, name) for name in properties} if report else {}
    return {"right": bool(report), "findings": findings, **more}


def _as_data(timeline: Timeline) -> dict[str, Any]:
    """JSON has no infinity: ranks that never end have null."""

    def finite(seconds: float) -> float | None:
        return seconds if math.isfinite(seconds) else None

    return {
        "plan": timeline.plan.name,
        "seconds": finite(timeline.seconds),
        "ends": [finite(end) for end in timeline.ends],
        "activities": timeline.activities,
        "transfers": timeline.transfers,
        "links": timeline.links,
        "stuck": timeline.stuck,
    }


def _simulated(arguments: argparse.Namespace, plan: Asked) -> Timeline:
    file: Path | None = arguments.machine
    machine = None if file is None else _object(file, "a machine")
    what = arguments.file if file is None else f"{arguments.file} on {file}"
    return _named(what, lambda: plan.simulate(arguments.bytes, machine, units=arguments.units))
