#!/usr/bin/env python3
"""What the Makefile's targets do; each brings the machine to where it can do it.

Steps whose inputs have not changed are not repeated.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import compat
import lint
import site_of_docs as site
import system
from console import ROOT, CommandFailed, TimeIsUp, attach, run, say, seconds
from environment import Environment, Stamp

# The C++ tests are built and run in each of these ways, the fuzzers with ASan. sanitizers() chooses
# those of `make test`. Plain unit tests are left to `make test-full`: they take 5 minutes, and find
# what is wrong with a sanitizer too.
SANITIZERS = {"plain": "", "ASan and UBSan": "address", "TSan": "thread"}

# What `make test-full` does longer than `make test`, or besides.
SOAK = ["--faults", "10000", "--seed", "1"]
SOAK_OVER_RDMA = ["--faults", "1000", "--seed", "1"]
HOSTILE = ["--seconds", "300", "--seed", "2"]


def torch_requirement() -> str:
    return os.environ.get("TORCH") or "torch"


def prepared(*, tests: bool) -> Environment:
    """A virtual environment with torch, the tools, and torchcomms built."""
    system.install_missing(system.needs(tests=tests))
    environment = Environment()
    environment.create()
    environment.install_torch(torch_requirement())
    environment.install_tools(tests=tests)
    environment.build()
    return environment


def configure(environment: Environment, folder: Path, *options: str, compiler: str = "") -> None:
    variables = environment.variables()
    if compiler:
        variables["CXX"] = compiler
    command = [environment.tool("cmake"), "-G", "Ninja", "-B", str(folder), *options]
    run(f"Configuring {folder.relative_to(ROOT)}", command, env=variables)


def build_tests(
    environment: Environment, sanitizer: str = "", targets: tuple[str, ...] = ("tests",)
) -> Path:
    """Builds what tests/ has in C++, and the fuzzers if the compiler can; the build folder.

    Without sanitizers it is the folder in which the package was built, so that nothing is compiled
    twice.
    """
    compiler = ""
    if sanitizer:
        folder = ROOT / "build" / sanitizer
        compiler = system.clang() or ""
        options = ["-DBUILD_TESTS=ON", f"-DSANITIZE={sanitizer}"]
    else:
        folder = environment.build_folder()
        options = ["-DBUILD_TESTS=ON"]
    # CMake notices by itself what changed since; it only must have been told of the tests once.
    stamp = Stamp(folder / "configured", [*options, compiler])
    if not (stamp.is_current() and (folder / "build.ninja").exists()):
        configure(environment, folder, *options, compiler=compiler)
        stamp.set()
    run(
        f"Building the C++ tests ({folder.relative_to(ROOT)})",
        [environment.tool("cmake"), "--build", folder, "--target", *targets],
        env=environment.variables(),
    )
    return folder


def guard(*, full: bool) -> list[str]:
    """Guards against hangs, far above what any test takes: seconds."""
    return ["--timeout", "7200" if full else "900"]


def jobs(most: int = 64) -> str:
    """How many tests run at once: many wait for most of their time."""
    return str(min(2 * len(os.sched_getaffinity(0)), most))


def cpp_tests(environment: Environment, how: str, *, full: bool) -> None:
    units = full or bool(SANITIZERS[how])
    folder = build_tests(environment, SANITIZERS[how], ("tests" if units else "other_tests",))
    variables = environment.variables()
    if full:
        variables["FUZZ_SECONDS"] = "60"
        if not SANITIZERS[how]:  # with sanitizers they would take days
            variables["CTRAN_TEST_FULL"] = "1"
    command = [environment.tool("ctest"), "--test-dir", str(folder), "-j", jobs()]
    if not units:
        command += ["--label-exclude", "unit"]
    run(
        f"Running the C++ tests ({how})",
        [*command, "--output-on-failure", "--no-tests=error", *guard(full=full)],
        env=variables,
        show=r"tests passed|tests failed|\(Failed\)|\(Timeout\)",
        drop=r"^ +Start +\d+: | +Passed +[\d.]+ sec$",  # what is left is what failed tests say
        tail=400,
    )


def all_of(what: str, parts: dict[str, Callable[[], None]]) -> None:
    """Does every part, whatever fails before; sums up; exits with 1 if one failed.

    Those for which there is no time are left out, and the sum says so.
    """
    start = time.monotonic()
    results: dict[str, str] = {}
    for name, part in parts.items():
        begun = time.monotonic()
        try:
            part()
            results[name] = f"passed in {seconds(begun)}"
        except CommandFailed:
            results[name] = f"FAILED after {seconds(begun)}"
        except TimeIsUp:
            results[name] = f"LEFT OUT, for lack of time, after {seconds(begun)}"
    failed = any(result.startswith("FAILED") for result in results.values())
    some = any(result.startswith("passed") for result in results.values())
    say(f"\n{what} {'FAILED' if failed else 'passed' if some else 'LEFT OUT'} in {seconds(start)}")
    for name, result in results.items():
        say(f"  {name}: {result}")
    if failed:
        raise SystemExit(1)


def demo() -> None:
    environment = prepared(tests=False)
    command = [environment.tool("torchrun"), "--standalone", "--nproc-per-node", "4"]
    attach(
        "Running examples/all_reduce.py with 4 processes",
        [*command, ROOT / "examples" / "all_reduce.py"],
        env={**environment.variables(), "OMP_NUM_THREADS": "1"},
    )


def build() -> None:
    prepared(tests=False)


def soak(environment: Environment) -> None:
    attach("Breaking ranks on purpose", [build_tests(environment) / "ctran_soak", *SOAK])


def soak_over_rdma(environment: Environment) -> None:
    """On the stand-in for libibverbs, where each process's 300th work request fails, and so on."""
    folder = build_tests(environment)
    variables = {
        **environment.variables(),
        "CTRAN_VERBS_LIBRARY": str(folder / "standins" / "libibverbs.so.1"),
        "STAND_IN_VERBS_FAULT": "every:300:12",
    }
    command: list[str | Path] = [folder / "ctran_soak", *SOAK_OVER_RDMA]
    attach("Breaking ranks on purpose, over RDMA", command, env=variables)


