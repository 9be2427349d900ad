"""The errors of communicators."""

from collections.abc import Sequence


class CommError(RuntimeError):
    """What went wrong in a communicator.

    Attributes:
        ranks: the ranks it is about (those that are lost, or late); may be empty.
        op: the operation, with or without its arguments: "all_reduce",
            "all_reduce(sum, float32, 4 elements)"; may be empty.
        hint: what to try; may be empty, and is part of the message.
    """

    ranks: list[int]
    op: str
    hint: str

    def __init__(
        self, message: str = "", ranks: Sequence[int] = (), op: str = "", hint: str = ""
    ) -> None:
        super().__init__(message)
        self.ranks = list(ranks)
        self.op = op
        self.hint = hint

    def __reduce__(self) -> tuple[type, tuple[str, list[int], str, str]]:
        return type(self), (str(self), self.ranks, self.op, self.hint)


class CommTimeoutError(CommError):
    """A deadline passed; `ranks` are those that were waited for."""


class PeerLostError(CommError):
    """`ranks` died or left while they were needed."""


class MismatchError(CommError):
    """Ranks called different operations, or one with different arguments."""


class AbortedError(CommError):
    """Somebody called abort()."""


class BackendNotFoundError(CommError, ModuleNotFoundError):
    """new_comm() was asked for a backend that nothing provides."""


def hinted(kind: type[CommError], message: str, hint: str, ranks: Sequence[int] = ()) -> CommError:
    """An error of new_comm() whose message ends with what to try, as those of the engine do."""
    return kind(f"{message}\n  hint: {hint}", ranks, "new_comm", hint)
