"""RDMA under the collectives of several hosts, on the stand-in for libibverbs.so.1."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import torch
from harness import Died, Rank, Ranks, Returned, standins
from harness.matrix import check, pairwise, run_case
from harness.ranks import Pool

import torchcomms
from torchcomms import ReduceOp

RETRY_EXCEEDED = 12
REMOTE_ACCESS = 10


def take_standin(rank: Rank, library: str, variables: dict[str, str]) -> None:
    """Makes each rank a host of its own that has RDMA devices."""
    os.environ.update(
        {"CTRAN_VERBS_LIBRARY": library, "CTRAN_HOST": f"host{rank.rank}"}, **variables
    )


def use_rdma(ranks: Ranks, **variables: str) -> Ranks:
    ranks.run(take_standin, str(standins.verbs()), variables)
    return ranks


def all_reduce(comm: torchcomms.TorchComm, count: int) -> None:
    size = comm.get_size()
    tensor = torch.full((count,), comm.get_rank() + 1.0)
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
    assert (tensor == size * (size + 1) / 2).all()


def all_reduce_for_ever(comm: torchcomms.TorchComm, count: int) -> None:
    while True:
        all_reduce(comm, count)


def paths(comm: torchcomms.TorchComm) -> list[str]:
    network: list[str] = comm.explain("all_reduce", 1000).network
    return network


def changes_over(rank: Rank, expected: str) -> None:
    comm = rank.new_comm("ctran", "changes")
    for _ in range(20):
        for count in (1, 10_000, 16_384, 400_000):
            all_reduce(comm, count)
    network = paths(comm)
    assert len(network) > 0
    assert all(expected in path for path in network), network
    all_reduce(comm, 1)  # nobody has left before all have looked
    comm.finalize()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_pairs_of_ranks_change_over_to_rdma(fresh_ranks: Callable[[int], Ranks], size: int) -> None:
    use_rdma(fresh_ranks(size)).run(changes_over, ": RDMA (standin_")


def adds_devices(rank: Rank) -> None:
    os.environ["CTRAN_IB_RAILS"] = "2" if rank.rank == 0 else "4"
    for number in range(5):
        comm = rank.new_comm("ctran", f"devices {number}")
        all_reduce(comm, 3 << 20)
        all_reduce(comm, 3 << 20)
        (path,) = paths(comm)
        assert "standin_" in path
        all_reduce(comm, 1)  # nobody has left before all have looked
        comm.finalize()


def test_devices_are_added_while_others_are_in_use(fresh_ranks: Callable[[int], Ranks]) -> None:
    use_rdma(fresh_ranks(2), STAND_IN_VERBS_DEVICES="4").run(adds_devices)


@pytest.mark.parametrize(
    "variables",
    [
        {"CTRAN_IB_HCA": "=standin_1:1"},
        {"CTRAN_IB_HCA": "^standin_0", "CTRAN_IB_QPS": "4"},
        {"CTRAN_IB_RING": "256K", "CTRAN_IB_MTU": "1024"},
    ],
    ids=str,
)
def test_settings(fresh_ranks: Callable[[int], Ranks], variables: dict[str, str]) -> None:
    device = "standin_1:1" if "CTRAN_IB_HCA" in variables else "standin_"
    use_rdma(fresh_ranks(3), **variables).run(changes_over, f": RDMA ({device}")


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"CTRAN_IB": "0"}, "TCP: CTRAN_IB is off"),
        (
            {"CTRAN_IB_HCA": "mlx5"},
            "TCP: no active port of an RDMA device that CTRAN_IB_HCA allows",
        ),
        ({"CTRAN_IB_GID_INDEX": "3"}, "TCP: the port has no GID 3"),
        # The first write of a pair, which shows whether packets pass, does not.
        (
            {"STAND_IN_VERBS_FAULT": "fail:1:12,fail:1:12", "STAND_IN_VERBS_DEVICES": "1"},
            "TCP: RDMA over standin_0:1 has failed",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_without_rdma_pairs_use_tcp(
    fresh_ranks: Callable[[int], Ranks], variables: dict[str, str], why: str
) -> None:
    use_rdma(fresh_ranks(3), **variables).run(changes_over, why)


def lacks_rdma(rank: Rank, variables: dict[str, str]) -> list[str]:
    if rank.rank == 1:
        os.environ.update(variables)
    comm = rank.new_comm("ctran", "lacks")
    for _ in range(20):
        all_reduce(comm, 1000)
    network = paths(comm)
    all_reduce(comm, 1)  # nobody has left before all have looked
    comm.finalize()
    return network


@pytest.mark.parametrize(
    "variables", [{"CTRAN_IB": "0"}, {"CTRAN_IB_GID_INDEX": "3"}, {"CTRAN_VERBS_LIBRARY": "/no"}]
)
def test_the_other_end_says_that_it_has_no_rdma(
    fresh_ranks: Callable[[int], Ranks], variables: dict[str, str]
) -> None:
    ours, theirs = use_rdma(fresh_ranks(2)).run(lacks_rdma, variables)
    assert ours == ["rank 1: TCP: RDMA to it cannot be had: it has no device that it can use"], (
        theirs
    )


def uses_fewer_devices(rank: Rank, rails: str) -> str:
    if rank.rank == 1:
        os.environ["CTRAN_IB_RAILS"] = rails
    comm = rank.new_comm("ctran", "rails")
    for _ in range(4):
        all_reduce(comm, 3 << 20)
    (path,) = paths(comm)
    all_reduce(comm, 1)  # nobody has left before all have looked
    comm.finalize()
    return path


@pytest.mark.parametrize("rails", ["1", "2"])
def test_a_pair_uses_no_more_devices_than_either_end_wants(
    fresh_ranks: Callable[[int], Ranks], rails: str
) -> None:
    ranks = use_rdma(fresh_ranks(2), STAND_IN_VERBS_DEVICES="4")
    for path in ranks.run(uses_fewer_devices, rails):
        assert path.count("standin_") == int(rails), path


@pytest.fixture(scope="module")
def rdma_pools() -> Iterator[Callable[[int], Pool]]:
    """Ranks of this file whose devices reorder completions by that seed."""
    pools: dict[int, Pool] = {}

    def of(seed: int) -> Pool:
        if seed not in pools:
            pools[seed] = Pool()
            use_rdma(pools[seed].ranks(4), STAND_IN_VERBS_SEED=str(seed), CTRAN_IB_QPS="2")
        return pools[seed]

    yield of
    for pool in pools.values():
        pool.end()


# Between hosts floats are added in another order than the reference has: see test_contracts.
CASES = [
    case
    for case in pairwise("ctran")
    if case.world in (2, 3, 4) and ("int" in case.dtype or case.op == "-")
]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_operation(rdma_pools: Callable[[int], Pool], seed: int) -> None:
    pool = rdma_pools(seed)
    for case in CASES[seed::3]:
        check(case, pool.ranks(case.world).run(run_case, case))


WITHOUT_COPY = "messages sent without a copy"


def tensor_of(comm: torchcomms.TorchComm, how: str, count: int) -> torch.Tensor:
    if how == "allocator":
        tensor: torch.Tensor = comm.mem_allocator.empty([count], dtype=torch.float32)
        return tensor
    tensor = torch.empty(count)
    if how == "registered":
        comm.tensor_register(tensor)
    return tensor


def sends_without_copies(rank: Rank, how: str) -> list[str]:
    comm = rank.new_comm("ctran", f"direct {how}")
    count = 500_000
    left, right = (rank.rank - 1) % rank.size, (rank.rank + 1) % rank.size
    source, target = tensor_of(comm, how, count), tensor_of(comm, how, count + 10)
    for step in range(40):
        source.copy_(torch.arange(count) + 1000 * rank.rank + step)
        target.fill_(-1)
        received = comm.recv(target[5:-5], left, True)
        comm.send(source, right, False)
        received.wait()
        assert torch.equal(target[5:-5], torch.arange(count) + 1000.0 * left + step)
        assert (target[:5] == -1).all()
        assert (target[-5:] == -1).all()
    for _ in range(5):
        source.fill_(rank.rank + 1.0)
        comm.all_reduce(source, ReduceOp.SUM, async_op=False)
        assert (source == rank.size * (rank.size + 1) / 2).all()
    network = paths(comm)
    all_reduce(comm, 1)
    if how == "registered":
        comm.tensor_deregister(source)
        comm.tensor_deregister(target)
        all_reduce(comm, count)
    comm.finalize()
    return network


@pytest.mark.parametrize("variables", [{}, {"CTRAN_IB_QPS": "4"}], ids=str)
@pytest.mark.parametrize("how", ["allocator", "registered", "plain"])
def test_memory_that_is_known_is_not_copied(
    fresh_ranks: Callable[[int], Ranks], how: str, variables: dict[str, str]
) -> None:
    for network in use_rdma(fresh_ranks(3), **variables).run(sends_without_copies, how):
        assert all("RDMA" in path for path in network), network
        assert any(WITHOUT_COPY in path for path in network) == (how != "plain"), network


def sends_and_does_something_else(rank: Rank, count: int) -> None:
    comm = rank.new_comm("ctran", "idle")
    tensor = torch.zeros(count)
    for _ in range(20):
        all_reduce(comm, 1000)
    if rank.rank == 0:
        for value in range(40):
            comm.send(torch.full_like(tensor, value), 1, False)
            comm.broadcast(tensor, 0, False)
        rank.say("sent")
        assert rank.listen() == "received"  # without a call of the communicator meanwhile
    else:
        for value in range(40):
            comm.recv(tensor, 0, False)
            assert (tensor == value).all()
            comm.broadcast(tensor, 0, False)
        rank.say("received")
    comm.finalize()


@pytest.mark.parametrize("count", [2, 10_000])
def test_what_was_sent_arrives_without_its_sender(
    fresh_ranks: Callable[[int], Ranks], count: int
) -> None:
    job = use_rdma(fresh_ranks(2)).start(sends_and_does_something_else, count)
    assert job.hear(1) == "received"
    assert job.hear(0) == "sent"
    job.say(0, "received")
    for outcome in job.outcomes():
        assert isinstance(outcome, Returned), outcome


def registered_where_it_was(rank: Rank) -> None:
    comm = rank.new_comm("ctran", "resized")
    count, other = 100_000, 1 - rank.rank
    tensor = torch.zeros(count)
    comm.tensor_register(tensor)
    for step in range(30):
        if step == 15:
            tensor.resize_(4 * count)  # elsewhere; the old memory is free
            tensor = tensor[:count]
        tensor.fill_(step + rank.rank)
        target = torch.empty(count)
        received = comm.recv(target, other, True)
        comm.send(tensor, other, False)
        received.wait()
        assert (target == step + other).all()
        received = comm.recv(tensor, other, True)
        comm.send(target, other, False)
        received.wait()
        assert (tensor == step + rank.rank).all()
    comm.finalize()


def registered_whose_memory_comes_again(rank: Rank) -> str:
    comm = rank.new_comm("ctran", "again")
    count, other = 100_000, 1 - rank.rank
    whole, target = torch.zeros(10_000_000), torch.zeros(count)  # `whole` as malloc() always maps
    address = whole.data_ptr()
    for each in (whole, target):
        comm.tensor_register(each)

    def exchange(step: int) -> list[str]:
        tensor = whole[:count].fill_(step + rank.rank)
        received = comm.recv(target, other, True)
        comm.send(tensor, other, False)
        received.wait()
        assert (target == step + other).all()
        return paths(comm)

    before = []
    for step in range(30):  # until RDMA is there
        before = exchange(step)
    whole.untyped_storage().resize_(0)
    whole.untyped_storage().resize_(whole.nbytes)
    assert whole.data_ptr() == address
    for step in range(30, 40):
        assert exchange(step) == before
    comm.tensor_deregister(whole)
    comm.tensor_register(whole)
    for step in range(40, 50):
        assert exchange(step) != before
    comm.finalize()
    return before[0]


def test_memory_that_comes_again_where_a_registered_one_was_is_copied(
    fresh_ranks: Callable[[int], Ranks],
) -> None:
    for before in use_rdma(fresh_ranks(2)).run(registered_whose_memory_comes_again):
        assert "without a copy" in before


def test_a_registered_tensor_that_moves_is_copied(fresh_ranks: Callable[[int], Ranks]) -> None:
    use_rdma(fresh_ranks(2)).run(registered_where_it_was)


def fails_in_placed_memory(rank: Rank, variables: dict[str, str]) -> None:
    if rank.rank == 1:
        os.environ.update(variables)
    comm = rank.new_comm("ctran", "fails", timeout=timedelta(seconds=60))
    tensor = tensor_of(comm, "allocator", 300_000)

    def largest_for_ever() -> None:
        while True:
            tensor.fill_(rank.rank)
            comm.all_reduce(tensor, ReduceOp.MAX, async_op=False)
            assert (tensor == rank.size - 1).all()

    with pytest.raises(torchcomms.PeerLostError):
        largest_for_ever()
    # Nothing is written any more when the call has returned.
    tensor.fill_(-5)
    time.sleep(0.3)
    assert (tensor == -5).all()


@pytest.mark.parametrize("after", [60, 300])
@pytest.mark.parametrize("fault", [f"fail:{{}}:{RETRY_EXCEEDED}", "remove:{}", "unplug:{}"])
def test_failures_while_memory_is_written(
    fresh_ranks: Callable[[int], Ranks], fault: str, after: int
) -> None:
    ranks = use_rdma(fresh_ranks(3), CTRAN_IB_FAIL_OVER="0")
    ranks.run(fails_in_placed_memory, {"STAND_IN_VERBS_FAULT": fault.format(after)})


def fails(rank: Rank, variables: dict[str, str]) -> str:
    if rank.rank == 1:
        os.environ.update(variables)
    comm = rank.new_comm("ctran", "fails", timeout=timedelta(seconds=60))
    with pytest.raises(torchcomms.PeerLostError) as lost:
        all_reduce_for_ever(comm, 30_000)
    with pytest.raises(torchcomms.CommError):
        all_reduce(comm, 1)
    return str(lost.value)


@pytest.mark.parametrize("after", [40, 301, 1000])
@pytest.mark.parametrize(
    "fault", [f"fail:{{}}:{RETRY_EXCEEDED}", f"fail:{{}}:{REMOTE_ACCESS}", "remove:{}", "unplug:{}"]
)
def test_failures_are_named(fresh_ranks: Callable[[int], Ranks], fault: str, after: int) -> None:
    ranks = use_rdma(fresh_ranks(3), CTRAN_IB_FAIL_OVER="0")
    errors = ranks.run(fails, {"STAND_IN_VERBS_FAULT": fault.format(after)})
    assert any("RDMA over standin_" in error for error in errors), errors


def goes_on(rank: Rank, variables: dict[str, str], rounds: int) -> list[str]:
    """Exchanges messages of all kinds, whose contents say of which round they are."""
    if rank.rank == 1:
        os.environ.update(variables)
    comm = rank.new_comm("ctran", "goes on", timeout=timedelta(seconds=120))
    left, right = (rank.rank - 1) % rank.size, (rank.rank + 1) % rank.size
    count = 600_000
    placed = tensor_of(comm, "allocator", count), tensor_of(comm, "allocator", count)
    copied = torch.empty(count), torch.empty(count)
    for step in range(rounds):
        for source, target in (placed, copied):
            source.copy_(torch.arange(count) + 1000 * rank.rank + step)
            target.fill_(-1)
            received = comm.recv(target, left, True)
            comm.send(source, right, False)
            received.wait()
            assert torch.equal(target, torch.arange(count) + 1000.0 * left + step)
        for small in (1, 3000):
            all_reduce(comm, small)
    network = paths(comm)
    all_reduce(comm, 1)  # nobody has left before all have looked
    comm.finalize()
    return network


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("after", [3, 40, 301, 777])
@pytest.mark.parametrize(
    "fault", [f"fail:{{}}:{RETRY_EXCEEDED}", f"fail:{{}}:{REMOTE_ACCESS}", "remove:{}", "unplug:{}"]
)
def test_a_pair_goes_on_without_a_device_that_has_failed(
    fresh_ranks: Callable[[int], Ranks], fault: str, after: int, devices: int
) -> None:
    ranks = use_rdma(
        fresh_ranks(3), STAND_IN_VERBS_DEVICES=str(devices), CTRAN_IB_QPS=str(1 + after % 2)
    )
    networks = ranks.run(goes_on, {"STAND_IN_VERBS_FAULT": fault.format(after)}, 14)
    hit = [path for path in networks[1] if "has failed" in path]
    if devices == 1:
        assert len(hit) > 0, networks
        assert all("TCP: RDMA over standin_0:1 has failed" in path for path in hit), networks
    else:  # over the other
        assert len(hit) == 0, networks
        assert all("RDMA (standin_" in path for network in networks for path in network), networks


def does_what_its_hint_says(rank: Rank, hint: str) -> None:
    hints = {"ctran::ib_fail_over": hint}
    comm = rank.new_comm("ctran", "hinted", timeout=timedelta(seconds=60), hints=hints)
    part = comm.split(list(range(rank.size)), "part")

    def break_rdma() -> None:
        for _ in range(300):
            all_reduce(part, 30_000)

    if hint == "1":
        break_rdma()
        network = paths(part)
        all_reduce(part, 1)  # nobody has left before all have looked
        assert any("has failed" in path for path in network), network
    else:
        with pytest.raises(torchcomms.PeerLostError):
            break_rdma()


@pytest.mark.parametrize("hint", ["0", "1"])
def test_a_hint_says_whether_a_communicator_fails_over(
    fresh_ranks: Callable[[int], Ranks], hint: str
) -> None:
    ranks = use_rdma(
        fresh_ranks(2),
        CTRAN_IB_FAIL_OVER="1" if hint == "0" else "0",
        STAND_IN_VERBS_DEVICES="1",
        STAND_IN_VERBS_FAULT=f"fail:200:{RETRY_EXCEEDED}",
    )
    ranks.run(does_what_its_hint_says, hint)


@pytest.mark.parametrize("seed", range(1, 5))
def test_failures_come_at_any_moment(fresh_ranks: Callable[[int], Ranks], seed: int) -> None:
    faults = ",".join(f"fail:{seed * number}:{RETRY_EXCEEDED}" for number in (31, 97, 211))
    ranks = use_rdma(fresh_ranks(3), STAND_IN_VERBS_SEED=str(seed), CTRAN_IB_QPS="2")
    ranks.run(goes_on, {"STAND_IN_VERBS_FAULT": faults}, 14)


def is_killed(rank: Rank, victim: int) -> list[int]:
    comm = rank.new_comm("ctran", "killed")
    for _ in range(20):
        all_reduce(comm, 1000)
    assert "RDMA" in paths(comm)[0]
    rank.say("calling")
    with pytest.raises(torchcomms.PeerLostError) as lost:
        all_reduce_for_ever(comm, 100_000)
    return list(lost.value.ranks)


def test_a_killed_rank_is_named(fresh_ranks: Callable[[int], Ranks]) -> None:
    ranks = use_rdma(fresh_ranks(3))
    job = ranks.start(is_killed, 1)
    for rank in range(3):
        assert job.hear(rank) == "calling"
    ranks.processes[1].signal(signal.SIGKILL)
    outcomes = list(job.outcomes())
    assert outcomes == [Returned([1]), Died(-signal.SIGKILL), Returned([1])]
