"""Where the headers and the library of the installed package are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["get_include", "get_lib"]


def get_include() -> str:
    """The folder of the headers, for a compiler's -I."""
    return str(_folder("include"))


def get_lib() -> str:
    """The folder of the library, for a compiler's -L and -rpath; cmake/mscclpp is in it."""
    return str(_folder("lib"))


def _folder(name: str) -> Path:
    spec = importlib.util.find_spec("mscclpp")
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / name).is_dir():
            return Path(place) / name
    raise FileNotFoundError(f"mscclpp was installed without its folder {name}")
