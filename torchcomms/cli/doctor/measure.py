"""What the engine gets from each pair of ranks: latency, bandwidth, and the offset of clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta

import torch
import torch.distributed as dist

from torchcomms import CommOptions, TorchComm, new_comm
from torchcomms.cli.doctor.finding import BROKEN, GOOD
from torchcomms.cli.doctor.rendezvous import Member, Progress, Rendezvous
from torchcomms.cli.doctor.report import Pair

_ROUND_TRIPS = 2000
_TRIP_SECONDS = 0.2
_BIG = 8_000_000
_BIG_TIMES = 5
_PAIR_SECONDS = 15.0


def tournament(ranks: list[int]) -> list[list[tuple[int, int]]]:
    """Rounds in which every rank meets at most one other; after all of them, all have met.

    The circle method: one stays, the others move on by one seat.
    """
    seats: list[int | None] = [*ranks, *([None] if len(ranks) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = []
        for a, b in zip(seats[:half], reversed(seats[half:]), strict=True):
            if a is not None and b is not None:
                pairs.append((min(a, b), max(a, b)))
        rounds.append(pairs)
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def rounds_of(chosen: list[int], machine: Callable[[int], str]) -> list[list[tuple[int, int]]]:
    """As tournament(), but no machine is in two pairs of a round: those would share its cores."""
    rounds: list[list[tuple[int, int]]] = []
    for pairs in tournament(chosen):
        split: list[tuple[set[str], list[tuple[int, int]]]] = []
        for pair in pairs:
            machines = {machine(rank) for rank in pair}
            free = next((part for part in split if not part[0] & machines), None)
            if free is None:
                free = (set(), [])
                split.append(free)
            free[0].update(machines)
            free[1].append(pair)
        rounds += [part for _, part in split]
    return rounds


def communicator(
    rendezvous: Rendezvous, label: str, rank: int, size: int, seconds: float
) -> TorchComm:
    options = CommOptions()
    options.rank, options.size = rank, size
    return new_comm(
        "ctran",
        torch.device("cpu"),
        f"doctor/{label}",
        abort_process_on_timeout_or_error=False,
        timeout=timedelta(seconds=seconds),
        store=dist.PrefixStore(f"doctor/{label}", rendezvous.store),
        options=options,
    )


def _round_trip(comm: TorchComm) -> tuple[float, float]:
    """Half of the shortest round trip, and how far the other's clock is ahead, in microseconds.

    The other reads its clock between two readings of ours: where exactly is not known. So the
    middle is taken, and the error is half of the round trip.
    """
    message = torch.zeros(1, dtype=torch.int64)
    if comm.get_rank() != 0:
        more = True
        while more:
            comm.recv(message, 0, False)
            more = bool(message.item())
            message[0] = time.time_ns()
            comm.send(message, 0, False)
        return 0.0, 0.0
    half, offset = float("inf"), 0.0
    begin = time.monotonic()
    trip = 0
    while trip <= _ROUND_TRIPS:
        trip = _ROUND_TRIPS + 1 if time.monotonic() - begin > _TRIP_SECONDS else trip + 1
        message[0] = trip <= _ROUND_TRIPS  # whether another one follows
        before = time.time_ns()
        comm.send(message, 1, False)
        comm.recv(message, 1, False)
        after = time.time_ns()
        if (after - before) / 2000 < half:
            half = (after - before) / 2000
            offset = (int(message.item()) - (before + after) // 2) / 1000
    return half, offset


def _bandwidth(comm: TorchComm) -> float:
    """The best of some messages, each answered by a short one, in gigabytes per second."""
    first, best = comm.get_rank() == 0, 0.0
    message, answer = torch.ones(_BIG, dtype=torch.uint8), torch.zeros(1)
    for _ in range(1 + _BIG_TIMES):
        start = time.perf_counter_ns()
        if first:
            comm.send(message, 1, False)
            comm.recv(answer, 1, False)
            best = max(best, _BIG / (time.perf_counter_ns() - start))
        else:
            comm.recv(message, 0, False)
            comm.send(answer, 0, False)
    return best


def _measure(rendezvous: Rendezvous, pair: Pair, seconds: float) -> Pair:
    label = f"{pair.a}-{pair.b}"
    comm = communicator(rendezvous, label, int(rendezvous.rank == pair.b), 2, seconds)
    try:
        half, offset = _round_trip(comm)
        pair.latency_us, pair.clock_offset_us = round(half, 2), round(offset, 1)
        pair.clock_error_us = pair.latency_us
        pair.bandwidth_gbs = round(_bandwidth(comm), 3)
    finally:
        comm.finalize()
    return pair


def _agreed(said: dict[int, Pair]) -> list[Pair]:
    """What the first rank of each pair measured, unless it failed on either."""
    found = {}
    for rank, one in sorted(said.items()):
        if (one.a, one.b) not in found or one.result == BROKEN:
            found[one.a, one.b] = one
        if rank == one.a and one.b not in said:
            one.result, one.error = BROKEN, f"rank {one.b} has gone"
    return list(found.values())


def measure_pairs(
    rendezvous: Rendezvous,
    members: dict[int, Member],
    chosen: list[int],
    holes: set[tuple[int, int]],
    progress: Progress,
) -> list[Pair]:
    """Of every pair of `chosen`. Collective.

    Args:
        holes: pairs, the lower rank first, that cannot connect: they are not tried again.
    """
    measured: list[Pair] = []
    rounds = rounds_of(chosen, lambda rank: members[rank].machine)
    for number, pairs in enumerate(rounds):
        progress(f"pairs of ranks: round {number + 1} of {len(rounds)}")
        mine: Pair | None = None
        for a, b in pairs:
            if not {a, b} <= set(rendezvous.present):
                continue
            same = members[a].identity == members[b].identity
            if (a, b) in holes:
                measured.append(Pair(a, b, BROKEN, same_host=same, error="cannot connect"))
            elif rendezvous.rank in (a, b):
                mine = Pair(a, b, GOOD, same_host=same)
        if mine is not None:
            try:
                mine = _measure(rendezvous, mine, _PAIR_SECONDS)
            except Exception as error:
                mine.result, mine.error = BROKEN, str(error).splitlines()[0]
        told = rendezvous.share(
            f"pairs/{number}", asdict(mine) if mine else None, 4 * _PAIR_SECONDS
        )
        measured += _agreed({rank: Pair(**said) for rank, said in told.items() if said})
    return sorted(measured, key=lambda one: (one.a, one.b))
