"""The engine's side of plans, through its C interface (ctran/capi/plan.h)."""

from __future__ import annotations

import ctypes
import functools
import json
from pathlib import Path
from typing import Any

from torchcomms import _comms
from torchcomms._errors import CommError

_INVALID_ARGUMENT = 0  # ctran::ErrorKind


@functools.cache
def _library() -> ctypes.CDLL:
    # The one that _comms has loaded: what is registered here serves its calls.
    library = ctypes.CDLL(str(Path(_comms.__file__).parent / "lib" / "libctran_engine.so"))
    library.ctran_plan_call.argtypes = [ctypes.c_char_p]
    library.ctran_plan_call.restype = ctypes.c_void_p
    library.ctran_plan_free.argtypes = [ctypes.c_void_p]
    library.ctran_plan_free.restype = None
    return library


def read_json(text: str) -> Any:
    """Raises ValueError for what is no JSON, or nested more deeply than Python reads."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def call(do: str, **request: Any) -> Any:
    """Asks the engine to do something about plans, and returns its answer.

    Raises:
        ValueError: the request makes no sense.
        CommError: the engine cannot do it.
    """
    text = json.dumps({"do": do, **request}).encode()
    pointer = _library().ctran_plan_call(text)
    try:
        answer = json.loads(ctypes.string_at(pointer))
    finally:
        _library().ctran_plan_free(pointer)
    if "error" in answer:
        kind = ValueError if answer["kind"] == _INVALID_ARGUMENT else CommError
        raise kind(answer["error"])
    return answer["ok"]
