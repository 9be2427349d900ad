#!/usr/bin/env python3
"""PyTorch's own distributed tests, on `ctran` and on PyTorch's Gloo: where do they end differently?

The tests are in the installed torch (`torch.testing._internal.distributed.distributed_test`); their
CPU part runs here. First all run on `gloo`, then those that it does not skip run on `ctran`, which
torch finds as programs do, by its name. A difference fails, unless `differences.json` has it with a
reason; so does one that is in that file and does not occur. A test that fails gets a second try, as
many of them measure time; one that fails on `gloo` nevertheless is no measure of `ctran`.

With --fast the tests of `fast.txt` run on `ctran` alone. They are tests that pass on `gloo`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
# A test and the number of its ranks.
Test = tuple[str, int]


class Suite:
    """The tests on one backend with one number of ranks: a process, its results and its output."""

    def __init__(self, backend: str, ranks: int, folder: Path, names: Sequence[str]) -> None:
        """No names: all tests."""
        self.backend, self.ranks = backend, ranks
        self._begun = time.monotonic()
        stem = f"{backend}-{ranks}-{len(list(folder.iterdir()))}"
        self._results = folder / f"{stem}.jsonl"
        self._results.touch()
        self.log = folder / f"{stem}.log"
        program = [sys.executable, str(HERE / "suite.py"), backend, str(ranks), str(self._results)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*program, *names], stdout=log, stderr=log, start_new_session=True
            )

    def results(self) -> dict[str, tuple[str, float, str]]:
        """Of each test that has ended: its result, its seconds, and why it did not pass."""
        lines = [json.loads(line) for line in self._results.read_text().splitlines()]
        return {name: (result, seconds, text) for name, result, seconds, text in lines}

    def progress(self) -> str:
        results = self.results()
        total = results.pop("", ("?", 0, ""))[0]
        counts = [f"{len(results)} of {total}"]
        for wanted in ("failed", "skipped"):
            counts.append(f"{sum(r[0] == wanted for r in results.values())} {wanted}")
        seconds = time.monotonic() - self._begun
        return f"{self.backend}, {self.ranks} ranks: {', '.join(counts)}, {seconds:.0f} s"

    def kill(self) -> None:
        """With the ranks of the test that runs."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def finish(suites: Iterable[Suite]) -> None:
    """Waits for them, and says every few seconds how far they are."""
    running = list(suites)
    try:
        while running:
            with suppress(subprocess.TimeoutExpired):
                running[0].process.wait(timeout=5)
            for suite in running:
                print(suite.progress(), flush=True)
                if suite.process.poll() not in (None, 0):
                    print(suite.log.read_text()[-4000:])
                    raise SystemExit(f"{suite.log}: it ended with {suite.process.returncode}")
            running = [suite for suite in running if suite.process.poll() is None]
    finally:
        for suite in running:
            suite.kill()


def run(
    backend: str, names: dict[int, Sequence[str]], folder: Path
) -> dict[Test, tuple[str, float, str]]:
    """The results of `names[ranks]`, all numbers of ranks at once; no names: of all tests."""
    found: dict[Test, tuple[str, float, str]] = {}
    for _ in range(2):
        suites = [Suite(backend, ranks, folder, chosen) for ranks, chosen in names.items()]
        finish(suites)
        names = {}
        for suite in suites:
            results = suite.results()
            del results[""]
            found.update({(name, suite.ranks): result for name, result in results.items()})
            failed = [name for name, result in results.items() if result[0] == "failed"]
            if failed:
                names[suite.ranks] = failed
        if not names:
            break
    return found


def compare(
    gloo: dict[Test, str], ctran: dict[Test, str], expected: dict[Test, str]
) -> tuple[dict[Test, str], dict[Test, str]]:
    """The differences that are not expected, and the expected ones that do not occur.

    Args:
        gloo, ctran: results of the tests.
        expected: the result on `ctran` of those where it is another.
    """
    differences = {
        test: f"{of_gloo} on gloo, {ctran[test]} on ctran"
        for test, of_gloo in gloo.items()
        if of_gloo == "passed" and test in ctran and ctran[test] != "passed"
    }
    unexpected = {t: text for t, text in differences.items() if expected.get(t) != ctran[t]}
    gone = {
        test: f"expected: {result} on ctran"
        for test, result in expected.items()
        if ctran.get(test) == "passed"
    }
    return unexpected, gone


def expected_differences() -> dict[Test, str]:
    entries = json.loads((HERE / "differences.json").read_text())
    assert all(entry["reason"] for entry in entries)
    return {(entry["test"], ranks): entry["ctran"] for entry in entries for ranks in entry["ranks"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true", help="only the tests of fast.txt, on ctran")
    parser.add_argument("--ranks", type=int, nargs="+", default=[3, 4], help="default: 3 4")
    parser.add_argument("--tests", nargs="+", default=[], metavar="TEST", help="only these")
    parser.add_argument("--slowest", type=int, default=0, help="list so many tests by their time")
    parser.add_argument("--logs", type=Path, help="a folder for results and output; it is kept")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = args.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = args.tests or ((HERE / "fast.txt").read_text().split() if args.fast else [])
        if args.fast:
            of_gloo = {(name, ranks): "passed" for name in chosen for ranks in args.ranks}
        else:
            gloo = run("gloo", dict.fromkeys(args.ranks, chosen), folder)
            of_gloo = {test: result for test, (result, _, _) in gloo.items()}
        meant: dict[int, Sequence[str]] = {
            ranks: [name for (name, r), of in of_gloo.items() if r == ranks and of != "skipped"]
            for ranks in args.ranks
        }
        ctran = run("ctran", meant, folder)

    by_time = sorted(((seconds, test) for test, (_, seconds, _) in ctran.items()), reverse=True)
    for seconds, (name, ranks) in by_time[: args.slowest]:
        print(f"{seconds:7.2f} s  {name}, {ranks} ranks")
    of_ctran = {test: result for test, (result, _, _) in ctran.items()}
    unexpected, gone = compare(of_gloo, of_ctran, expected_differences())
    for (name, ranks), result in of_gloo.items():
        if result == "failed":
            print(f"{name}, {ranks} ranks: failed on gloo, {of_ctran[name, ranks]} on ctran")
    for (name, ranks), text in unexpected.items():
        print(f"\n{name}, {ranks} ranks: {text}\n{ctran[name, ranks][2]}")
    for (name, ranks), text in gone.items():
        print(f"\n{name}, {ranks} ranks: {text}, which it is not; take it out of differences.json")
    passed = sum(result[0] == "passed" for result in ctran.values())
    print(f"\n{passed} of {len(ctran)} tests passed on ctran")
    if unexpected or gone or not passed:
        raise SystemExit(f"{len(unexpected)} unexpected differences, {len(gone)} that do not occur")


if __name__ == "__main__":
    main()