def hostile(environment: Environment) -> None:
    program = build_tests(environment, "address") / "ctran_hostile"
    attach("Being lied to by a member", [program, *HOSTILE])


# Each worker has ranks of its own, which the tests of a file share. The files of tests/unit, which
# are quick, come last, so that the workers end at about the same time.
PARALLEL = ["-n", jobs(most=8), "--dist", "loadfile", "--no-loadscope-reorder"]


def sanitizers(*, full: bool) -> list[str]:
    """Names of those to build and run the C++ tests with.

    Each takes 5 to 10 minutes on two cores. Unless SANITIZE says which, or all, the last digit of
    the commit chooses one, so that both have their turns and a commit always has the same.
    """
    _, *names = SANITIZERS
    wanted = "all" if full else os.environ.get("SANITIZE", "")
    if wanted == "all":
        return names
    if wanted:
        chosen = [name for name in names if SANITIZERS[name] == wanted]
        if not chosen:
            raise SystemExit(f"error: SANITIZE={wanted}: say address, thread, or all")
        return chosen
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    with suppress(OSError):
        commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        if commit:
            return [names[int(commit[-1], 16) % len(names)]]
    return names  # not a clone


def _tests(*selection: str, full: bool) -> None:
    environment = prepared(tests=True)
    system.install_clang()
    system.install_verbs_header()
    system.install_screens()

    def cpp(how: str) -> dict[str, Callable[[], None]]:
        return {f"C++ tests, {how}": lambda: cpp_tests(environment, how, full=full)}

    def python() -> None:
        command = [environment.tool("pytest"), *PARALLEL, "--durations=5", *selection]
        title, overtime = "Running the Python tests", 480  # tests under way are ended
        attach(title, command, env=environment.variables(), overtime=overtime)

    # What sees most of what can be wrong comes first.
    parts = {**cpp("plain"), "Python tests": python}
    for sanitizer in sanitizers(full=full):
        parts |= cpp(sanitizer)
    if full:
        parts["Soak"] = lambda: soak(environment)
        parts["Soak over RDMA"] = lambda: soak_over_rdma(environment)
        parts["Hostile member"] = lambda: hostile(environment)
        parts["Two virtual machines"] = lambda: two_machines(environment)
    all_of("Tests", parts)


def test() -> None:
    _tests("-m", "not full", full=False)


def test_full() -> None:
    _tests(full=True)


SECONDS_OF_RDMA = 480
"""For all that `make test-rdma` does once its programs are built."""


def test_rdma() -> None:
    """In a virtual machine, whose kernel has soft-RoCE."""
    system.refuse_rdma_elsewhere()
    environment = Environment()
    python = environment.tool("python")

    def programs() -> None:
        system.install_missing(system.needs_of_rdma())
        names = ("ctran_rdma_tests", "ctran-verbs-bench", "ctran-transport-bench")
        build_tests(prepared(tests=True), targets=names)

    ends = float("inf")

    def limit() -> str:
        """What is left."""
        nonlocal ends
        ends = min(ends, time.monotonic() + SECONDS_OF_RDMA)
        return f"--limit={max(ends - time.monotonic(), 1):.0f}"

    def tests() -> None:
        program = environment.build_folder() / "ctran_rdma_tests"
        command: list[str | Path] = [python, ROOT / "tests/rdma/run.py", limit(), "--", program]
        attach("Testing ctran/verbs on soft-RoCE", command)

    def bench() -> None:
        folder = environment.build_folder()
        command: list[str | Path] = [python, ROOT / "benchmarks/compare_verbs.py", "--quick"]
        attach("Timing ctran/verbs beside perftest", [*command, limit(), "--programs", folder])

    all_of("RDMA", {"Programs": programs, "Tests": tests, "Benchmark": bench})


