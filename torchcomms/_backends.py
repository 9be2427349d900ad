"""Which backends new_comm() can make. Needs nothing of torch before it is asked."""

from __future__ import annotations


def _entry_points() -> dict[str, object]:
    # Imported when asked for: it costs more than the rest of this package.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="torchcomms.backends")}


def _load_backend(name: str) -> None:
    """Makes the backend `name` known to new_comm().

    Backends of other packages are found by their entry points of the group `torchcomms.backends`,
    each naming a module that registers the backend when it is imported; or in a library that the
    environment names (TORCHCOMMS_BACKEND_LIB_PATH_<NAME>). "<name>-lazy" is made of <name>.

    Raises:
        ModuleNotFoundError: no installed package has such a backend.
    """
    from torchcomms._comms import _is_backend_registered, _load_plugin

    if _is_backend_registered(name) or _load_plugin(name):
        return
    entry = _entry_points().get(name)
    if entry is None and name.endswith("-lazy"):
        from torchcomms import _lazy

        backend = name.removesuffix(_lazy.SUFFIX)
        _load_backend(backend)
        _lazy.register(backend)
        return
    if entry is None:
        raise ModuleNotFoundError(
            f"failed to find backend {name}, is it registered via entry_points.txt?"
        )
    entry.load()  # type: ignore[attr-defined]
    if not _is_backend_registered(name):
        raise ModuleNotFoundError(f"{entry} does not register a backend {name}")


def is_backend_built(name: str) -> bool:
    """Whether new_comm() can make the backend `name`."""
    try:
        _load_backend(name)
    except ImportError:
        return False
    return True


def built_backends() -> list[str]:
    """The names of the backends that new_comm() can make."""
    from torchcomms._comms import _registered_backends

    names = set(_registered_backends()) | set(_entry_points())
    return sorted(name for name in names if is_backend_built(name))
