"""What ranks record, for people: `torchcomms analyze`, `top` and `trace`."""

from torchcomms.cli.records.command import NAMES, add_commands, run

__all__ = ["NAMES", "add_commands", "run"]
