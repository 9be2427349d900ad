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


def read(descriptor: int) -> dict[str, Any] | None:
    """What the ranks of a communicator on this host have recorded in that memory.

    None if it is no such memory.

    Raises:
        OSError: it cannot be read.
    """
    text = json.dumps({"do": "read", "fd": descriptor}).encode()
    pointer = _library().ctran_trace_call(text)
    try:
        answer: dict[str, Any] = json.loads(ctypes.string_at(pointer))
    finally:
        _library().ctran_trace_free(pointer)
    if "error" in answer:
        raise OSError(answer["error"])
    return answer["ok"]  # type: ignore[no-any-return]
