"""The torch that is installed, and the environment variables."""

from __future__ import annotations

import difflib
import math
import re

from torchcomms import _requirements, _variables
from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, slow

_OURS = ("CTRAN_", "TORCHCOMM_", "TORCHCOMMS_")
# Read, though not declared: the path of libnvrtc, and what `tune` tells the ranks it starts.
_ALSO = ("CTRAN_NVRTC_LIBRARY", "TORCHCOMMS_TUNE_WORKER")
_PATTERN = "TORCHCOMMS_BACKEND_LIB_PATH_"
_TRUTH = {"1", "true", "yes", "on", "y", "0", "false", "no", "off", "n"}


def compare_torch(built_for: str, found: str) -> Outcome:
    if _requirements.minor(built_for) != _requirements.minor(found):
        return broken(
            f"torchcomms was built for torch {built_for}, but torch {found} is installed",
            "pip install --no-build-isolation --force-reinstall --no-deps torchcomms",
        )
    return good(f"torch {found}; torchcomms was built for torch {built_for}")


def torch_version(host: Host) -> Outcome:
    from torch.version import __version__ as found

    from torchcomms._build_info import TORCH_VERSION

    return compare_torch(TORCH_VERSION, str(found))


def _fault(kind: str, value: str) -> str:
    """What a value of a variable is not; empty if it can be read."""
    if kind == "bool":
        return "" if value.lower() in _TRUTH else "a truth value (1 0 true false yes no on off)"
    if kind == "int":
        return "" if re.fullmatch(r"-?\d+", value) else "an integer"
    if kind == "bytes":
        return "" if re.fullmatch(r"\d+[KMG]?", value) else "a number of bytes (4096, 64K, 4M, 1G)"
    if kind == "seconds":
        try:
            fine = math.isfinite(float(value)) and float(value) >= 0
        except ValueError:
            fine = False
        return "" if fine else "a number of seconds"
    if "|" in kind:
        return "" if value.lower() in kind.split("|") else f"one of {kind.replace('|', ', ')}"
    return ""


def variables(host: Host) -> Outcome:
    known = {row.name: row for row in _variables.variables()}
    bad = [
        f"{name}={host.environ[name]} is not {fault}"
        for name, row in known.items()
        if host.environ.get(name) and (fault := _fault(row.type, host.environ[name]))
    ]
    wrong, unset = [], []
    for name in sorted(host.environ):
        if not name.startswith(_OURS) or name in known or name in _ALSO:
            continue
        if name.startswith(_PATTERN):
            continue
        near = difflib.get_close_matches(name, [*known, *_ALSO], 1, 0.7)
        wrong.append(f"{name} means nothing" + (f"; is {near[0]} meant?" if near else ""))
        unset.append(name)
    lines = bad + wrong
    if bad:
        return broken(
            "; ".join(lines), "correct or unset them; `torchcomms env` lists types and defaults"
        )
    if wrong:
        return slow("; ".join(lines), f"unset {' '.join(unset)}; `torchcomms env` lists the names")
    ours = [name for name in sorted(host.environ) if name.startswith(_OURS)]
    return good(f"set: {', '.join(ours)}" if ours else "none is set")


CHECKS = (
    Check("torch", "software", "torch's version against the build", torch_version),
    Check("variables", "software", "environment variables: names and values", variables),
)
