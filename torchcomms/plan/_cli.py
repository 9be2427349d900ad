"""`torchcomms plan`: look at plans from the command line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from torchcomms._errors import CommError
from torchcomms.plan._plan import Plan, library, make
from torchcomms.plan._synthesis import synthesize

_FILE = (
    "a plan as JSON (ours, or of MSCCL++), '-' for standard input, "
    "or one of the library as NAME:RANKS[:LANES]"
)


def _read(name: str) -> Plan:
    if name == "-":
        return Plan.from_json(sys.stdin.read())
    parts = name.split(":")
    if parts[0] in library():
        numbers = [int(part) for part in parts[1:]] or [4]
        return make(parts[0], numbers[0], lanes=(numbers[1:] or [1])[0])
    return Plan.load(name)


def _bytes(text: str) -> int:
    scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    return int(text[:-1]) << scale if scale else int(text)


def add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="do", required=True)
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
        if name in ("simulate", "draw"):
            command.add_argument(
                "--bytes",
                type=_bytes,
                default=1 << 20,
                metavar="N",
                help="of a block: 4096, 64K, 1M (default)",
            )
            command.add_argument("--units", type=int, default=1, help="pieces of a block")
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
    command.add_argument("--shares", type=int, default=64, help="of a rank's data, at most (64)")
    command.add_argument("--bytes", type=_bytes, default=1 << 28, help="of a block (256M)")
    command.add_argument("--units", type=int, default=32, help="pieces of a block (32)")
    command.add_argument("-o", "--output", type=Path, help="where to write the plan")


def _synthesize(arguments: argparse.Namespace) -> None:
    file = Path(arguments.topology)
    topology = json.loads(file.read_text()) if file.is_file() else arguments.topology
    made = synthesize(topology, arguments.collective, shares=arguments.shares)
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
    """Returns the exit code: 1 where something is wrong with a plan, 2 where it cannot be read."""
    if arguments.do == "list":
        for name, summary in library().items():
            print(f"{name:36} {summary}")
        return 0
    try:
        if arguments.do in ("synthesize", "synthesise"):
            _synthesize(arguments)
            return 0
        plan = _read(arguments.file)
        if arguments.do == "show":
            print(plan, end="")
        elif arguments.do == "json":
            print(plan.to_json())
        elif arguments.do == "verify":
            report = plan.verify()
            print(report, end="")
            if report:
                print(f"  in place: {'yes' if report.in_place_safe else 'through a copy'}")
                print(f"  sums in rank order: {'yes' if report.rank_order else 'no'}")
                print(f"  sums in one go: {'yes' if report.flat else 'no'}")
            return 0 if report else 1
        else:
            machine = json.loads(arguments.machine.read_text()) if arguments.machine else None
            timeline = plan.simulate(arguments.bytes, machine, units=arguments.units)
            if arguments.do == "simulate":
                print(timeline, end="")
            elif arguments.output:
                arguments.output.write_text(timeline.svg())
            else:
                print(timeline.svg(), end="")
    except (OSError, ValueError, CommError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
