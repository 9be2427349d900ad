"""The torch that is installed, and the variables of the environment and of the file."""

from __future__ import annotations

from torchcomms import _requirements, _variables
from torchcomms.cli.doctor.finding import Check, Host, Outcome, broken, good, said_in_a_line, slow

_OURS = ("CTRAN_", "TORCHCOMM_", "TORCHCOMMS_")


def compare_torch(built_for: str, found: str) -> Outcome:
    if _requirements.minor(built_for) != _requirements.minor(found):
        return broken(
            f"torchcomms was built for torch {built_for}, but torch {found} is installed",
            "pip install --no-build-isolation --force-reinstall --no-deps torchcomms",
        )
    return good(f"torch {found}; torchcomms was built for torch {built_for}")


def torch_version(host: Host) -> Outcome:
    from torchcomms._build_info import TORCH_VERSION

    try:
        from torch.version import __version__ as found
    except Exception as error:
        version = ".".join(_requirements.minor(TORCH_VERSION))
        return broken(
            f"torch cannot be imported: {said_in_a_line(error)}",
            f"pip install --force-reinstall 'torch=={version}.*'",
        )
    return compare_torch(TORCH_VERSION, str(found))


def variables(host: Host) -> Outcome:
    engine = _variables.compiled()
    path, error, in_file = engine._config_file()
    bad = [f"TORCHCOMM_CONFIG: the file '{path}' {error}"] if error else []
    wrong: list[str] = []
    unset: list[str] = []
    for values, where in ((dict(host.environ), ""), (in_file, f" (in {path})")):
        for name in sorted(values):
            if values[name] and (fault := engine._config_fault(name, values[name])):
                bad.append(fault + where)
        for name, near in engine._config_unknown(sorted(values)):
            wrong.append(f"{name}{where} means nothing" + (f"; is {near} meant?" if near else ""))
            unset.append(name)
    lines = bad + wrong
    if bad:
        return broken(
            "; ".join(lines), "correct or unset them; `torchcomms env` lists types and defaults"
        )
    if wrong:
        return slow("; ".join(lines), f"unset {' '.join(unset)}; `torchcomms env` lists the names")
    ours = [name for name in sorted({*host.environ, *in_file}) if name.startswith(_OURS)]
    return good(f"set: {', '.join(ours)}" if ours else "none is set")


CHECKS = (
    Check("torch", "software", "torch's version against the build", torch_version),
    Check("variables", "software", "variables: names and values", variables),
)
