"""What can go wrong while ranks work together. Arguments that make no sense are ValueErrors."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AbortedError",
    "CommError",
    "CommTimeoutError",
    "MismatchError",
    "PeerLostError",
    "UnsupportedError",
]


class CommError(RuntimeError):
    """A call on a communicator failed.

    Attributes:
        ranks: those that it is about: who did not come, who died.
        op: the operation.
        hint: what to try.
    """

    def __init__(
        self, message: str, ranks: Sequence[int] = (), op: str = "", hint: str = ""
    ) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)
        self.op = op
        self.hint = hint


class CommTimeoutError(CommError, TimeoutError):
    """A deadline passed."""


class PeerLostError(CommError):
    """A rank died or left."""


class MismatchError(CommError):
    """Ranks called different operations."""


class AbortedError(CommError):
    """Somebody called `abort`."""


class UnsupportedError(CommError):
    """This build or this machine cannot do it."""


# In the order of ctran::ErrorKind, behind invalid arguments.
_KINDS = (CommTimeoutError, PeerLostError, MismatchError, AbortedError, UnsupportedError, CommError)


def made(kind: int, message: str, ranks: Sequence[int], op: str, hint: str) -> Exception:
    """The exception of an error of the engine, by the number of its kind."""
    if kind == 0:
        return ValueError(message)
    return _KINDS[kind - 1](message, ranks, op, hint)
