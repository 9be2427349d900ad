"""A command that runs as several processes: it starts them, or is one of a launcher's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchcomms._errors import CommError

if TYPE_CHECKING:
    import torch

_WORKER = "TORCHCOMMS_WORKER"
_GRACE_SECONDS = 5.0  # for the others when one has failed


def is_rank() -> bool:
    """Whether this process is a rank: of a launcher, or one that `run` has started."""
    return _WORKER in os.environ or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()


def check_gpus(ranks: int) -> None:
    """Raises CommError unless there is a GPU for each of so many ranks of this host."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise CommError("torch has no GPU here that it can use: `torchcomms doctor` says why")
    if ranks > count:
        has = "1 GPU" if count == 1 else f"{count} GPUs"
        raise CommError(f"this host has {has}, and {ranks} ranks on it: start {count} at most")


def own_gpu() -> torch.device:
    """The GPU of this rank, which torch uses from now on. Raises CommError if it has none."""
    import torch

    local = int(os.environ.get("LOCAL_RANK", "0"))
    check_gpus(local + 1)
    device = torch.device("cuda", local)
    try:
        torch.cuda.set_device(device)
    except RuntimeError as error:
        raise CommError(f"{device} cannot be used: {str(error).partition(chr(10))[0]}") from error
    return device


def run(count: int, arguments: Sequence[str]) -> int:
    """Runs `torchcomms ARGUMENTS` as so many ranks of this host; the first exit code that is not 0.

    When one fails, the others are ended a moment later.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        _WORKER: "1",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    environment.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    command = [sys.executable, "-m", "torchcomms", *arguments]
    ranks = [
        subprocess.Popen(command, env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(count)
    ]
    failed = 0
    try:
        while any(rank.poll() is None for rank in ranks) and not failed:
            failed = next((rank.returncode for rank in ranks if rank.poll()), 0)
            time.sleep(0.01)
        deadline = time.monotonic() + _GRACE_SECONDS
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        for rank in ranks:  # all of them, before one of them can hear that another has died
            rank.kill()
        for rank in ranks:
            rank.wait()
    code = failed or next((rank.returncode for rank in ranks if rank.returncode), 0)
    return code if code >= 0 else 128 - code  # as shells tell of a signal
