"""What is found out between ranks: holes in firewalls, odd pairs, clocks, absent ranks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch.distributed as dist
from harness.doctor import host_of

from torchcomms.cli.doctor import launched, reach
from torchcomms.cli.doctor.finding import BROKEN, GOOD, SLOW
from torchcomms.cli.doctor.matrix import mark_odd
from torchcomms.cli.doctor.measure import rounds_of, tournament
from torchcomms.cli.doctor.rendezvous import CameLate, LostFirst, Member, Rendezvous
from torchcomms.cli.doctor.report import Finding, Pair, Place, Report, merge
from torchcomms.cli.doctor.text import rank_list, text_of

MEMBERS = {rank: Member(rank, f"host{rank}", f"m/host{rank}", "m") for rank in range(3)}


def together(size: int, work: Callable[[Rendezvous], object], seconds: float = 30) -> list[object]:
    """Runs it as so many ranks: threads that share a store."""
    store = dist.HashStore()
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda r: work(Rendezvous(store, r, size, seconds)), range(size)))


def test_ranks_see_the_same() -> None:
    said = together(3, lambda rendezvous: rendezvous.share("x", rendezvous.rank * 10))
    assert said == [{0: 0, 1: 10, 2: 20}] * 3


def test_a_rank_that_stays_away_is_named() -> None:
    rendezvous = Rendezvous(dist.HashStore(), 0, 2, 0.05)
    assert rendezvous.share("x", "here") == {0: "here"}
    found = launched._presence(rendezvous)
    assert found.result == BROKEN
    assert "ranks 1 of 2 did not answer" in found.reason
    present = Rendezvous(dist.HashStore(), 0, 1, 1)
    assert launched._presence(present).result == GOOD


def test_rank_0_that_stays_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcomms.cli.doctor.rendezvous._GRACE_SECONDS", 0.0)
    with pytest.raises(LostFirst, match="rank 0"):
        Rendezvous(dist.HashStore(), 1, 2, 0.05).share("x", 1)


def test_a_rank_that_comes_too_late_is_told() -> None:
    store = dist.HashStore()
    assert Rendezvous(store, 0, 2, 0.05).share("x", "here") == {0: "here"}
    with pytest.raises(CameLate, match="rank 1 came too late"):
        Rendezvous(store, 1, 2, 0.05).share("x", "late")


def test_a_port_that_is_closed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # nobody listens
        bound.bind(("127.0.0.1", 0))
        closed = bound.getsockname()[1]
        open_listener = reach.Listener

        def listener() -> reach.Listener:
            made = open_listener()
            if not shut:
                shut.append(made.port)
                made.port = closed
            return made

        shut: list[int] = []
        monkeypatch.setattr(reach, "Listener", listener)
        host = host_of(tmp_path, environ={"CTRAN_TCP_INTERFACES": "lo", "CTRAN_TCP_FAMILY": "ipv4"})
        found = together(3, lambda m: reach.find_holes(m, MEMBERS, [0, 1, 2], host))
    holes = found[0]
    assert found == [holes] * 3
    assert isinstance(holes, list)
    assert len(holes) == 2  # the two others, to the one whose port is closed
    assert len({hole.target for hole in holes}) == 1
    outcome = reach.outcome(holes, MEMBERS, [0, 1, 2])
    assert outcome.result == BROKEN
    first = holes[0]
    expected = f"host{first.source} (rank {first.source}) to host{first.target}"
    assert outcome.details[0].startswith(expected)
    assert f"127.0.0.1:{closed} Connection refused" in outcome.details[0]


def test_a_stranger_at_a_port_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        why = reach.try_connect("127.0.0.1", stranger.getsockname()[1], 0.05)
    assert "no answer" in why


def test_hosts_that_reach_each_other(tmp_path: Path) -> None:
    host = host_of(tmp_path, environ={"CTRAN_TCP_INTERFACES": "lo"})
    found = together(3, lambda m: reach.find_holes(m, MEMBERS, [0, 1, 2], host))
    assert found == [[]] * 3
    assert reach.outcome([], MEMBERS, [0, 1, 2]).result == GOOD


@pytest.mark.parametrize("size", range(1, 10))
def test_every_two_ranks_meet_once(size: int) -> None:
    rounds = tournament(list(range(size)))
    pairs = [pair for one in rounds for pair in one]
    assert sorted(pairs) == [(a, b) for a in range(size) for b in range(a + 1, size)]
    for one in rounds:
        assert len({rank for pair in one for rank in pair}) == 2 * len(one)
    shared = rounds_of(list(range(size)), lambda rank: str(rank % 2))
    assert sorted(pair for one in shared for pair in one) == sorted(pairs)
    for one in shared:
        machines = [{a % 2, b % 2} for a, b in one]
        assert sum(map(len, machines)) == len(set().union(*machines))


def pairs_of_four(**odd: float) -> list[Pair]:
    pairs = [Pair(a, b, GOOD, 30.0, 10.0, 5.0, 2.0) for a in range(4) for b in range(a + 1, 4)]
    for name, value in odd.items():
        setattr(pairs[-1], name, value)
    mark_odd(pairs)
    return pairs


@pytest.mark.parametrize("odd", [{"latency_us": 500.0}, {"bandwidth_gbs": 1.0}])
def test_an_odd_pair_is_marked(odd: dict[str, float]) -> None:
    members = {rank: Member(rank, f"host{rank}", str(rank), str(rank)) for rank in range(4)}
    assert launched.name_pairs(pairs_of_four(), members).result == GOOD
    pairs = pairs_of_four(**odd)
    assert [one.result for one in pairs] == [GOOD] * 5 + [SLOW]
    found = launched.name_pairs(pairs, members)
    assert found.result == SLOW
    assert "2 (host2) and 3 (host3)" in found.details[0]
    report = Report("1", places=[Place(r, f"host{r}") for r in range(4)], pairs=pairs)
    text = text_of(report)
    assert "! is odd" in text
    latencies, _, bandwidths = text.partition("bandwidth between ranks")
    assert ("500!" in latencies) is ("latency_us" in odd)
    assert ("1!" in bandwidths) is ("bandwidth_gbs" in odd)
    assert text.count("!") == 3, "in its table, in both places, and what it means"


def test_a_pair_that_cannot_talk_is_named() -> None:
    pair = Pair(0, 1, BROKEN, error="cannot connect")
    found = launched.name_pairs([pair], MEMBERS)
    assert found.result == BROKEN
    assert found.details == ("0 (host0) and 1 (host1): cannot connect",)
    report = Report("1", places=[Place(0, "a"), Place(1, "b")], pairs=[pair])
    assert "X cannot talk" in text_of(report)


@pytest.mark.parametrize(("offset", "result"), [(100.0, GOOD), (-25_000.0, SLOW)])
def test_clocks(offset: float, result: str) -> None:
    pair = Pair(0, 1, GOOD, 30.0, 10.0, offset, 40.0)
    found = launched.clocks([pair], MEMBERS)
    assert found.result == result
    assert found.details == (f"host1 is {offset:+.1f} µs (± 40.0) of host0",)


def test_clocks_of_hosts_that_cannot_talk_are_not_known() -> None:
    assert launched.clocks([Pair(0, 1, GOOD, same_host=True)], MEMBERS).reason == "one host"
    assert "not known" in launched.clocks([Pair(0, 1, BROKEN, error="no")], MEMBERS).reason


def test_findings_that_are_alike_are_shown_once() -> None:
    def found(result: str) -> list[Finding]:
        return [Finding("cores", "cores", "", result, f"it is {result}", "", [])]

    merged = merge({0: found(GOOD), 1: found(SLOW), 2: found(GOOD)})
    assert [(one.result, one.ranks) for one in merged] == [(GOOD, [0, 2]), (SLOW, [1])]
    report = Report("1", places=[Place(r, f"host{r}") for r in range(3)], findings=merged)
    report.settle()
    assert report.result == SLOW
    assert report.exit_code == 0
    assert "it is slow [rank 1 on host1]" in text_of(report)
    assert rank_list([0, 1, 2, 5]) == "0-2,5"


def test_what_is_good_in_other_words_on_each_host_takes_one_line() -> None:
    by_rank = {
        rank: [Finding("interfaces", "network", "", GOOD, f"eth{rank} can be used", "", [])]
        for rank in range(3)
    }
    places = [Place(rank, f"host{rank}") for rank in range(3)]
    text = text_of(Report("1", places=places, findings=merge(by_rank)))
    assert "eth0 can be used [rank 0 on host0]" in text
    assert "+ 2 more" in text
    assert "eth1" not in text
