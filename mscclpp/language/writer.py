"""Execution plans as JSON: the same plan is the same bytes, always."""

from __future__ import annotations

import functools
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
    return json.dumps(data_of(plan, locations=locations), indent=indent)


def data_of(plan: Plan, *, locations: bool = False, extra: bool = True) -> dict[str, Any]:
    """What `write` writes, as dicts and lists.

    Args:
        extra: whether keys that have no meaning here are in it.
    """
    return _object(plan, locations, extra)


def _value(value: object, locations: bool, extra: bool) -> Any:
    if isinstance(value, Node):
        return _object(value, locations, extra)
    if isinstance(value, tuple):
        return [item if type(item) is int else _value(item, locations, extra) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Location):
        return str(value)
    return value


@functools.cache
def _known(kind: Any) -> dict[str, tuple[object, bool]]:
    """What an object of the JSON may have: what it is without being said, and whether it is said
    even then."""
    return {
        field.name: (_default(field), field.metadata.get("always", False))
        for field in fields(kind)
        if field.metadata.get("json", True)
    }


def _object(node: Node, locations: bool, extra: bool) -> dict[str, Any]:
    known = _known(type(node))  # type: ignore[arg-type]
    if not node.layout and not node.extra:  # of a program
        return {
            name: _value(value, locations, extra)
            for name, (default, always) in known.items()
            if ((value := getattr(node, name)) != default or always)
            and (locations or name != "locations")
        }
    known = {name: one for name, one in known.items() if locations or name != "locations"}
    keys = list(node.layout) or [name for name, (_, always) in known.items() if always]
    written = {}
    for name in [*keys, *known]:
        if name in written or (name not in known and not (extra and name in node.extra)):
            continue
        if name not in known:
            written[name] = node.extra[name]
        elif name in keys or getattr(node, name) != known[name][0]:
            written[name] = _value(getattr(node, name), locations, extra)
    # Without a layout the order is that of the class.
    return written if node.layout else {name: written[name] for name in known if name in written}


def _default(field: Field[Any]) -> object:
    return None if field.default is MISSING else field.default
