"""Execution plans as JSON: the same plan is the same bytes, always."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import Any

from mscclpp.language.plan import Node, Plan
from mscclpp.language.source import Location


def write(plan: Plan, indent: int | None = 2, *, locations: bool = False) -> str:
    """The JSON of a plan.

    Args:
        indent: as in `json.dumps`.
        locations: whether each operation says from which lines of the user's program it comes, as
            a list "locations" of "file:line". Readers of plans that do not know the key ignore it.
    """
    return json.dumps(_value(plan, locations), indent=indent)


def _value(value: object, locations: bool) -> Any:
    if isinstance(value, Node):
        return _object(value, locations)
    if isinstance(value, tuple):
        return [_value(item, locations) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Location):
        return str(value)
    return value


def _object(node: Node, locations: bool) -> dict[str, Any]:
    known = {field.name: field for field in fields(node) if field.metadata.get("json", True)}
    if not locations:
        known.pop("locations", None)
    keys = list(node.layout) or [name for name, f in known.items() if f.metadata.get("always")]
    written = {}
    for name in [*keys, *known]:
        if name in written or (name not in known and name not in node.extra):
            continue
        if name not in known:
            written[name] = node.extra[name]
        elif name in keys or getattr(node, name) != _default(known[name]):
            written[name] = _value(getattr(node, name), locations)
    # Without a layout the order is that of the class.
    return written if node.layout else {name: written[name] for name in known if name in written}


def _default(field: Field[Any]) -> object:
    return None if field.default is MISSING else field.default
