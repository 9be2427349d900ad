"""Something to do as soon as a module has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _Finder:
    """A finder of sys.meta_path for one module: the others find it; it acts when that has run."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        # Another list: the caller goes through this one.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            self._action(module)

        loader.exec_module = exec_module


def when_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    """Calls `action(module)` now if the module `name` is there, else right after its import."""
    module = sys.modules.get(name)
    initializing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    if module is not None and not initializing:
        action(module)
    elif module is None:
        sys.meta_path.insert(0, _Finder(name, action))
