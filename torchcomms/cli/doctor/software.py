"""The torch that is installed, and the environment variables."""

from __future__ import annotations

from torchcomms import _requirements
from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, slow

_OURS = ("CTRAN_", "TORCHCOMM_", "TORCHCOMMS_")


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


def variables(host: Host) -> Outcome:
    from torchcomms._comms import _config_fault, _config_unknown

    bad = [
        fault
        for name in sorted(host.environ)
        if host.environ[name] and (fault := _config_fault(name, host.environ[name]))
    ]
    unknown = _config_unknown(sorted(host.environ))
    wrong = [
        f"{name} means nothing" + (f"; is {near} meant?" if near else "") for name, near in unknown
    ]
    unset = [name for name, _ in unknown]
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
