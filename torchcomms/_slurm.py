"""Lists of hosts, as Slurm writes them."""

from collections.abc import Mapping

from torchcomms._errors import CommError, hinted

_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")


def first_host(env: Mapping[str, str]) -> str:
    """The first node of the step, or of the job.

    Raises:
        CommError: there is no such list, or it cannot be read.
    """
    variable = next((one for one in _LISTS if env.get(one)), None)
    if variable is None:
        raise hinted(
            CommError,
            f"SLURM_PROCID is set, but none of {', '.join(_LISTS)} is",
            hint="set MASTER_ADDR and MASTER_PORT",
        )
    try:
        return first_of(env[variable])
    except ValueError as error:
        raise hinted(
            CommError,
            f"{variable} is '{env[variable]}': {error}",
            hint="set MASTER_ADDR and MASTER_PORT",
        ) from error


def first_of(hosts: str) -> str:
    """The first of "a1,a2", "a[08-11,13]-ib[0-1],b": "a1", "a08-ib0".

    Raises:
        ValueError: the text is no such list.
    """
    host = ""
    rest = hosts.strip()
    while rest and rest[0] != ",":
        if rest[0] != "[":
            host += rest[0]
            rest = rest[1:]
            continue
        numbers, closed, rest = rest[1:].partition("]")
        first = numbers.split(",")[0].split("-")[0]
        if not closed or not first.isdecimal():
            raise ValueError("brackets must enclose numbers")
        host += first
    if not host or "]" in host:
        raise ValueError("not a list of hosts")
    return host
