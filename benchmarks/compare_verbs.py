#!/usr/bin/env python3
"""Compares virtual queue pairs of ctran/verbs, and RDMA transports, with perftest, on soft-RoCE in
a virtual machine.

ctran-verbs-bench, ctran-transport-bench and perftest take turns in one run of the machine of
tests/rdma (`make test-rdma` installs what that needs), two processes each, with the same sizes,
numbers of messages, and window
(128 messages): writes beside ib_write_bw, writes with a notice beside ib_send_bw (whose receiver
hears of each message, too), reads beside ib_read_bw, and 8 bytes with a notice beside ib_write_lat,
which sees a byte change, and ib_send_lat, which gets a completion. A ratio is the median of those
of the turns, each of ours with theirs of the same turn. The machine is emulated, and so are network
and device: ratios say what our code costs beside theirs, and nothing here says how fast hardware
is.

The bars, at least 0.9 of their bandwidth from 256 KB and at most 1.2 times the latency of
ib_write_lat, are told with PASS or FAIL; they do not change the exit status.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "rdma")]

import machine as virtual  # noqa: E402
import run as guest  # noqa: E402
from side_by_side.machine import machine  # noqa: E402

DEVICE = ["-d", "rxe0", "-x", "1"]
MEBIBYTE = 1.048576
"""Of MB: the unit of perftest."""
BYTES_OF_A_RUN = 8 << 20
ROUND_TRIPS = 1000
OF_PERFTEST = {
    "write_bw": ("ib_write_bw",),
    "notify_bw": ("ib_send_bw",),
    "read_bw": ("ib_read_bw",),
    "write_lat": ("ib_write_lat", "ib_send_lat"),
}
"""Bars are for the first of each."""

LEAST_BANDWIDTH, BANDWIDTH_FROM = 0.9, 256 << 10
MOST_LATENCY = 1.2
SCHEMES = {
    "write_bw": ("spray", "transport"),
    "notify_bw": ("dqplb", "spray", "transport"),
    "read_bw": ("dqplb", "transport"),
    "write_lat": ("dqplb", "spray", "transport"),
}

PROGRAMS = {"transport": "ctran-transport-bench"}
"""The schemes of virtual queue pairs are ctran-verbs-bench's."""


