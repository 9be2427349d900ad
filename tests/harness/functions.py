"""Functions sent by name, also those of test files, which pytest does not make importable."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class FunctionName:
    """Where to find a module-level function."""

    module: str
    file: str
    name: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionName:
        if "<locals>" in function.__qualname__:
            raise ValueError(f"{function.__qualname__} is not a function of a module")
        return cls(function.__module__, function.__code__.co_filename, function.__qualname__)

    def find(self) -> Callable[..., Any]:
        found: Any = self._module()
        for part in self.name.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]

    def _module(self) -> ModuleType:
        if self.module.startswith("harness."):
            return importlib.import_module(self.module)
        if self.module in sys.modules:
            return sys.modules[self.module]
        spec = importlib.util.spec_from_file_location(self.module, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        spec.loader.exec_module(module)
        return module
