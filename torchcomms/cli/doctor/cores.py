"""Cores and NUMA nodes, against the ranks that are to run on them."""

from __future__ import annotations

import os

from torchcomms.cli.doctor import cgroups
from torchcomms.cli.doctor.finding import Check, Host, Outcome, good, slow


def _numbers(text: str) -> set[int]:
    """ "0-2,5" is 0, 1, 2, 5."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _online(host: Host) -> set[int]:
    return _numbers(host.read("/sys/devices/system/cpu/online") or "")


def cores(host: Host) -> Outcome:
    usable = os.sched_getaffinity(0)
    online = _online(host) or usable
    facts = [f"{len(usable)} of {len(online)} cores may be used"]
    # A launcher that binds ranks leaves each of them its own cores: they are not to be shared.
    bound = "LOCAL_RANK" in host.environ and len(usable) < len(online)
    count = float(len(usable)) * (host.ranks if bound else 1)
    quota = cgroups.cores(host)
    if quota is not None:
        facts.append(f"the control group gives the time of {quota:.3g}")
        count = min(count, quota)
    if count >= host.ranks:
        return good(f"{'; '.join(facts)}; {host.ranks} ranks")
    if quota == count:
        todo = "give the container as many cores as ranks (docker run --cpus=...)"
    elif len(online) >= host.ranks > len(usable):
        todo = f"taskset -c 0-{max(online)} COMMAND, or leave out the launcher's binding"
    else:
        todo = f"start at most {max(1, int(count))} ranks on this host"
    return slow(
        f"{'; '.join(facts)}, but {host.ranks} ranks are to run: they wait for cores, and sleep "
        "rather than spin",
        todo,
    )


def numa(host: Host) -> Outcome:
    folder = "/sys/devices/system/node"
    nodes = {
        int(name[4:]): _numbers(host.read(f"{folder}/{name}/cpulist") or "")
        for name in host.names(folder)
        if name.startswith("node") and name[4:].isdigit()
    }
    nodes = {node: cpus for node, cpus in nodes.items() if cpus}
    if len(nodes) < 2:
        return good("one NUMA node")
    usable = os.sched_getaffinity(0)
    used = [node for node, cpus in nodes.items() if cpus & usable]
    lines = [
        f"node {node}: {len(cpus)} cores, {len(cpus & usable)} usable"
        for node, cpus in sorted(nodes.items())
    ]
    if "LOCAL_RANK" not in host.environ or host.ranks < 2 or len(used) == 1:
        return good(f"{len(nodes)} NUMA nodes", *lines)
    return slow(
        f"this rank may run on {len(used)} of {len(nodes)} NUMA nodes: its memory may be on one, "
        "and its core on another",
        "torchrun --numa-binding=node (torch 2.9 and newer), or srun --cpu-bind=ldoms",
        *lines,
    )


CHECKS = (
    Check("cores", "cores", "affinity and control group, against the ranks", cores),
    Check("numa", "cores", "NUMA nodes, against the ranks", numa),
)
