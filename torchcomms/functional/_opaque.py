"""Communicators and windows themselves as arguments of operations, from torch 2.15 on.

torch calls such arguments opaque objects. Graphs go on holding names: the overload `object` of an
operation is the operation on the name of what it is given, wherever it is called or traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchcomms._comms import TorchComm, TorchCommWindow
from torchcomms.functional import _registry
from torchcomms.functional._definitions import LIBRARY, OWNED, operation


def _define(name: str, cls: type, type_name: str, name_of: Callable[[Any], str]) -> None:
    named = operation(name)

    def on_object(owner: Any, *args: Any, **kwargs: Any) -> Any:
        # While torch traces, a stand-in that has the object.
        found = getattr(owner, "real_obj", owner)
        if not isinstance(found, cls):
            raise TypeError(
                f"torchcomm_{name}: argument {parameter!r} must be {cls.__name__} or the name of "
                f"one, not {type(found).__name__}"
            )
        return named(name_of(found), *args, **kwargs)

    parameter = named._schema.arguments[0].name
    _, schema = str(named._schema).split("(str ", 1)
    LIBRARY.define(f"torchcomm_{name}.object({type_name} {schema}")
    LIBRARY.impl(f"torchcomm_{name}.object", on_object, "CompositeImplicitAutograd")


def register() -> None:
    """Lets operations take objects, where torch can."""
    try:
        from torch._custom_class_base import CustomClassBaseMeta
        from torch._library.opaque_object import get_opaque_type_name, register_custom_class
    except ImportError:
        return
    type_names = {}
    kinds = ((TorchComm, _registry.register), (TorchCommWindow, _registry.register_window))
    for cls, name_of in kinds:
        # What isinstance() says of torch's stand-ins for objects is up to their metaclass.
        meta = type(cls.__name__, (type(cls), CustomClassBaseMeta), {})
        cls.__class__ = meta  # type: ignore[method-assign]
        # Compiled code depends on which object it is: it holds the name.
        register_custom_class(cls, typ="symbolic", guard_fn=lambda thing, of=name_of: [of(thing)])
        type_names[cls] = get_opaque_type_name(cls)
    for name in OWNED:
        cls, name_of = kinds[name.startswith("window_")]
        _define(name, cls, type_names[cls], name_of)
