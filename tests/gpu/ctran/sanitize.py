"""Some operations of backend ctran under NVIDIA's compute-sanitizer, on GPUs.

Usage: python3 tests/gpu/ctran/sanitize.py [--out DIR] [--ranks N] [--tools TOOL...] [--seconds N]
with torchcomms installed, or as run.sh has built it.

Each rank is a process of its own under the tool. memcheck looks at every access of the kernels,
those to other GPUs' memory and to the host's included; synccheck at the barriers of their blocks.
racecheck, if asked for, finds what is meant to be: the words by which waiting threads of a block
tell each other to give up (device::Guard, all the shared memory there is) are read without a
barrier. Threads of different GPUs are ordered by flags, of which no tool knows: that is what
tests/kernels are for, under ThreadSanitizer. initcheck makes no sense: what others have written
counts as never written.

Prints a line for each tool, and what it found; exits with 1 if it found something or an operation
was wrong, with 3 if the host has no compute-sanitizer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# As in run.sh; where it has not built, what is installed serves.
SITE = Path(os.environ.get("GPU_TESTS_SITE", ROOT / "build" / "gpu" / "site"))
sys.path[:0] = [str(SITE), str(ROOT / "tests")]

TOOLS = ("memcheck", "synccheck", "racecheck")
FOUND = 86
# Where toolkits and profilers put it, when it is not on PATH.
PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/*/*")


def find() -> str | None:
    """compute-sanitizer of this host."""
    found = shutil.which("compute-sanitizer")
    if found:
        return found
    for place in PLACES:
        for path in sorted(Path("/").glob(f"{place[1:]}/compute-sanitizer")):
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
    return None


def work(number: int, size: int, folder: Path, seconds: float) -> None:
    """One rank: every operation, little and much, at aligned and unaligned addresses."""
    from datetime import timedelta

    import torch
    from gpu_ranks import BACKEND
    from harness.data import same_bits
    from harness.operations import OPERATIONS, Arguments, Call
    from harness.worker import Rank, Worker

    from torchcomms import ReduceOp

    rank = Rank(number, size, Worker(None, str(folder / "store")))  # type: ignore[arg-type]
    os.environ["CTRAN_GPU_STEP_BYTES"] = "8192"  # flows with several rounds, of little data
    os.environ["CTRAN_GPU_SM_BUDGET"] = "4"
    comm = rank.new_comm(BACKEND, "sanitized", timeout=timedelta(seconds=seconds))
    until = time.monotonic() + seconds
    done = 0
    problems: list[str] = []
    for count in (37, 4001, 150_001):
        for name, operation in OPERATIONS.items():
            op = "SUM" if operation.reduces else None
            arguments = Arguments(torch.bfloat16, op, size - 1, (count,) * size, False, count)
            call = Call(number, size, arguments, BACKEND, rank.device(BACKEND))
            operation.prepare(comm, call)
            call.issue(done % 2 == 0).wait()
            rank.synchronize(BACKEND)
            problems += [f"{name} of {count}: {problem}" for problem in call.problems(same_bits)]
            done += 1
        late = torch.tensor([float(time.monotonic() > until)], device=rank.device(BACKEND))
        comm.all_reduce(late, ReduceOp.MAX, async_op=False)  # all go on, or none
        rank.synchronize(BACKEND)
        if late.item():
            break
    whole = torch.arange(size * 24, device=rank.device(BACKEND)).float()
    output = torch.full_like(whole, -1.0)
    splits = torch.full((size,), 24, dtype=torch.int64, device=whole.device)
    comm.device_alltoallv_single(output, whole, splits, splits, False)
    rank.synchronize(BACKEND)
    expected = torch.cat([whole.cpu()[24 * number : 24 * (number + 1)]] * size)
    if not torch.equal(output.cpu(), expected):
        problems.append("device_alltoallv_single: wrong")
    comm.finalize()
    print(f"rank {number}: {done + 1} operations, {len(problems)} wrong", *problems[:5], sep="\n")
    sys.stdout.flush()
    os._exit(1 if problems else 0)


def check(sanitizer: str, tool: str, arguments: argparse.Namespace) -> bool:
    """Whether that tool has nothing to say."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sanitized-") as folder:
        logs = [arguments.out / f"{tool}.rank{rank}.log" for rank in range(arguments.ranks)]
        command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
        if tool == "memcheck":
            # Of calls that fail on purpose: asking for what a driver may not have.
            command += ["--report-api-errors", "no"]
        ranks = []
        for rank, log in enumerate(logs):
            own = [sys.executable, __file__, "--rank", str(rank), "--ranks", str(arguments.ranks)]
            own += ["--folder", folder, "--seconds", str(arguments.seconds / 2)]
            ranks.append(
                subprocess.Popen(
                    [*command, "--log-file", str(log), *own],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            )
        said, codes = [], []
        for process in ranks:
            left = arguments.seconds - (time.monotonic() - start)
            try:
                said.append(process.communicate(timeout=max(1.0, left))[0])
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the tool, and what it looks at
                said.append(f"not finished within {arguments.seconds:.0f} s")
                process.communicate()
            codes.append(process.returncode)
    good = all(code == 0 for code in codes)
    print(f"{'ok' if good else 'FAILED':6} {time.monotonic() - start:6.1f} s  {tool}: {codes}")
    for rank, log in enumerate(logs):
        found = log.read_text(errors="replace") if log.exists() else "no log"
        summary = [line for line in found.splitlines() if "SUMMARY" in line]
        print(f"  rank {rank}: {' '.join(said[rank].split()[:40])} | {' '.join(summary)}")
        if codes[rank] != 0:
            print(found[:2500])
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tools", nargs="*", default=list(TOOLS[:2]), choices=TOOLS)
    parser.add_argument("--seconds", type=float, default=120, help="for each tool")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        work(arguments.rank, arguments.ranks, arguments.folder, arguments.seconds)
    sanitizer = find()
    if sanitizer is None:
        print("this host has no compute-sanitizer: it comes with CUDA's toolkit", file=sys.stderr)
        return 3
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = [check(sanitizer, tool, arguments) for tool in arguments.tools]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
