"""The engine's C interface (ctran/capi): questions and answers in JSON. Needs nothing of torch."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

from torchcomms import _requirements
from torchcomms._errors import CommError

PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_char_p)
_INVALID_ARGUMENT = 0  # ctran::ErrorKind


def folder() -> Path:
    """Where the compiled module is, with `lib` and `bin` beside it.

    Raises:
        ImportError: the package has not been built.
    """
    spec = importlib.util.find_spec("torchcomms._comms")  # does not load it
    if spec is None or spec.origin is None:
        raise ImportError(_requirements.NOT_BUILT)
    return Path(spec.origin).parent


@functools.cache
def _functions(about: str) -> tuple[Any, Any]:
    # The library that _comms is linked with: what is registered here serves its calls.
    library = ctypes.CDLL(str(folder() / "lib" / "libctran_engine.so"))
    call, free = library[f"ctran_{about}_call"], library[f"ctran_{about}_free"]
    call.restype, free.restype = ctypes.c_void_p, None
    free.argtypes = [ctypes.c_void_p]
    return call, free


def ask(about: str, do: str, *arguments: Any, **request: Any) -> Any:
    """Asks the engine to do something `about` plan, select or trace, and returns its answer.

    Args:
        arguments: what the function takes besides the request.

    Raises:
        ValueError: the request makes no sense.
        CommError: the engine cannot do it.
    """
    call, free = _functions(about)
    pointer = call(json.dumps({"do": do, **request}).encode(), *arguments)
    try:
        answer = json.loads(ctypes.string_at(pointer))
    finally:
        free(pointer)
    if "error" in answer:
        kind = ValueError if answer["kind"] == _INVALID_ARGUMENT else CommError
        raise kind(answer["error"])
    return answer["ok"]
