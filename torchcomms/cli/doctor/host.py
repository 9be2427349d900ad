"""All checks of one host, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable

from torchcomms.cli.doctor import cores, gpus, limits, links, memory, network, rdma, software
from torchcomms.cli.doctor.finding import Check, Host
from torchcomms.cli.doctor.report import Finding

CHECKS: tuple[Check, ...] = (
    *software.CHECKS,
    *memory.CHECKS,
    *limits.CHECKS,
    *cores.CHECKS,
    *network.CHECKS,
    *rdma.CHECKS,
    *gpus.CHECKS,
    *links.CHECKS,
)


def examine(host: Host, progress: Callable[[str], None]) -> list[Finding]:
    found = []
    for check in CHECKS:
        progress(f"{check.subject}: {check.about}")
        found.append(Finding.of(check.name, check.subject, check.about, check.run(host)))
    return found
