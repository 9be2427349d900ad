"""`torchcomms bench`: how fast operations are here, and beside other libraries."""

from torchcomms.cli.bench.command import add_command, run

__all__ = ["add_command", "run"]
