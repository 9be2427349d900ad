"""`torchcomms plan`: look at plans from the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

from torchcomms import _arguments
from torchcomms._errors import CommError
from torchcomms.plan._fit import Sample, compare, fit, measure, read_samples
from torchcomms.plan._native import read_json
from torchcomms.plan._plan import Plan, Timeline, library, make
from torchcomms.plan._synthesis import synthesize

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
    commands.add_parser("list", help="the plans of the library")
    for name, text in (
        ("show", "what each rank does, step by step"),
        ("json", "the plan as JSON"),
        ("verify", "prove it right, or say where it is not"),
        ("simulate", "how long it takes, and who does what when"),
        ("draw", "the same as SVG"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("file", metavar="FILE", help=_FILE)
        for module in programs.modules:
            module.add_arguments(command)
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
    command = commands.add_parser(
        "synthesize", aliases=["synthesise"], help="make the fastest plan for a topology"
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
    command = commands.add_parser("fit", help="fit the cost model to times measured on this host")
    command.add_argument("--ranks", type=_arguments.count(), default=2, help="of this host (2)")
    command.add_argument("--sizes", default="64K,256K,1M,4M", help="of full buffers")
    command.add_argument(
        "--repeats", type=_arguments.count(), default=15, help="turns of all plans and sizes"
    )
    command.add_argument("--statistic", choices=["fastest", "median"], default="fastest")
    command.add_argument(
        "--samples", type=Path, help="what ctran-bench --plans all --json wrote, instead"
    )
    command.add_argument("-o", "--output", type=Path, help="where to write the machine")


def _fit(arguments: argparse.Namespace) -> None:
    if arguments.samples:
        samples = read_samples(arguments.samples, statistic=arguments.statistic)
        if not samples:
            raise ValueError(
                f"{arguments.samples} has no times of plans: `ctran-bench --plans all --json FILE` "
                "writes them"
            )
    else:
        samples = measure(
            arguments.ranks,
            sizes=arguments.sizes,
            repeats=arguments.repeats,
            statistic=arguments.statistic,
        )
    # Errors are told of what the machine has not been fitted to.
    fitted = _named(arguments.samples or "this host", lambda: fit(samples[::2]))
    for what, some in (("fitted to", samples[::2]), ("not fitted to", samples[1::2])):
        if some:
            error = compare(some, fitted.machine).median
            print(f"median error of {len(some)} times {what}: {error:.1%}")
    _tell_errors(samples, compare(samples, fitted.machine).errors)
    text = json.dumps(fitted.machine, indent=1)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)


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
    made = _named(
        arguments.topology,
        lambda: synthesize(topology, arguments.collective, shares=arguments.shares),
    )
    report = made.plan.verify()
    if not report:
        raise CommError(f"the plan is wrong, which is a defect of this program:\n{report}")
    ring = make(f"{arguments.collective}.ring", made.plan.ranks)
    size, units = arguments.bytes, arguments.units
    times = {
        "at the bound": made.bound_seconds(size),
        "the links need": made.seconds(size),
        "simulated": made.simulate(size, units=units).seconds,
        "a ring, simulated": ring.simulate(
            size, {**made.machine, "routes": []}, units=units
        ).seconds,
    }
    print(f"{arguments.collective} over {made.plan.ranks} ranks, proved right")
    print(f"  every rank can send   {made.bound:10.3f} GB/s to all others, at most")
    print(f"  over the plan's trees {made.rate:10.3f} GB/s")
    for what, seconds in times.items():
        print(f"  {what:28} {seconds * 1e3:10.3f} ms for {size} bytes")
    if arguments.output:
        made.plan.save(arguments.output)


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
        for name, summary in library().items():
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
        print(report, end="")
        if not report:
            return 1
        print(f"  in place: {'yes' if report.in_place_safe else 'through a copy'}")
        print(f"  sums in rank order: {'yes' if report.rank_order else 'no'}")
        print(f"  sums in one go: {'yes' if report.flat else 'no'}")
    else:
        timeline = _simulated(arguments, plan)
        if arguments.do == "simulate":
            print(timeline, end="")
        elif arguments.output:
            arguments.output.write_text(timeline.svg())
        else:
            print(timeline.svg(), end="")
    return 0


def _simulated(arguments: argparse.Namespace, plan: Asked) -> Timeline:
    file: Path | None = arguments.machine
    machine = None if file is None else _object(file, "a machine")
    what = arguments.file if file is None else f"{arguments.file} on {file}"
    return _named(what, lambda: plan.simulate(arguments.bytes, machine, units=arguments.units))
