"""Ports for servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """One on which nobody listens, of those that the system gives to nobody who does not ask."""
    while True:
        port = random.randrange(10_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
