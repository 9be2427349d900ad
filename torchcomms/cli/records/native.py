"""The engine's reader of recordings, through its C interface (ctran/capi/trace.h)."""

from __future__ import annotations

import ctypes
import functools
import json
from pathlib import Path
from typing import Any

from torchcomms import _comms


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(_comms.__file__).parent / "lib" / "libctran.so"))
    library.ctran_trace_call.argtypes = [ctypes.c_char_p]
    library.ctran_trace_call.restype = ctypes.c_void_p
    library.ctran_trace_free.argtypes = [ctypes.c_void_p]
    library.ctran_trace_free.restype = None
    return library


def _call(**request: Any) -> Any:
    text = json.dumps(request).encode()
    pointer = _library().ctran_trace_call(text)
    try:
        answer: dict[str, Any] = json.loads(ctypes.string_at(pointer))
    finally:
        _library().ctran_trace_free(pointer)
    if "error" in answer:
        raise OSError(answer["error"])
    return answer["ok"]


def read(descriptor: int) -> dict[str, Any] | None:
    """What the ranks of a communicator on this host have recorded in that memory.

    None if it is no such memory.

    Raises:
        OSError: it cannot be read.
    """
    recording: dict[str, Any] | None = _call(do="read", fd=descriptor)
    return recording


def ask(descriptor: int, name: str, value: str) -> int:
    """Asks the ranks of a communicator to set a variable: a number for `answers`.

    Raises:
        OSError: the memory cannot be written, or the text is too long.
    """
    return int(_call(do="ask", fd=descriptor, name=name, value=value))


def answers(descriptor: int, asked: int) -> dict[int, str | None]:
    """By rank: None before it has answered, empty if it has set the variable, else why not.

    Raises:
        OSError: the memory cannot be read.
    """
    rows = _call(do="answers", fd=descriptor, asked=asked)
    return {row["rank"]: row["answer"] for row in rows}
