"""Communicators whose members change, and that go on after a death."""

from __future__ import annotations

from gpu_ranks.reconfigure import changes, is_watched, leaves_work, lose_one

from nccl_ranks import Make, case


@case(world=3)
def members_change(make: Make) -> None:
    make(3).run(changes, "nccl")


@case(world=3, breaks=True)
def survivors_go_on(make: Make) -> None:
    lose_one(make(3), "nccl")


@case(world=2, breaks=True)
def what_was_in_flight_fails(make: Make) -> None:
    make(2).run(leaves_work, "nccl")


@case(world=2, breaks=True)
def other_threads_ask_and_abort_meanwhile(make: Make) -> None:
    for aborts in (False, True):
        make(2).run(is_watched, "nccl", aborts)
