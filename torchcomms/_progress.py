"""What commands say while something takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TERMINAL_SECONDS, _FILE_SECONDS = 0.5, 10.0  # between two looks, after as long without a word


@contextmanager
def during(what: str) -> Iterator[None]:
    """On stderr: in one line of a terminal, or in a line now and then."""
    stream = sys.stderr
    if stream is None:
        yield
        return
    is_terminal = stream.isatty()
    seconds = _TERMINAL_SECONDS if is_terminal else _FILE_SECONDS
    is_over = threading.Event()
    begun = time.monotonic()

    def tell() -> None:
        while not is_over.wait(seconds):
            text = f"{what}: {time.monotonic() - begun:.0f} s"
            print(
                f"\r{text}" if is_terminal else text, end="" if is_terminal else "\n", file=stream
            )
            stream.flush()
        if is_terminal:
            print(f"\r{' ' * (len(what) + 12)}\r", end="", file=stream, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join(1)
