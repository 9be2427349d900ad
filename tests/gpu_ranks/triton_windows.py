"""Device windows in Triton: what they promise in CUDA they promise here, also where ranks mix."""

from __future__ import annotations

from functools import partial

import torch
from harness import Rank
from harness.devices import has_gpu

import gpu_ranks
from gpu_ranks import BACKEND, Make
from gpu_ranks.device_windows import (
    aborts_end_waits,
    data_comes_first,
    deaths_end_waits,
    documented,
    exchanges,
    misuses_are_reported,
    rings,
    triton_kernels,
    waits_time_out,
)

case = partial(gpu_ranks.case, module="triton")


@case(world=2)
def triton_kernels_put_signal_and_wait(make: Make) -> None:
    make(1).run(exchanges, BACKEND, "triton")
    make(2).run(exchanges, BACKEND, "triton")


@case(world=2)
def data_comes_before_its_signal_in_triton(make: Make) -> None:
    data_comes_first(make, "triton", 10)


@case(world=2)
def kernels_in_triton_and_cuda_share_a_window(make: Make) -> None:
    rounds = 200 if has_gpu() else 10
    for languages in (("cuda", "triton"), ("triton", "cuda")):
        make(2).run(rings, 333, rounds, *languages)


def _described(rank: Rank) -> None:
    window = rank.comm(BACKEND).window_allocate(72)
    found = torch.full((6 + rank.size,), -1, dtype=torch.int64, device=rank.device(BACKEND))
    handle = window.get_device_window(1, 0, 0)
    triton_kernels().describe[(1,)](handle, found)
    rank.synchronize(BACKEND)
    addresses = [window.get_nvlink_address(peer) for peer in range(rank.size)]
    expected = [rank.rank, rank.size, addresses[rank.rank], 72, *addresses, 0, 0]
    assert found.cpu().tolist() == expected
    window.tensor_deregister()


@case(world=2)
def windows_describe_themselves_in_triton(make: Make) -> None:
    make(2).run(_described)


# Offsets there and here, and bytes: equally aligned or not, with ends that are not 16 bytes, and
# more than a program copies at once.
PUTS = (
    *((0, 0, bytes) for bytes in (0, 1, 15, 16, 17, 33, 16 << 10, (16 << 10) + 1, 40_007)),
    *((5, 21, bytes) for bytes in (0, 1, 11, 12, 27, 100, 40_007)),
    *((3, 8, bytes) for bytes in (1, 16, 4096, 4097, 9_001)),
)


def _puts(rank: Rank) -> None:
    comm, device = rank.comm(BACKEND), rank.device(BACKEND)
    room = 41_000
    window = comm.window_allocate(room)
    own = window.get_tensor(rank.rank, [room], torch.uint8)
    assert own is not None
    source = [((torch.arange(room) * 7 + 31 * r) % 251).to(torch.uint8) for r in range(rank.size)]
    mine = source[rank.rank].to(device)
    previous = source[(rank.rank - 1) % rank.size]
    handle, buffer = window.get_device_window(1, 0, 1), window.register_local_buffer(mine)
    status = torch.zeros(1, dtype=torch.int32, device=device)
    for to, origin, count in PUTS:
        own.fill_(255)
        status.fill_(-1)
        rank.synchronize(BACKEND)
        comm.barrier(async_op=False)
        rank.synchronize(BACKEND)
        triton_kernels().put_and_signal[(1,)](handle, buffer, to, origin, count, 0, status)
        rank.synchronize(BACKEND)
        expected = torch.full((room,), 255, dtype=torch.uint8)
        expected[to : to + count] = previous[origin : origin + count]
        assert status.item() == 0, (to, origin, count)
        assert torch.equal(own.cpu(), expected), (to, origin, count)
        comm.barrier(async_op=False)
    del own
    window.tensor_deregister()


@case(world=2)
def triton_puts_any_bytes(make: Make) -> None:
    make(2).run(_puts)


LARGE = 1 << 63
# What is there, and by which comparison it ends a wait for what.
COMPARISONS = (
    (7, "EQ", 7),
    (0, "NE", 5),
    (4, "LT", 5),
    (3, "LE", 3),
    (LARGE, "GT", 3),
    (LARGE + 1, "GE", LARGE + 1),
)


def _compares(rank: Rank) -> None:
    import torchcomms.triton as tct

    window = rank.comm(BACKEND).window_allocate(8)
    handle = window.get_device_window(1, 0, 0)
    status = torch.zeros(1, dtype=torch.int32, device=rank.device(BACKEND))
    for there, name, awaited in COMPARISONS:
        status.fill_(-1)
        op = getattr(tct, name).value
        triton_kernels().compare[(1,)](handle, there, op, awaited, status)
        rank.synchronize(BACKEND)
        assert status.item() == 0, name
    window.tensor_deregister()


@case(world=1)
def triton_compares_without_a_sign(make: Make) -> None:
    make(1).run(_compares)


@case(world=2, breaks=True)
def a_wait_in_triton_times_out(make: Make) -> None:
    waits_time_out(make, BACKEND, "triton")


@case(world=2, breaks=True)
def an_abort_ends_the_waits_of_triton(make: Make) -> None:
    aborts_end_waits(make, BACKEND, "triton")


@case(world=2, breaks=True)
def a_kernel_in_triton_does_not_wait_for_a_dead_rank(make: Make) -> None:
    deaths_end_waits(make, BACKEND, "triton")


@case(world=2, breaks=True)
def what_kernels_in_triton_get_wrong_is_reported(make: Make) -> None:
    misuses_are_reported(make, "triton")


@case(world=2)
def the_documented_program_in_triton_sums_over_ranks(make: Make) -> None:
    make(2).run(documented, "triton")
