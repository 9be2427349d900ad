#!/usr/bin/env python3
"""Compares ctran between hosts, over TCP, with bare sockets, PyTorch's Gloo and iperf3, in one run.

Ranks are processes of this host that count as on hosts of their own, and meet over loopback. The
loop is that of compare_cpu.py. `sockets` is blocking calls on one bare TCP socket between 2 ranks:
half of its round trip is what an operating system needs at least; it has send_recv and barrier,
and is left out where --ops (default: these two) names others. After the table, 64 MB messages
of ctran and of a bare socket take turns with `iperf3 -P 4` (Debian, Ubuntu: apt-get install
iperf3), which does less: it sends and receives the same 128 KB again and again, so that its data
never leaves the caches, where messages are read from memory and written to it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import sys
import time

from rich.console import Console
from side_by_side import cli, libraries

OURS = "ctran-bench+tcp"
BARE = "sockets"
OPERATIONS_OF_SOCKETS = {"send_recv", "barrier"}
LARGE = 64 << 20
SECONDS = 1
TURNS = 5


def iperf_bytes_per_second(port: int) -> float:
    """One run of four streams."""
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        client = ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-P", "4", "-t", str(SECONDS), "-J"]
        for _ in range(50):  # until the server listens
            result = subprocess.run(client, capture_output=True, text=True, timeout=60)
            report = json.loads(result.stdout)
            if "error" not in report:
                return float(report["end"]["sum_received"]["bits_per_second"]) / 8
            time.sleep(0.1)
        raise RuntimeError(f"iperf3: {report['error']}")
    finally:
        server.kill()
        server.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def beside_iperf(cpus: str, limit: float, console: Console) -> None:
    """Prints how fast 64 MB messages go, ours and a bare socket's, and iperf3, in turns."""
    if shutil.which("iperf3") is None:
        console.print("left out iperf3: it is not installed (apt-get install iperf3)")
        return
    turns: dict[str, list[float]] = {OURS: [], BARE: [], "iperf3 -P 4": []}
    with contextlib.ExitStack() as cleanup:
        messages = [libraries.Library(name, 2, cpus, limit) for name in (OURS, BARE)]
        for library in messages:
            cleanup.callback(library.close)
            library.check("send_recv", LARGE)
        for _ in range(TURNS):
            for library in messages:
                seconds = library.time("send_recv", LARGE, 2, 20)
                turns[library.name].append(LARGE / seconds)
            turns["iperf3 -P 4"].append(iperf_bytes_per_second(free_port()))
    speeds = {name: statistics.median(turn) / 1e9 for name, turn in turns.items()}
    each = "; ".join(f"{name} {speed:.2f} GB/s" for name, speed in speeds.items())
    ratio = speeds[OURS] / speeds["iperf3 -P 4"]
    console.print(f"64 MB: {each}; ours / iperf3 {ratio:.2f} (medians of {TURNS} turns)")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_arguments(parser, "build/bench/compare_tcp")
    parser.set_defaults(ops=",".join(sorted(OPERATIONS_OF_SOCKETS)))
    arguments = parser.parse_args()
    bare = arguments.nproc == 2 and set(arguments.ops.split(",")) <= OPERATIONS_OF_SOCKETS
    names = [OURS, "c10d/gloo", *([BARE] if bare else [])]
    status = cli.compare(arguments, names, names[1:], required=False)
    cpus = libraries.placement(arguments.pin, 2)
    beside_iperf(cpus, arguments.limit, Console(width=None if sys.stdout.isatty() else 160))
    return status


if __name__ == "__main__":
    sys.exit(main())
