"""What `torchcomms analyze --json` prints, held against the schema that comes with the package."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from torchcomms.cli.records.command import SCHEMA


def strict_schema() -> dict[str, Any]:
    """The schema, and nothing besides what it names."""

    def narrowed(part: Any) -> Any:
        if isinstance(part, list):
            return [narrowed(one) for one in part]
        if not isinstance(part, dict):
            return part
        made = {name: narrowed(one) for name, one in part.items()}
        if "properties" in made and made.get("type") == "object":
            made["additionalProperties"] = False
        return made

    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    narrow: dict[str, Any] = narrowed(schema)
    return narrow


def checked(text: str) -> Any:
    """The data. Raises jsonschema.ValidationError if it is not as the schema says."""
    data = json.loads(text)
    jsonschema.Draft202012Validator(strict_schema()).validate(data)
    return data
