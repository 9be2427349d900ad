"""Kernels of a program's own on GPUs: native algorithms, and channels that Python makes.

    native.py --compile --arch 90a   where there is nvcc: compiles all that follows, into the cache
    native.py --ranks 2 --arch 90a   on GPUs, with nvcc, or with that cache carried there

Both take MSCCLPP_CACHE_DIR. Prints a line for each check; exits with 1 if one failed. With
`--device cpu` the same checks run on the host.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
import traceback

import mscclpp_ranks as checks
import torch

import mscclpp

# NVLink multicast can put the GPUs of a shared host out of service.
os.environ["NCCL_NVLS_ENABLE"] = "0"

LATE = (checks.a_wait_in_vain_ends, checks.a_rank_that_dies_ends_the_wait)


def compile_all(place: checks.Place) -> None:
    for name in checks.MODULES:
        began = time.monotonic()
        place.algorithm(name)
        print(f"compiled {name} in {time.monotonic() - began:.0f} s", flush=True)
    for name in checks.KERNELS:
        began = time.monotonic()
        place.kernel(name)
        print(f"compiled {name} in {time.monotonic() - began:.0f} s", flush=True)


def run_rank(rank: int, size: int, port: int, place: checks.Place, late: str) -> int:
    if place.is_gpu:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    group = mscclpp.CommGroup(interfaceIpPortTrio=f"127.0.0.1:{port}", rank=rank, size=size)
    failures = 0
    for check in checks.CHECKS if not late else [c for c in LATE if c.__name__ == late]:
        began = time.monotonic()
        try:
            check(group, place)
            place.synchronize()
            said = "ok    "
        except Exception:
            failures += 1
            said = "FAILED"
            traceback.print_exc()
        seconds = time.monotonic() - began
        print(f"[rank {rank}] {said} {seconds:6.1f} s  {check.__name__}", flush=True)
        if failures:
            return 1  # the others may be anywhere
    return 0


def run_all(arguments: argparse.Namespace, late: str) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = dict(os.environ, MSCCLPP_TIMEOUT="2" if late else "30")
    command = [sys.executable, __file__, "--device", arguments.device]
    command += ["--ranks", str(arguments.ranks), "--port", str(port), "--late", late]
    if arguments.arch:
        command += ["--arch", arguments.arch]
    ranks = [
        subprocess.Popen([*command, "--rank", str(rank)], env=environment)
        for rank in range(arguments.ranks)
    ]
    codes = []
    until = time.monotonic() + arguments.seconds
    for rank in ranks:
        try:
            codes.append(rank.wait(max(1, until - time.monotonic())))
        except subprocess.TimeoutExpired:
            rank.kill()
            codes.append(124)
    print(f"{late or 'all checks'}: exit codes {codes}", flush=True)
    return max(abs(code) for code in codes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--arch", help="of the GPU, such as 90a")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="only fills the cache")
    parser.add_argument("--seconds", type=float, default=240, help="for each of three runs")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--late", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    place = checks.Place(arguments.device, arguments.arch)
    if arguments.compile:
        compile_all(place)
        return 0
    if arguments.rank is not None:
        return run_rank(arguments.rank, arguments.ranks, arguments.port, place, arguments.late)
    if place.is_gpu and not torch.cuda.is_available():
        print("there is no GPU here", file=sys.stderr)
        return 2
    if place.is_gpu:
        print(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}")
    failed = [run_all(arguments, "")]
    failed.append(run_all(arguments, LATE[0].__name__))
    if arguments.ranks == 2:
        failed.append(run_all(arguments, LATE[1].__name__))
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
