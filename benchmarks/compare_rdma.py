#!/usr/bin/env python3
"""Compares collectives of two ranks over RDMA with the same over TCP, in a virtual machine.

ctran-bench takes turns with CTRAN_IB=1 and CTRAN_IB=0 in one run of the machine of tests/rdma
(`make test-rdma` installs what that needs). The machine is emulated, its RDMA device is software
that computes a checksum of every packet, and its TCP goes over loopback, which has no packets to
check: what is compared is two paths through one kernel, and nothing here says how fast hardware is.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "rdma")]

import machine as virtual  # noqa: E402
import run as guest  # noqa: E402
from side_by_side.machine import machine  # noqa: E402

PATHS = {"rdma": "1", "tcp": "0"}
Samples = dict[tuple[str, str, int], list[float]]


def script(program: Path, arguments: argparse.Namespace) -> str:
    """All turns, and then what they have written."""
    lines = ["export TMPDIR=/run CTRAN_IB_GID_INDEX=1", "status=0"]
    options = ["--ops", arguments.ops, "--sizes", arguments.sizes]
    options += ["--repeats", "3", "--min-ms", str(arguments.min_ms)]
    for _ in range(arguments.turns):
        for path, enabled in PATHS.items():
            command = [str(program), "-n", "2", "--hosts", "2", *options]
            command += ["--json", f"/run/{path}.json"]
            lines.append(
                f"CTRAN_IB={enabled} timeout 120 {virtual.shlex.join(command)} || status=1"
            )
    lines += [f"echo PATH {path}; cat /run/{path}.json" for path in PATHS]
    return "\n".join([*lines, "exit $status"])


def measure(program: Path, arguments: argparse.Namespace) -> tuple[int, Samples]:
    samples: Samples = {}
    path = ""

    def on_line(line: str) -> None:
        nonlocal path
        if line.startswith("PATH "):
            path = line[5:]
        elif line.startswith("{"):
            row = json.loads(line)
            samples.setdefault((path, row["op"], row["bytes"]), []).extend(row["samples_us"])
        else:
            print(line, flush=True)

    bounds = virtual.Bounds(silence=150, total=arguments.limit)
    status = guest.in_guest(["sh", "-c", script(program, arguments)], bounds, on_line=on_line)
    return status, samples


def table(samples: Samples) -> list[dict[str, Any]]:
    """The best of each: the machine is busy with other things too."""
    rows = []
    print(f"\n{'best, us':18}{'bytes':>10}{'TCP':>12}{'RDMA':>12}   RDMA / TCP")
    for (path, op, nbytes), of_rdma in samples.items():
        of_tcp = samples.get(("tcp", op, nbytes))
        if path != "rdma" or not of_tcp:
            continue
        ratio = min(of_rdma) / min(of_tcp)
        print(f"{op:18}{nbytes:>10}{min(of_tcp):>12.1f}{min(of_rdma):>12.1f}   {ratio:.2f}")
        both = {"tcp_us": of_tcp, "rdma_us": of_rdma}
        rows.append({"op": op, "bytes": nbytes, "best_ratio": round(ratio, 3), **both})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, required=True, help="folder of ctran-bench")
    parser.add_argument("--ops", default="send_recv,all_reduce,all_gather,broadcast,barrier")
    parser.add_argument("--sizes", default="8,4K,64K,256K,1M")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--min-ms", type=int, default=50, help="of a repeat; three make a turn")
    parser.add_argument("--limit", type=float, default=900, help="seconds for all of it")
    output = ROOT / "build" / "bench" / "rdma_collectives.json"
    parser.add_argument("--output", type=Path, default=output)
    arguments = parser.parse_args()
    status, samples = measure(arguments.programs.resolve() / "ctran-bench", arguments)
    rows = table(samples)
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {**machine(), "guest": "qemu (TCG), Debian's kernel, rdma_rxe over veth"},
        "settings": {"ranks": 2, "turns": arguments.turns, "statistic": "best"},
        "rows": rows,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"every sample is in {arguments.output}")
    return 0 if status == 0 and rows else 1


if __name__ == "__main__":
    sys.exit(main())
