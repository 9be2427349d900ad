"""Starts the command `torchcomms`, which does without torch where it can: that takes seconds to
load, and `torchcomms doctor` has to run where it cannot be."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """torchcomms, whose own code runs when something of it is wanted that is no submodule."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or importlib.util.find_spec(f"{self.__name__}.{name}"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        self.__class__ = ModuleType  # type: ignore[assignment]
        try:
            spec.loader.exec_module(self)
        except BaseException:
            self.__class__ = _Package
            raise
        return getattr(self, name)


def main() -> int:
    """Returns the exit code."""
    spec = importlib.util.find_spec("torchcomms")
    if spec is not None and spec.name not in sys.modules:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _Package
        sys.modules[spec.name] = package
    from torchcomms.cli import main

    return main()
