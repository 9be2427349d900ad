"""One rank of a test: compiles a module, executes its algorithm, and checks the results.

python rank.py MODULE FILE CREATE RANK SIZE STORE
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from mscclpp.native import compile_native
from mscclpp.native_algorithm import NativeAlgorithm, NativeCommunicator

INT32, FLOAT32 = 0, 3
ROUNDS = 6


def value(rank: int, position: int, turn: int) -> int:
    """Depends on who wrote it, where, and when; sums of a few are exact in any type."""
    return (rank + 1) * 1009 + position * 7 + turn * 131


def check(
    algorithm: NativeAlgorithm, comm: NativeCommunicator, count: int, dtype: int, in_place: bool
) -> None:
    rank, size = comm.rank, comm.size
    gathers = algorithm.collective == "allgather"
    element = ctypes.c_float if dtype == FLOAT32 else ctypes.c_int
    total = count * size if gathers else count
    output = (element * total)()
    block = 4 * count
    address = ctypes.addressof(output) + (rank * block if gathers else 0)
    source = (element * count).from_address(address) if in_place else (element * count)()
    for turn in range(ROUNDS):
        if not in_place:
            output[:] = [-1] * total
        source[:] = [value(rank, i, turn) for i in range(count)]
        code = algorithm.execute(
            comm,
            ctypes.addressof(source),
            ctypes.addressof(output),
            block,
            4 * total,
            dtype,
            nblocks=turn % 4,  # 0: as the algorithm likes
            nthreads_per_block=0 if turn < 2 else 32 * turn,
        )
        assert code == 0, f"code {code}"
        ranks = range(size)
        if gathers:
            expected = [value(r, i, turn) for r in ranks for i in range(count)]
        else:
            expected = [sum(value(r, i, turn) for r in ranks) for i in range(count)]
        assert list(output) == expected, f"count {count}, type {dtype}, turn {turn}"


def main(module: str, file: str, create: str, rank: str, size: str, store: str) -> None:
    compiled = compile_native(module, file, device="cpu")
    assert compile_native(module, file, device="cpu") is compiled
    algorithm = NativeAlgorithm(getattr(compiled, create)())
    comm = NativeCommunicator(int(rank), int(size), store, 100)
    types = [FLOAT32] if "switch" in module else [INT32, FLOAT32]
    for dtype in types:
        for count in (1, 5, 1024, 10_001):
            for in_place in (False, True):
                check(algorithm, comm, count, dtype, in_place)
    algorithm.reset()
    check(algorithm, comm, 100, FLOAT32, False)
    print(f"{Path(file).name}: rank {rank} of {size} is right")


if __name__ == "__main__":
    main(*sys.argv[1:])
