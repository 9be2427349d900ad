"""`torchcomms doctor` as the ranks of a launcher: checks of every host, and of what is between."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta

from torchcomms import _rendezvous
from torchcomms.cli.doctor import measure, reach, self_test
from torchcomms.cli.doctor.finding import BROKEN, SLOW, Host, Outcome, broken, good, slow
from torchcomms.cli.doctor.host import examine
from torchcomms.cli.doctor.matrix import mark_odd
from torchcomms.cli.doctor.rendezvous import Member, Progress, Rendezvous
from torchcomms.cli.doctor.report import Finding, Pair, Place, Report, merge
from torchcomms.version import __version__

_FEW = 8
_CLOCK_US = 10_000.0
_BETWEEN = "between ranks"


def choose(members: dict[int, Member]) -> list[int]:
    """Who is measured: all ranks if they are few, else the first of each host; on one host some."""
    if len(members) <= _FEW:
        return sorted(members)
    first: dict[str, int] = {}
    for rank in sorted(members):
        first.setdefault(members[rank].identity, rank)
    return sorted(first.values()) if len(first) > 1 else sorted(members)[:_FEW]


def name_pairs(pairs: list[Pair], members: dict[int, Member]) -> Outcome:
    def named(one: Pair) -> str:
        return f"{one.a} ({members[one.a].name}) and {one.b} ({members[one.b].name})"

    failed = [f"{named(one)}: {one.error}" for one in pairs if one.result == BROKEN]
    odd = [
        f"{named(one)}: {one.latency_us:.3g} µs, {one.bandwidth_gbs:.3g} GB/s"
        for one in pairs
        if one.result == SLOW
    ]
    if failed:
        return broken(
            f"{len(failed)} of {len(pairs)} pairs of ranks cannot talk",
            "TORCHCOMM_LOG=debug on these ranks says more",
            *failed,
            *odd,
        )
    if odd:
        return slow(
            f"{len(odd)} of {len(pairs)} pairs of ranks are much slower than the median",
            "look at cables, switches (ethtool -S), and what else runs on these hosts",
            *odd,
        )
    return good(f"pairs of ranks that talk: {len(pairs)}; none is odd")


def clocks(pairs: list[Pair], members: dict[int, Member]) -> Outcome:
    if all(one.same_host for one in pairs):
        return good("one host")
    between = [one for one in pairs if not one.same_host and one.clock_offset_us is not None]
    if not between:
        return good("not known: no two hosts can talk")
    origin = between[0].a
    # One line for each host, against the host of the first rank.
    lines: dict[str, str] = {}
    furthest = 0.0
    for one in between:
        offset, error = one.clock_offset_us or 0.0, one.clock_error_us or 0.0
        furthest = max(furthest, abs(offset) - error)
        if one.a == origin:
            name = members[one.b].name
            lines.setdefault(
                name, f"{name} is {offset:+.1f} µs (± {error:.1f}) of {members[origin].name}"
            )
    if furthest > _CLOCK_US:
        return slow(
            f"clocks of hosts are {furthest / 1000:.3g} ms apart: logs and traces do not line up",
            "chronyc tracking; systemctl restart chronyd (as root)",
            *lines.values(),
        )
    return good(f"clocks of hosts are less than {_CLOCK_US / 1000:.0f} ms apart", *lines.values())


def _presence(rendezvous: Rendezvous) -> Outcome:
    away = sorted(set(range(rendezvous.size)) - set(rendezvous.present))
    if away:
        return broken(
            f"ranks {', '.join(map(str, away))} of {rendezvous.size} did not answer",
            "look at their output: have they been started, and are they still there?",
        )
    return good(f"all {rendezvous.size} ranks answer")


def _world(rendezvous: Rendezvous, usable: bool, seconds: float) -> Outcome:
    """all_reduce of all ranks. Collective."""
    if not usable:
        return broken("left out, as some ranks cannot talk", "mend that first")
    small = large = 0.0
    error = ""
    try:
        comm = measure.communicator(rendezvous, "all", rendezvous.rank, rendezvous.size, seconds)
        try:
            small, large = self_test.exercise(comm)
        finally:
            comm.finalize()
    except Exception as failure:
        error = str(failure).splitlines()[0]
    said = rendezvous.share("world", error, seconds + 10)
    failed = [f"rank {rank}: {what}" for rank, what in said.items() if what]
    if failed:
        return broken(
            "; ".join(failed[:4]), "TORCHCOMM_LOG=debug on these ranks says more", *failed[4:]
        )
    return self_test.judge(rendezvous.size, small, large)


def run(host: Host, ranks_given: bool, seconds: float, progress: Progress) -> Report | None:
    """The report, on rank 0; None on the others.

    Raises:
        CommError: the launcher's store cannot be reached.
        LostFirst: rank 0 does not answer.
        CameLate: the others have not waited any longer for this rank.
    """
    rank, size, store = _rendezvous.resolve("doctor", None, timedelta(seconds=seconds))
    assert store is not None  # a launcher's ranks are several
    rendezvous = Rendezvous(store, rank, size, seconds)
    progress(f"waiting for {size} ranks")
    told = rendezvous.share("members", asdict(Member.here(rank, host)))
    members = {number: Member(**said) for number, said in told.items()}
    if not ranks_given:
        mine = members[rank].identity
        host = replace(host, ranks=sum(one.identity == mine for one in members.values()))
    findings = [asdict(one) for one in examine(host, progress)]
    by_rank = rendezvous.share("findings", findings)
    chosen = [one for one in choose(members) if one in rendezvous.present]
    progress("connections between hosts")
    holes = reach.find_holes(rendezvous, members, chosen, host)
    closed = {(min(h.source, h.target), max(h.source, h.target)) for h in holes}
    pairs = measure.measure_pairs(rendezvous, members, chosen, closed, progress)
    mark_odd(pairs)
    progress(f"all_reduce of {size} ranks")
    usable = len(rendezvous.present) == size and all(one.result != BROKEN for one in pairs)
    world = _world(rendezvous, usable, seconds)
    rendezvous.leave()
    if rank != 0:
        return None
    report = Report(__version__)
    report.places = [Place(one.rank, one.name) for one in members.values()]
    report.findings = merge({r: [Finding(**one) for one in said] for r, said in by_rank.items()})
    everybody = sorted(members)
    for name, about, outcome in (
        ("ranks", "whether all ranks answer", _presence(rendezvous)),
        ("connections", "firewalls between hosts", reach.outcome(holes, members, chosen)),
        ("pairs", "latency and bandwidth between ranks", name_pairs(pairs, members)),
        ("clocks", "clocks of the hosts", clocks(pairs, members)),
        ("self_test", self_test.ABOUT, world),
    ):
        one = Finding.of(name, _BETWEEN, about, outcome)
        one.ranks = everybody
        report.findings.append(one)
    report.pairs = pairs
    return report