@dataclass
class Case:
    """A program with its arguments, and what it has measured: a sample of each turn that it has had
    and that has not failed."""

    program: str
    what: str
    scheme: str
    qps: int
    nbytes: int
    turns: list[int] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)

    @property
    def unit(self) -> str:
        return "us" if self.what == "write_lat" else "mb_per_s"

    def iterations(self, shortened: int) -> int:
        if self.what == "write_lat":
            return ROUND_TRIPS // shortened
        return max(16, BYTES_OF_A_RUN // self.nbytes // shortened)

    def command(self, folder: Path, shortened: int) -> list[str]:
        count = ["-s", str(self.nbytes), "-n", str(self.iterations(shortened))]
        if self.program == "perftest":
            script = str(ROOT / "benchmarks" / "verbs" / "perftest.sh")
            qps = [] if self.what == "write_lat" else ["-q", str(self.qps)]
            return ["sh", script, self.scheme, *DEVICE, "-F", *count, *qps]
        if self.program == "ctran-transport-bench":
            chosen = [f"CTRAN_IB_QPS={self.qps}", "CTRAN_IB_HCA==rxe0", "CTRAN_IB_GID_INDEX=1"]
            return ["env", *chosen, str(folder / self.program), "--what", self.what, *count]
        which = ["--what", self.what, "--scheme", self.scheme, "-q", str(self.qps)]
        return [str(folder / "ctran-verbs-bench"), *DEVICE, *which, *count]

    def result_in(self, line: str) -> float | None:
        """What it has measured, if this line of its output says it."""
        if self.program == "perftest":
            if not re.fullmatch(r"\s*\d+(\s+[\d.]+){4,}\s*", line):
                return None
            columns = [float(word) for word in line.split()]
            return columns[4] if self.what == "write_lat" else columns[3] * MEBIBYTE
        return float(json.loads(line)[self.unit]) if line.startswith("{") else None

    def result(self, statistic: str) -> float | None:
        """The median of its turns or, for a machine that is busy with other things, the best."""
        if not self.samples:
            return None
        if statistic == "median":
            return statistics.median(self.samples)
        return min(self.samples) if self.unit == "us" else max(self.samples)


def cases(whats: list[str], sizes: list[int], qps: list[int]) -> list[Case]:
    """perftest's and ours beside each other; its latencies have one queue pair only."""
    made = []
    for what in whats:
        schemes = SCHEMES[what]
        latency = what == "write_lat"
        for nbytes in [8] if latency else sizes:
            for count in qps:
                if not latency or count == qps[0]:
                    queue_pairs = 1 if latency else count
                    made += [
                        Case("perftest", what, program, queue_pairs, nbytes)
                        for program in OF_PERFTEST[what]
                    ]
                made += [
                    Case(PROGRAMS.get(scheme, "ctran-verbs-bench"), what, scheme, count, nbytes)
                    for scheme in schemes
                ]
    return made


def measure(todo: list[Case], folder: Path, repeats: int, shortened: int, limit: float) -> int:
    """All cases in turns, in one machine; its exit status."""
    script = ["status=0"]
    for turn in range(repeats):
        for number, case in enumerate(todo):
            command = virtual.shlex.join(case.command(folder, shortened))
            script.append(
                f"echo CASE {turn} {number}; timeout 60 {command} || {{ status=1; echo FAILED; }}"
            )
    current, turn = todo[0], 0
    said: list[str] = []

    def on_line(line: str) -> None:
        nonlocal current, turn
        if line.startswith("CASE "):
            turn, number = map(int, line.split()[1:])
            current = todo[number]
            said.clear()
        elif line == "FAILED":
            print("\n".join([f"{current} failed:", *said]), flush=True)
        elif (sample := current.result_in(line)) is not None:
            current.turns.append(turn)
            current.samples.append(sample)
            show(current)
        else:
            said.append(line)

    bounds = virtual.Bounds(silence=90, total=limit)
    command = ["sh", "-c", "\n".join([*script, "exit $status"])]
    return guest.in_guest(command, bounds, on_line=on_line)


def show(case: Case) -> None:
    name = f"{case.program} {case.what} {case.scheme}".strip()
    value = f"{case.samples[-1]:.1f} {'us' if case.unit == 'us' else 'MB/s'}"
    print(f"  {name}, {case.qps} QPs, {case.nbytes} bytes: {value}", flush=True)


@dataclass
class Comparison:
    """One of ours with one of theirs, of as many queue pairs or of the only one."""

    ours: Case
    theirs: Case

    @property
    def ratios(self) -> list[float]:
        """Of each turn that both have had."""
        theirs = dict(zip(self.theirs.turns, self.theirs.samples, strict=True))
        ours = zip(self.ours.turns, self.ours.samples, strict=True)
        return [sample / theirs[turn] for turn, sample in ours if turn in theirs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def bar(self) -> str | None:
        """PASS or FAIL and the bar; None if there is none."""
        if self.theirs.scheme != OF_PERFTEST[self.ours.what][0]:
            return None
        if self.ours.unit == "us":
            said, passes = f"at most {MOST_LATENCY}", self.ratio <= MOST_LATENCY
        elif self.ours.nbytes >= BANDWIDTH_FROM:
            said, passes = f"at least {LEAST_BANDWIDTH}", self.ratio >= LEAST_BANDWIDTH
        else:
            return None
        return f"{'PASS' if passes else 'FAIL'} ({said})"


def comparisons(todo: list[Case]) -> list[Comparison]:
    """Those that have been measured."""
    theirs = {(c.what, c.scheme, c.nbytes, c.qps): c for c in todo if c.program == "perftest"}
    made = []
    for case in todo:
        if case.program != "perftest":
            qps = 1 if case.unit == "us" else case.qps
            for program in OF_PERFTEST[case.what]:
                made.append(Comparison(case, theirs[case.what, program, case.nbytes, qps]))
    return [each for each in made if each.ratios]


def table(todo: list[Case], statistic: str) -> None:
    print(f"\n{statistic:34}{'bytes':>9}{'QPs':>5}{'perftest':>24}{'ours':>10}   median ratio, bar")
    for each in comparisons(todo):
        ours, theirs = each.ours, each.theirs
        name = f"{ours.what} {ours.scheme}, {'us' if ours.unit == 'us' else 'MB/s'}"
        numbers = f"{theirs.scheme:>14}{theirs.result(statistic):>10.1f}"
        numbers += f"{ours.result(statistic):>10.1f}   {each.ratio:.2f} {each.bar or ''}"
        print(f"{name:34}{ours.nbytes:>9}{ours.qps:>5}{numbers}".rstrip())


def record(todo: list[Case], settings: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for case in todo:
        result = case.result(settings["statistic"])
        rows.append({**asdict(case), "unit": case.unit, "result": result})
    ratios = [
        {
            "what": each.ours.what,
            "scheme": each.ours.scheme,
            "beside": each.theirs.scheme,
            "qps": each.ours.qps,
            "nbytes": each.ours.nbytes,
            "ratios": [round(ratio, 3) for ratio in each.ratios],
            "median": round(each.ratio, 3),
            "bar": each.bar,
        }
        for each in comparisons(todo)
    ]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {**machine(), "guest": "qemu (TCG), Debian's kernel, rdma_rxe over veth"},
        "settings": settings,
        "rows": rows,
        "ratios": ratios,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, required=True, help="folder of ctran-verbs-bench")
    parser.add_argument("--what", default=",".join(SCHEMES), help="some of it")
    parser.add_argument("--sizes", default="262144,1048576", help="of a message, in bytes")
    parser.add_argument("--qps", default="1,2,4,8")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--statistic",
        choices=("median", "best"),
        default="best",
        help="of a case's turns; best is for machines that are busy with other things too",
    )
    parser.add_argument("--limit", type=float, default=1500, help="seconds for all of it")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "verbs.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.qps, arguments.repeats = "262144", "1,4", 1
    sizes = [int(word) for word in arguments.sizes.split(",")]
    qps = [int(word) for word in arguments.qps.split(",")]
    todo = cases(arguments.what.split(","), sizes, qps)
    shortened = 2 if arguments.quick else 1
    folder = arguments.programs.resolve()
    try:
        status = measure(todo, folder, arguments.repeats, shortened, arguments.limit)
    except SystemExit:  # it has said why; what was measured by then is told all the same
        status = 1
    table(todo, arguments.statistic)
    settings = {
        "sizes": sizes,
        "qps": qps,
        "repeats": arguments.repeats,
        "statistic": arguments.statistic,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(record(todo, settings), indent=1) + "\n")
    print(f"every sample is in {arguments.output}")
    without = [case for case in todo if not case.samples]
    return 1 if status or without else 0


if __name__ == "__main__":
    sys.exit(main())