def two_machines(environment: Environment) -> None:
    """Virtual ones, which a network joins: one rank in each, over soft-RoCE."""
    try:
        system.refuse_rdma_elsewhere()
        system.install_missing(system.needs_of_rdma())
    except SystemExit:
        raise CommandFailed("two virtual machines") from None
    program = build_tests(environment) / "ctran_rdma_tests"
    runner, bounds = ROOT / "tests" / "rdma" / "run.py", ["--limit=600", "--silence=150"]
    command: list[str | Path] = [environment.tool("python"), runner, "--two", *bounds]
    command += ["--", program, "--gtest_filter=*TwoMachines*"]
    attach("Testing RDMA between two virtual machines", command)


def run_lint() -> None:
    environment = prepared(tests=True)
    # clang-tidy reads the headers themselves, and is told of every source.
    folder = ROOT / "build" / "tidy"
    options = ["-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DCMAKE_UNITY_BUILD=OFF"]
    configure(environment, folder, *options)
    all_of("Lint", lint.checks(environment, folder))


def format_all() -> None:
    lint.format_all(prepared(tests=True))


def bench() -> None:
    environment = prepared(tests=True)
    requirements = ROOT / "benchmarks" / "requirements.txt"
    if requirements.exists():
        title = "Installing what the benchmarks draw with"
        environment.install("bench", title, "-r", str(requirements), files=[requirements])
    for title, program in (
        ("Timing torchcomms beside PyTorch's Gloo", ["bench.py"]),
        ("Timing ctran beside the MPIs and Gloo", ["compare_cpu.py", "--install"]),
        ("Timing ctran over TCP beside Gloo and sockets", ["compare_tcp.py"]),
        ("Timing a training step on ctran beside Gloo", ["train_step.py"]),
    ):
        script: list[str | Path] = [
            environment.tool("python"),
            ROOT / "benchmarks" / program[0],
            *program[1:],
        ]
        attach(title, script, env=environment.variables())


def docs() -> None:
    environment = prepared(tests=False)
    generators = sorted((ROOT / "tools").glob("docs_*.py"))
    for generator in generators:
        attach(
            f"Writing what {generator.name} generates",
            [environment.tool("python"), generator],
            env=environment.variables(),
        )
    requirements = ROOT / "docs" / "requirements.txt"
    title = "Installing what makes the site"
    environment.install("docs", title, "-r", str(requirements), files=[requirements])
    attach("Making the site", site.command(environment), env=environment.variables())
    say(f"{len(generators)} generators run; the site is {site.SITE / 'index.html'}")


def wheel() -> None:
    environment = prepared(tests=False)
    command = [environment.tool("python"), "-m", "pip", "wheel", "-v", "--no-build-isolation"]
    options = ["--no-deps", "-Cbuild-dir=build/wheel", "-Cinstall.strip=true"]
    run(
        "Building the wheel",
        [*command, *options, "--wheel-dir", "dist", "."],
        env=environment.variables(),
        show=r"^Successfully built|Created wheel",
    )
    torch = environment.ask("import torch; print(torch.__version__)")
    say(f"dist/ has a wheel for torch {torch}; it refuses other minor versions of torch")


def run_compat() -> None:
    system.install_missing(system.needs(tests=False))
    all_of("Compatibility", compat.corners())


def clean() -> None:
    """Removes what was built; .venv (GBs of downloads) stays."""
    for folder in ("build", "dist", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
    (ROOT / ".venv" / ".stamps" / "torchcomms").unlink(missing_ok=True)


COMMANDS: dict[str, Callable[[], None]] = {
    "demo": demo,
    "build": build,
    "test": test,
    "test-full": test_full,
    "test-rdma": test_rdma,
    "lint": run_lint,
    "format": format_all,
    "bench": bench,
    "docs": docs,
    "wheel": wheel,
    "compat": run_compat,
    "clean": clean,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    command = parser.parse_args().command
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what we have started ends first
    start = time.monotonic()
    try:
        COMMANDS[command]()
    except CommandFailed:
        raise SystemExit(1) from None
    except TimeIsUp:
        say(f"make {command}: time was up before it had come to the tests")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except subprocess.CalledProcessError as error:
        say(f"{error}\n{error.stdout or ''}{error.stderr or ''}")
        raise SystemExit(1) from None
    say(f"make {command}: {seconds(start)}")


if __name__ == "__main__":
    main()
