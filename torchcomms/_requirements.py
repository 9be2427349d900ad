"""Whether the torch at hand is the one that the extension module was built for."""

NOT_BUILT = (
    "torchcomms has not been built here: this is its source folder. "
    "Install it with `pip install --no-build-isolation .`"
)


def minor(version: str) -> tuple[str, ...]:
    """Major and minor number: ("2", "15") of "2.15.0+cu132"."""
    return tuple(version.split("+")[0].split(".")[:2])


def check() -> None:
    """Compares before the extension is loaded, which with another torch could do anything.

    Raises:
        ImportError: the torch that is installed is another, or the package has not been built.
    """
    # The module of its own because torch itself may be half-way through its start.
    from torch.version import __version__ as found

    try:
        from torchcomms._build_info import TORCH_VERSION as built_for
    except ImportError as error:
        raise ImportError(NOT_BUILT) from error
    if minor(found) != minor(built_for):
        raise ImportError(
            f"This torchcomms was built for torch {built_for}, but torch {found} is installed. "
            "Reinstall it in this environment: pip install --no-build-isolation --force-reinstall "
            "--no-deps torchcomms (or `.` in its source folder)."
        )
