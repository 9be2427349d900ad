"""One rank of the self-test, which gets the store's port and the time limit as arguments.

Says on stdout which stage it has reached, and at the end how long all_reduce took.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from torchcomms.cli.doctor.finding import said_in_a_line


def main(port: int, seconds: float) -> None:
    print("stage: import of torch", flush=True)
    import torch
    from torch.distributed import TCPStore

    from torchcomms import new_comm
    from torchcomms.cli.doctor.self_test import exercise

    print("stage: creation of a communicator", flush=True)
    limit = timedelta(seconds=seconds)
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
    comm = new_comm("ctran", torch.device("cpu"), "doctor", store=store, timeout=limit)
    print("stage: all_reduce", flush=True)
    small, large = exercise(comm)
    print("stage: end", flush=True)
    comm.finalize()
    print(f"times: {small} {large}", flush=True)


def run() -> None:
    try:
        main(int(sys.argv[1]), float(sys.argv[2]))
    except Exception as error:
        sys.exit(said_in_a_line(error))
