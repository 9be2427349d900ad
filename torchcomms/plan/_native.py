"""The engine's side of plans, through its C interface (ctran/capi/plan.h)."""

from __future__ import annotations

import functools
import json
from typing import Any

from torchcomms import _engine

call = functools.partial(_engine.ask, "plan")
"""Asks the engine to do something about plans: see ctran/capi/plan.h."""


def read_json(text: str) -> Any:
    """Raises ValueError for what is no JSON, or nested more deeply than Python reads."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
