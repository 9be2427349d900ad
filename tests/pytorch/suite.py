"""Runs PyTorch's own distributed tests once: on one backend, with one number of ranks.

    suite.py BACKEND RANKS RESULTS [TEST ...]

Writes lines of JSON to the file RESULTS: the number of tests, then for each that has ended its
name, its result, its seconds and, if it did not pass, why. Without names all tests run. They are
`distributed_test` of `torch.testing._internal.distributed`, of the installed torch, chosen as for
`gloo` so that every backend gets the same. They see no GPU. What they print comes out as it is.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import time
import unittest
from typing import Any, TextIO

# Seconds after which a test that hangs has failed, and for ranks to meet on a busy machine.
GUARD, MEETING = 100, 60


class AsGloo(str):
    """The name of a backend, which tests that do something only if it is "gloo" take for that."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or super().__eq__(other)


def prepared(backend: str, ranks: int) -> Any:
    """PyTorch's module of tests, which reads the environment when it is imported."""
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=str(ranks),
        INIT_METHOD="file:///dev/null",  # until each test has a file of its own
        CUDA_VISIBLE_DEVICES="",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(GUARD),
        OMP_NUM_THREADS="1",
    )
    from torch.testing._internal.distributed import distributed_test as module

    module.Barrier.sync.__func__.__defaults__ = (None, MEETING)  # type: ignore[attr-defined]
    if backend != "gloo":
        importlib.import_module("torchcomms")  # makes its backends known to torch
        module.BACKEND = AsGloo(backend)
    return module


def case_of(module: Any) -> type[unittest.TestCase]:
    class OnBackend(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        """The tests, with ranks that are forked: they need not import torch again."""

        def setUp(self) -> None:
            super().setUp()
            module.INIT_METHOD = os.environ["INIT_METHOD"]  # of this test
            self._start_processes(multiprocessing.get_context("fork").Process)

    return OnBackend


class Lines(unittest.TestResult):
    """Writes what becomes of each test."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file
        self._begun = 0.0

    def say(self, name: str, result: str, seconds: float = 0, text: str = "") -> None:
        print(json.dumps([name, result, round(seconds, 2), text]), file=self._file, flush=True)

    def startTest(self, test: unittest.TestCase) -> None:
        self._begun = time.monotonic()
        print(f"== {test.id()}", file=sys.stderr, flush=True)
        super().startTest(test)

    def _ended(self, test: unittest.TestCase, result: str, text: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        self.say(name, result, time.monotonic() - self._begun, text)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._ended(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._ended(test, "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._ended(test, "passed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._ended(test, "failed", "passed, which it is expected not to")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        text = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]
        print(text, file=sys.stderr, flush=True)
        self._ended(test, "failed", text)

    addError = addFailure


def main() -> None:
    backend, ranks, results, *names = sys.argv[1:]
    case = case_of(prepared(backend, int(ranks)))
    known = unittest.defaultTestLoader.getTestCaseNames(case)
    chosen = [name for name in known if not names or name in names]
    with open(results, "a") as file:
        lines = Lines(file)
        lines.say("", str(len(chosen)))
        unittest.TestSuite(case(name) for name in chosen).run(lines)


if __name__ == "__main__":
    main()
