"""What `torchcomms analyze --json` prints, held against the schema that comes with the package."""

from __future__ import annotations

import functools
import json
from typing import Any

from torchcomms.cli.records.command import SCHEMA


@functools.cache
def validator() -> Any:
    """Of the schema, and of nothing besides what it names."""
    import jsonschema  # not by ranks, which import what tests import

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
    return jsonschema.Draft202012Validator(narrowed(schema))


def checked(text: str) -> Any:
    """The data. Raises jsonschema.ValidationError if it is not as the schema says."""
    data = json.loads(text)
    validator().validate(data)
    return data
