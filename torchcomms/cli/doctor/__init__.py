"""`torchcomms doctor`: what decides whether, and how fast, torchcomms will run here."""

from torchcomms.cli.doctor.command import add_command, run

__all__ = ["add_command", "run"]
