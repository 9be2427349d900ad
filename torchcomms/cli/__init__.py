"""The command `torchcomms`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from torchcomms.cli import bench, doctor, env, records
from torchcomms.plan import _cli as plan_cli
from torchcomms.select import _cli as select_cli
from torchcomms.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="torchcomms",
        description="Looks at what torchcomms does, and at what it could do.",
        epilog="`torchcomms COMMAND --help` says more about one of them.",
    )
    parser.add_argument("--version", action="version", version=f"torchcomms {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    plan_cli.add_commands(
        commands.add_parser(
            "plan",
            help="look at plans (docs/plans.md)",
            description="Shows, proves, simulates and draws plans: those of the library, by name "
            "(all_reduce.ring:4), or those in files.",
        )
    )
    env.add_command(commands)
    bench.add_command(commands)
    doctor.add_command(commands)
    records.add_commands(commands)
    select_cli.add_commands(commands)
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = parser.parse_args(given)
    if parsed.command == "env":
        return env.run(parsed)
    if parsed.command == "bench":
        return bench.run(parsed, given)
    if parsed.command == "doctor":
        return doctor.run(parsed)
    if parsed.command in records.NAMES:
        return records.run(parsed)
    if parsed.command == "explain":
        return select_cli.explain(parsed)
    if parsed.command == "tune":
        return select_cli.tune(parsed)
    return plan_cli.run(parsed)
