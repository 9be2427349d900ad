"""The command `torchcomms`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from torchcomms.plan import _cli as plan_cli
from torchcomms.select import _cli as select_cli


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="torchcomms", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    plan_cli.add_commands(commands.add_parser("plan", help="look at plans (docs/plans.md)"))
    select_cli.add_commands(commands)
    parsed = parser.parse_args(arguments)
    if parsed.command == "explain":
        return select_cli.explain(parsed)
    if parsed.command == "tune":
        return select_cli.tune(parsed)
    return plan_cli.run(parsed)
