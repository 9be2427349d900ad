"""The engine's side of plans, through its C interface (ctran/capi/plan.h)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

_INVALID_ARGUMENT = 0  # ctran::ErrorKind


class EngineError(RuntimeError):
    """The engine cannot do it, or is not there."""


def path() -> Path:
    """Where the engine's library is: with the package torchcomms, which need not be imported."""
    spec = importlib.util.find_spec("torchcomms")
    for folder in (spec and spec.submodule_search_locations) or ():
        found = Path(folder) / "lib" / "libctran_engine.so"
        if found.exists():
            return found
    raise EngineError("the engine (libctran_engine.so of torchcomms) is not installed here")


@functools.cache
def digest() -> str:
    """Of the engine's library: another one computes, and is as fast, otherwise."""
    return hashlib.sha256(path().read_bytes()).hexdigest()


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(path()))
    library.ctran_plan_call.argtypes = [ctypes.c_char_p]
    library.ctran_plan_call.restype = ctypes.c_void_p
    library.ctran_plan_free.argtypes = [ctypes.c_void_p]
    library.ctran_plan_free.restype = None
    return library


def call(do: str, **request: Any) -> Any:
    """Asks the engine to do something about plans, and returns its answer.

    Raises:
        ValueError: the request makes no sense.
        EngineError: the engine cannot do it.
    """
    text = json.dumps({"do": do, **request}).encode()
    pointer = _library().ctran_plan_call(text)
    try:
        answer = json.loads(ctypes.string_at(pointer))
    finally:
        _library().ctran_plan_free(pointer)
    if "error" in answer:
        kind = ValueError if answer["kind"] == _INVALID_ARGUMENT else EngineError
        raise kind(answer["error"])
    return answer["ok"]


class Registration:
    """An algorithm that serves calls, until `remove` or the end of a `with` block."""

    def __init__(self, number: int) -> None:
        self._number = number

    def remove(self) -> None:
        """Takes the algorithm away: it is chosen no more."""
        call("remove", number=self._number)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
