"""Execution plans from JSON: as `writer` writes them, and as MSCCL++'s compiler does.

Nothing is lost: what has no meaning here is kept, and a plan that was read is written with the same
keys in the same order.
"""

from __future__ import annotations

import json
import types
import typing
from collections import Counter
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from typing import Any

from mscclpp.language.plan import Node, Plan
from mscclpp.language.references import check_references
from mscclpp.language.source import Location


class PlanFormatError(ValueError):
    """A text is no execution plan; the message says in which place, and what was expected."""


def read(text: str | bytes) -> Plan:
    """The plan that a JSON text describes.

    Raises:
        PlanFormatError: the text is no JSON, a key that is needed is missing, a value is of another
            type, an operation does not exist, or something refers to what is not there.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except PlanFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise PlanFormatError(f"this is no JSON: {error}") from error
    try:
        plan: Plan = _node(Plan, value, "plan")
        problem = next(check_references(plan), None)
    except RecursionError as error:
        raise PlanFormatError("operations are nested too deeply") from error
    if problem:
        raise PlanFormatError(": ".join(problem))
    return plan


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        twice = next(name for name, times in names.items() if times > 1)
        raise PlanFormatError(f"the key {twice!r} stands twice in one object")
    return found


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )


def _node(kind: Any, value: object, place: str) -> Any:
    if not isinstance(value, dict):
        raise PlanFormatError(f"{place}: an object was expected, not {_said(value)}")
    if missing := _required(kind) - value.keys():
        raise PlanFormatError(f"{place}: {min(missing)!r} is missing")
    known = {f.name for f in fields(kind) if f.metadata.get("json", True)}
    return kind(
        layout=tuple(value),
        extra={name: item for name, item in value.items() if name not in known},
        **{
            name: _decoded(_hints(kind)[name], item, f"{place}.{name}")
            for name, item in value.items()
            if name in known
        },
    )


def _decoded(hint: Any, value: object, place: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in typing.get_args(hint):
            return None
        return _one_of([kind for kind in typing.get_args(hint) if kind is not type(None)],
                       value, place)  # fmt: skip
    if origin is tuple:
        if not isinstance(value, list):
            raise PlanFormatError(f"{place}: a list was expected, not {_said(value)}")
        item = typing.get_args(hint)[0]
        return tuple(_decoded(item, one, f"{place}[{i}]") for i, one in enumerate(value))
    if hint is Location:
        file, _, line = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        if not (line.isascii() and line.isdigit() and len(line) < 10):
            raise PlanFormatError(f"{place}: 'file:line' was expected, not {_said(value)}")
        return Location(file, int(line))
    if issubclass(hint, Enum):
        allowed = [member.value for member in hint]
        if value not in allowed:
            raise PlanFormatError(f"{place}: one of {allowed} was expected, not {_said(value)}")
        return hint(value)
    if issubclass(hint, Node):
        return _node(hint, value, place)
    if type(value) is not hint:
        raise PlanFormatError(f"{place}: {_KINDS[hint]} was expected, not {_said(value)}")
    if hint is int and not 0 <= typing.cast(int, value) < 2**64:
        raise PlanFormatError(
            f"{place}: a number from 0 to 2^64-1 was expected, not {_said(value)}"
        )
    return value


_KINDS = {int: "an integer", str: "a string", bool: "true or false"}


def _one_of(kinds: list[Any], value: object, place: str) -> Any:
    """Of several kinds of objects, the one whose keys are there."""
    if len(kinds) == 1:
        return _decoded(kinds[0], value, place)
    if not isinstance(value, dict):
        raise PlanFormatError(f"{place}: an object was expected, not {_said(value)}")
    fits = [kind for kind in kinds if _required(kind) <= value.keys()]
    if len(fits) != 1:
        forms = " or ".join(str(sorted(_required(kind))) for kind in kinds)
        raise PlanFormatError(f"{place}: the keys {forms} were expected, not {sorted(value)}")
    return _node(fits[0], value, place)


def _said(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."
