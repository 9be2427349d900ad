"""What `torchcomms analyze`, `top` and `trace` make of recordings that somebody else has made."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from harness import analysis
from harness.doc_blocks import ROOT
from harness.ranks import GUARD_SECONDS

from torchcomms.cli import main
from torchcomms.cli.records import arrows, job, processes, sources, top, verdicts

COMMANDS = pytest.mark.parametrize(
    "command",
    [["analyze"], ["analyze", "--json"], ["top", "--times", "1"], ["trace", "-o", "-"]],
    ids=["analyze", "analyze_json", "top", "trace"],
)


def operation(**fields: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(("type", "algorithm", "why"), ""),
        **dict.fromkeys(("root", "tag", "received", "ended", "waits_since"), 0),
        **dict.fromkeys(("waited", "longest_wait"), 0),
        **dict.fromkeys(("number", "called", "started", "first"), 1),
        **dict.fromkeys(("waits_for", "longest_for", "error"), None),
        "kind": "all_reduce",
        "call": "all_reduce(sum, float32, 4 elements)",
        "message": False,
        "count": 4,
        "bytes": 16,
        **fields,
    }


def rank_of(number: int, **fields: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(("realtime_offset", "messages", "queued"), 0),
        **dict.fromkeys(("pid", "process_start", "collectives"), 1),
        **dict.fromkeys(("process", "error"), None),
        "rank": number,
        "size": 2,
        "name": "world",
        "host": "elsewhere",
        "state": "alive",
        "failure": "",
        "now": 10**10,
        "left": False,
        "takes_settings": True,
        "operations": [operation()],
        "where": [],
        **fields,
    }


def recording(*ranks: dict[str, Any], name: str = "world") -> dict[str, Any]:
    communicator = {"group": "g", "name": name, "size": 2, "ranks": list(ranks)}
    return {"torchcomms_recording": 1, "communicators": [communicator]}


def kept(content: dict[str, Any], folder: Path) -> str:
    file = folder / "kept.json"
    file.write_text(json.dumps(content))
    return str(file)


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of what gives one client an answer of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as client, suppress(OSError):
                client.recv(4096)
                answer(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        thread.join(GUARD_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.0 500 x\r\n\r\n\x1b]0;title\x07\x1b[31mred\nrank 0", b"\x1b[31mnone\r\n\r\n"],
    ids=["content", "status"],
)
def test_the_error_of_a_server_is_a_line_that_does_not_steer_the_terminal(
    answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(lambda client: client.sendall(answer)) as address:
        assert main(["analyze", address]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(address)
    assert "?[31m" in line
    assert line.isprintable()


@pytest.mark.parametrize("start", [b"", b"HTTP/1.0 200 OK\r\n\r\n"], ids=["head", "content"])
def test_a_server_that_answers_bit_by_bit_is_given_up(
    start: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_SECONDS", 0.5)
    is_over = threading.Event()

    def trickle(client: socket.socket) -> None:
        client.sendall(start)
        for _ in range(1000):
            client.sendall(b" ")
            if is_over.wait(0.05):
                return

    with server(trickle) as address:
        try:
            assert main(["analyze", address]) == 2
        finally:
            is_over.set()
    assert "no whole answer has come in 0.5 s" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["http://[", "http://", "http://host:port/", "https://[::1"])
def test_an_address_that_is_none_is_a_line_and_exit_code_2(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", address]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{address}: ")


@COMMANDS
@pytest.mark.parametrize("name", ["a\u00a0b", "a\u3000b", "a\u200db"], ids=ascii)
def test_spaces_and_joiners_of_other_scripts_are_read(
    command: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kept(recording(rank_of(0), rank_of(1), name=name), tmp_path)
    assert main([*command, file, *(() if command[0] == "trace" else ("--after", "100"))]) == 0
    out = capsys.readouterr().out
    assert name in out or json.dumps(name)[1:-1] in out


@pytest.mark.parametrize("command", [["analyze"], ["top", "--times", "1"]], ids=lambda c: c[0])
@pytest.mark.parametrize("steering", ["\u2028", "\u2029", "\u202e", "\u2066"], ids=ascii)
def test_what_turns_or_ends_a_line_is_replaced_where_it_is_printed(
    command: list[str], steering: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kept(recording(rank_of(0), rank_of(1), name=f"a{steering}b"), tmp_path)
    assert main([*command, file, "--after", "100"]) == 0
    out = capsys.readouterr().out
    assert "a?b" in out
    assert steering not in out


@pytest.mark.parametrize("control", ["\n", "\x1b", "\x7f", "\x85", "\ud800"], ids=ascii)
def test_a_name_with_controls_is_refused(
    control: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", kept(recording(name=f"a{control}b"), tmp_path)]) == 2
    assert "it.communicators[0].name has control characters" in capsys.readouterr().err


def test_processes_of_another_host_are_not_looked_for_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "where", lambda *_, **__: ["in a process of this host"])
    absent = rank_of(1, collectives=0, operations=[], process=os.getpid())
    del absent["where"]
    file, again = kept(recording(rank_of(0), absent), tmp_path), tmp_path / "again.json"
    assert main(["analyze", file, "--save", str(again)]) == 1
    out = capsys.readouterr().out
    assert "rank 1 has not called all_reduce #1" in out
    assert "of this host" not in out
    _, saved = json.loads(again.read_text())["communicators"][0]["ranks"]
    assert saved["where"] == []


@COMMANDS
@pytest.mark.parametrize("field", ["bytes", "ended", "called", "number"])
@pytest.mark.parametrize("number", [10**400, 1 << 63, -(1 << 63) - 1], ids=["400", "63", "-63"])
def test_numbers_of_more_than_64_bits_are_refused(
    command: list[str],
    field: str,
    number: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged = rank_of(0, operations=[operation(**{field: number})])
    assert main([*command, kept(recording(damaged, rank_of(1)), tmp_path)]) == 2
    assert f"operations[0].{field} has more than 64 bits" in capsys.readouterr().err


@COMMANDS
@pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63)], ids=["most", "least"])
def test_the_largest_numbers_are_taken(
    command: list[str], number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = ("bytes", "called", "started", "first", "ended", "waited", "longest_wait")
    large = [operation(**dict.fromkeys(fields, number)), operation(number=number)]
    ranks = [
        rank_of(0, operations=large, collectives=number),
        rank_of(1, now=number, realtime_offset=number),
    ]
    assert main([*command, kept(recording(*ranks), tmp_path)]) in (0, 1)
    assert capsys.readouterr().err == ""


NOW = 10**10
SECOND = 10**9


def screen_of(rates: top.Rates, *ranks: dict[str, Any]) -> tuple[list[list[str]], str]:
    """The cells of each rank that `top` shows, and the whole."""
    communicators = job.merged([recording(*ranks)])
    text = top.screen(communicators, 100, rates)
    return [line.split() for line in text.splitlines()[2 : 2 + len(ranks)]], text


def often(number: int, now: int, calls: int) -> dict[str, Any]:
    """A rank that calls each 20 microseconds, of which the last 1000 calls are recorded."""
    times = [(calls - 1 - i, now - i * 20_000) for i in range(1000)]
    return rank_of(
        number,
        now=now,
        collectives=calls,
        operations=[
            operation(number=n, called=at - 20_000, started=at - 20_000, ended=at, bytes=1000)
            for n, at in times
        ],
    )


def test_top_counts_calls_that_are_no_longer_recorded() -> None:
    rates = top.Rates()
    rows, text = screen_of(rates, often(0, NOW, 50_000), often(1, NOW, 50_000))
    for row in rows:
        assert row[2:6] == ["50000", "~50000", "~50.0", "~0%"]
    assert "slowest of the last 256 calls: rank " in text
    later = NOW + SECOND * 3 // 2
    rows, _ = screen_of(rates, often(0, later, 80_000), often(1, later, 125_000))
    assert [row[3] for row in rows] == ["20000", "50000"]
    rows, _ = screen_of(rates, {**often(0, later + 1, 4000), "pid": 7}, often(1, later, 125_000))
    assert [row[3] for row in rows] == ["~50000", "~50000"], "another process, and no time"


@pytest.mark.parametrize(
    ("seconds", "share"),
    [
        ({"started": -5.0, "ended": -0.1, "waited": 4.8}, "90%"),
        ({"started": -5.0, "ended": -0.1, "waited": 0.2}, "20%"),
        ({"started": -0.5, "ended": -0.2, "waited": 0.3}, "30%"),
        ({"started": -5.0, "ended": -1.5, "waited": 3.5}, "0%"),
        ({"started": -5.0, "waits_since": -4.0, "waited": 0.0}, "100%"),
        ({"started": -5.0, "waits_since": -0.4, "waited": 0.0}, "40%"),
        ({"started": -0.8, "waits_since": -0.4, "waited": 0.3}, "70%"),
        ({"started": -5.0, "waited": 0.0}, "0%"),
    ],
)
def test_top_tells_what_share_of_the_last_second_went_into_waiting(
    seconds: dict[str, float], share: str
) -> None:
    fields: dict[str, Any] = {}
    for name, value in seconds.items():
        fields[name] = round(value * SECOND) + (0 if name == "waited" else NOW)
    fields["waits_for"] = 1 if "waits_since" in fields else None
    first = rank_of(0, operations=[operation(**fields)])
    (row, _), _ = screen_of(top.Rates(), first, rank_of(1))
    assert row[5] == share


def test_top_does_not_say_that_a_dead_rank_waits() -> None:
    waiting = operation(started=NOW - SECOND, waits_since=NOW - SECOND, waits_for=1)
    dead = rank_of(0, operations=[waiting], state="dead")
    (row, _), _ = screen_of(top.Rates(), dead, rank_of(1))
    assert row[5] == "0%"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, ["rank", "pid", "calls", "ops/s", "MB/s", "waits", "seconds", "for", "in"]),
        (80, ["rank", "pid", "calls", "ops/s", "MB/s", "waits", "seconds", "for", "in"]),
        (60, ["rank", "pid", "ops/s", "waits", "seconds", "for", "in"]),
        (40, ["rank", "seconds", "for", "in"]),
        (5, ["rank"]),
    ],
)
def test_in_a_narrow_terminal_top_keeps_what_ranks_are_in(width: int, shown: list[str]) -> None:
    waiting = operation(started=NOW - SECOND, waits_since=NOW - SECOND, waits_for=1)
    communicators = job.merged([recording(rank_of(0, operations=[waiting]), rank_of(1))])
    lines = top.screen(communicators, 100, top.Rates(), width).splitlines()
    assert lines[1].split() == shown
    assert all(len(line) <= width for line in lines)
    assert ("all_reduce(sum," in lines[2]) is (width > 5)


def message(kind: str, peer: int, tag: int, **fields: Any) -> dict[str, Any]:
    call = f"{kind}(float32, 4 elements, {'to' if kind == 'send' else 'from'} {peer}, tag {tag})"
    return operation(kind=kind, call=call, message=True, root=peer, tag=tag, **fields)


def verdicts_of(
    content: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    main(["analyze", kept(content, folder), "--json"])
    (communicator,) = analysis.checked(capsys.readouterr().out)["communicators"]
    return list(communicator["verdicts"])


def test_a_send_and_a_receive_of_different_tags_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sends = rank_of(0, operations=[message("send", 1, 1)])
    receives = rank_of(1, operations=[message("recv", 0, 2)])
    (verdict,) = verdicts_of(recording(sends, receives), tmp_path, capsys)
    assert (verdict["verdict"], verdict["ranks"]) == ("different_tags", [0, 1])
    assert "rank 0 is in send with tag 1 for 10.0 s" in verdict["text"]
    assert "rank 1 in recv with tag 2" in verdict["text"]


def test_a_message_of_another_tag_may_wait_for_its_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sends = rank_of(0, operations=[message("send", 1, 1), message("send", 1, 2, number=2)])
    receives = rank_of(1, operations=[message("recv", 0, 2)])
    assert verdicts_of(recording(sends, receives), tmp_path, capsys) == []


def test_two_hosts_that_name_a_communicator_alike_have_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for host in ("host0", "host1"):
        folder = tmp_path / host
        folder.mkdir()
        files.append(kept(recording(rank_of(0, host=host), rank_of(1, host=host)), folder))
    main(["analyze", *files, files[1], "--json", "--after", "100"])
    found = json.loads(capsys.readouterr().out)["communicators"]
    hosts = [[rank["host"] for rank in one["ranks"]] for one in found]
    assert sorted(hosts) == [["host0"] * 2, ["host1"] * 2]
    assert len({one["group"] for one in found}) == 2


def test_a_recording_without_a_timeout_makes_dumps(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    file = kept(recording(rank_of(0), rank_of(1, pid=2, timeout=10**9)), tmp_path)
    assert main(["trace", file, "--format", "flight_recorder", "-o", str(folder)]) == 0
    entries = pickle.loads((folder / "rank_0").read_bytes())["entries"]
    assert [entry["timeout_ms"] for entry in entries] == [None]


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_a_file_that_cannot_be_written_is_a_line_and_exit_code_2(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "trace" if option == "-o" else "analyze"
    file = kept(recording(rank_of(0), rank_of(1)), tmp_path)
    for target, why in (
        (tmp_path / "nowhere" / "x", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        assert main([command, file, option, str(target)]) == 2
        assert capsys.readouterr().err == f"torchcomms {command}: {target}: {why}\n"


def test_a_recording_of_no_communicator_makes_no_dumps(tmp_path: Path) -> None:
    nothing = kept({"torchcomms_recording": 1, "communicators": []}, tmp_path)
    folder = tmp_path / "dumps"
    assert main(["trace", nothing, "--format", "flight_recorder", "-o", str(folder)]) == 0
    assert list(folder.iterdir()) == []


def test_ranks_of_a_part_are_on_the_tracks_of_the_whole(tmp_path: Path) -> None:
    """What split([1, 3]) makes has ranks 0 and 1, which are ranks 1 and 3 of the world."""
    waits = operation(ended=5 * 10**6, started=10, longest_for=1, longest_wait=4 * 10**6, number=1)
    comes = operation(ended=5 * 10**6, started=4 * 10**6, number=1)
    part = [
        rank_of(r, pid=11 + 2 * r, name="part", operations=[one])
        for r, one in enumerate((waits, comes))
    ]
    alone = [rank_of(0, pid=99, name="alone")]  # of a process that is not in the world
    world = [rank_of(r, pid=10 + r, size=4) for r in range(4)]
    communicators = [
        {"group": name, "name": name, "size": len(ranks), "ranks": ranks}
        for name, ranks in (("alone", alone), ("part", part), ("world", world))
    ]
    file = kept({"torchcomms_recording": 1, "communicators": communicators}, tmp_path)
    assert main(["trace", file, "-o", str(tmp_path / "line.json")]) == 0
    events = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    names = [(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"]
    assert names == [(r, f"rank {r} on elsewhere") for r in range(5)]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    drawn = {
        (e["pid"], threads[e["pid"], e["tid"]].partition(":")[0]) for e in events if e["ph"] == "X"
    }
    assert drawn == {(4, "alone"), (1, "part"), (3, "part"), *((r, "world") for r in range(4))}
    assert [(e["ph"], e["pid"]) for e in events if e["ph"] in "sf"] == [("s", 3), ("f", 1)]


def test_what_overlaps_is_drawn_in_rows(tmp_path: Path) -> None:
    """On one thread Perfetto drops what overlaps."""
    spans = {0: (10, 60), 1: (20, 40), 2: (30, 70), 3: (45, 90), 4: (60, 80)}
    sends = [
        operation(message=True, kind="send", root=1, number=n, started=start, ended=end)
        for n, (start, end) in spans.items()
    ]
    file = kept(recording(rank_of(0, messages=5, operations=sends)), tmp_path)
    assert main(["trace", file, "-o", str(tmp_path / "line.json")]) == 0
    events = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows: dict[str, list[int]] = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault(threads[event["tid"]], []).append(event["args"]["number"])
    assert rows == {
        "world: messages": [0, 4],
        "world: messages (2)": [1, 3],
        "world: messages (3)": [2],
    }


WAITS = {"started": NOW - 5 * SECOND, "number": 3}
HAS_ENDED = operation(started=NOW - 5 * SECOND, ended=NOW - 4 * SECOND, number=3)
JUST_CALLED = operation(started=NOW - SECOND // 2, number=3)
MISSES = {"collectives": 3, "operations": [operation(ended=2, number=2)]}
HAS_CALLED = {"collectives": 4, "operations": [HAS_ENDED]}
IS_IN = {"collectives": 4, "operations": [operation(**WAITS)]}


CAPTURED = operation(started=NOW - 9 * SECOND, ended=NOW - 9 * SECOND, number=3)
REPLAYS = {"tells_replays": True, "replayed": 2, **HAS_CALLED, "operations": [CAPTURED]}
RAN = operation(started=NOW - 8 * SECOND, ended=NOW - 7 * SECOND, number=3)
RUNS = operation(started=NOW - 5 * SECOND, number=3)
IN_REPLAY = {**REPLAYS, "replays": [RAN, RUNS]}
OUT_OF_IT = {**REPLAYS, "replays": [RAN]}


@pytest.mark.parametrize(
    ("ranks", "missing"),
    [
        ([IN_REPLAY, OUT_OF_IT], [1]),
        ([IN_REPLAY, {**OUT_OF_IT, "replays": []}], [1]),
        ([IN_REPLAY, IN_REPLAY], []),
        ([{**IN_REPLAY, "replays": [RAN, {**RUNS, "kind": "broadcast"}]}, OUT_OF_IT], []),
        ([{**IN_REPLAY, "replays": [RAN, {**RUNS, "started": NOW - 9}]}, OUT_OF_IT], []),
        ([IN_REPLAY, {**OUT_OF_IT, "replays": [{**RUNS, "ended": NOW - 9}]}], []),
        ([IN_REPLAY, {**OUT_OF_IT, "tells_replays": False}], []),
        ([IN_REPLAY, {**OUT_OF_IT, "off": True}], []),
        ([IN_REPLAY, {**OUT_OF_IT, "state": "left"}], []),
        ([OUT_OF_IT, OUT_OF_IT], []),
    ],
)
def test_a_rank_that_does_not_replay_is_named(
    ranks: list[dict[str, Any]],
    missing: list[int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = recording(*(rank_of(r, now=NOW, **fields) for r, fields in enumerate(ranks)))
    found = verdicts_of(content, tmp_path, capsys)
    assert [v["verdict"] for v in found] == ["missing_rank"] * len(missing)
    for one in found:
        assert (one["ranks"], one["waiting"], one["number"]) == (missing, [0], 3)
        text = "rank 1 has not replayed all_reduce #3 (16 B); rank 0 waits for 5.0 s"
        assert one["text"] == text


def test_replays_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = rank_of(1, now=NOW, **{**IN_REPLAY, "state": "dead"})
    file = kept(recording(rank_of(0, now=NOW, **IN_REPLAY), dead), tmp_path)
    assert main(["analyze", file]) == 1
    assert "it died in a replay of all_reduce #3 (16 B); rank 0 waits" in capsys.readouterr().out
    assert main(["top", file, "--times", "1"]) == 0
    assert "5.00        all_reduce(sum, float32, 4 elements), in a replay" in (
        capsys.readouterr().out
    )
    assert main(["trace", file, "-o", str(tmp_path / "line.json")]) == 0
    events = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    drawn = [(threads[e["pid"], e["tid"]], e["cat"]) for e in events if e["ph"] == "X"]
    captured, replayed = ("world", "collective"), ("world: replays", "replay")
    assert sorted(drawn) == [captured] * 2 + [replayed] * 4


def test_top_counts_replays() -> None:
    rates = top.Rates()
    ran = [operation(ended=NOW - 10 - n, started=1, bytes=10**6) for n in range(5)]
    idle = rank_of(1, now=NOW)
    first = rank_of(0, now=NOW, replays=ran, replayed=5)
    (row, _), _ = screen_of(rates, first, idle)
    assert row[3:5] == ["5", "5.0"]
    later = rank_of(0, now=NOW + SECOND, replays=ran, replayed=45)
    (row, _), _ = screen_of(rates, later, idle)
    assert row[3] == "40"


def test_a_missing_rank_that_is_in_a_message_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = "recv(float32, 4 elements, from rank 0)"
    message = operation(message=True, kind="recv", call=call, started=NOW - 1, number=0)
    operations = [*MISSES["operations"], message]
    missing = rank_of(1, **{**MISSES, "operations": operations}, now=NOW, where=["computes"])
    assert main(["analyze", kept(recording(rank_of(0, **IS_IN, now=NOW), missing), tmp_path)]) == 1
    assert f"(rank 1, process 1: in {call}); rank 0 waits" in capsys.readouterr().out


@pytest.mark.parametrize("host", ["elsewhere", "b"])
def test_of_several_hosts_that_of_a_missing_rank_is_named(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = rank_of(1, **MISSES, now=NOW, host=host, pid=7, where=["computes"])
    file = kept(recording(rank_of(0, **IS_IN, now=NOW), missing), tmp_path)
    assert main(["analyze", file]) == 1
    on = " on b" if host == "b" else ""
    assert f"(rank 1{on}, process 7: computes); rank 0 waits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ([IS_IN, {**MISSES, "state": "left"}], [("left", [1])]),
        ([{**IS_IN, "state": "left"}, {**MISSES, "state": "left"}], []),
        ([HAS_CALLED, {**MISSES, "state": "left"}], []),
        ([IS_IN, {**HAS_CALLED, "state": "left"}], []),
        ([{**IS_IN, "operations": [JUST_CALLED]}, {**MISSES, "state": "left"}], []),
        ([IS_IN, {**IS_IN, "where": ["stopped by a signal"]}], [("stopped", [1])]),
        ([HAS_CALLED, {**HAS_CALLED, "where": ["stopped by a signal"]}], []),
        ([IS_IN, {**IS_IN, "where": ["waits for a device"]}], []),
        (
            [
                {**IS_IN, "operations": [JUST_CALLED]},
                {**IS_IN, "operations": [JUST_CALLED], "where": ["stopped by a signal"]},
            ],
            [],
        ),
        ([IS_IN], [("missing_elsewhere", [])]),
        ([IS_IN, IS_IN], []),
        ([HAS_CALLED], []),
        ([{**IS_IN, "operations": [JUST_CALLED]}], []),
    ],
)
def test_who_left_who_is_stopped_and_who_is_not_seen(
    ranks: list[dict[str, Any]],
    found: list[tuple[str, list[int]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = recording(*(rank_of(r, now=NOW, **fields) for r, fields in enumerate(ranks)))
    verdicts = verdicts_of(content, tmp_path, capsys)
    assert [(v["verdict"], v["ranks"]) for v in verdicts] == found
    for verdict in verdicts:
        assert verdict["number"] == 3
        assert verdict["waiting"] == [0]


LOST = {"error": "PeerLost", "failure": "rank 1 is lost to rank 0: it closed the connection"}
HAS_LEFT = {**LOST, "failure": "rank 1 has left communicator 'world' while rank 0 still needs it"}


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ([{**LOST, "blames": [1]}], ("dead_process", [1])),
        ([{**HAS_LEFT, "blames": [1]}], ("left", [1])),
        ([{**HAS_LEFT, "blames": [1]}, {"state": "left"}], ("left", [1])),
        ([{**LOST, "blames": [1]}, {}], ("failed", [1])),
        ([LOST], ("failed", [0])),
        ([{"error": "Timeout", "blames": [1]}], ("failed", [1])),
    ],
    ids=["gone", "left", "left_and_is_seen", "lives", "names_nobody", "is_late"],
)
def test_of_ranks_that_others_have_lost_those_that_live_have_not_died(
    ranks: list[dict[str, Any]],
    found: tuple[str, list[int]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = recording(*(rank_of(r, now=NOW, **HAS_CALLED, **of) for r, of in enumerate(ranks)))
    verdicts = verdicts_of(content, tmp_path, capsys)
    assert [(v["verdict"], v["ranks"]) for v in verdicts] == [found]


@pytest.mark.parametrize(
    ("receives", "sends", "found"),
    [
        ({"started": NOW - 5 * SECOND}, None, ["missing_message"]),
        ({"started": NOW - SECOND // 2}, None, []),
        ({"started": NOW - 5 * SECOND}, {"started": NOW - 4 * SECOND}, []),
        ({"started": NOW - 5 * SECOND, "ended": NOW - SECOND}, None, []),
        (None, {"started": NOW - 5 * SECOND}, ["missing_message"]),
        (None, {"started": NOW - 5 * SECOND, "ended": NOW - 4 * SECOND}, []),
    ],
)
def test_a_message_whose_other_side_is_missing(
    receives: dict[str, int] | None,
    sends: dict[str, int] | None,
    found: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sides = [
        [message(kind, peer, 0, **fields)] if fields is not None else []
        for kind, peer, fields in (("recv", 1, receives), ("send", 0, sends))
    ]
    content = recording(*(rank_of(r, now=NOW, operations=own) for r, own in enumerate(sides)))
    verdicts = verdicts_of(content, tmp_path, capsys)
    assert [v["verdict"] for v in verdicts] == found
    if found:
        absent = 1 if sends is None else 0
        assert (verdicts[0]["ranks"], verdicts[0]["waiting"]) == ([absent], [1 - absent])


def of_window(
    kind: str, peer: int, number: int, at: int, *, end: int | None = None, **fields: Any
) -> dict[str, Any]:
    """The message `number` of a rank, called `at` so many seconds; it ends then too, or never."""
    until = at if end is None else end
    moments = {"called": at, "started": at, "ended": until}
    times = {name: moment * SECOND for name, moment in moments.items()}
    more = {"count": 0, "message": True, "call": f"{kind}(...)"}
    return operation(kind=kind, root=peer, number=number, **{**more, **times, **fields})


def put(number: int, at: int, **fields: Any) -> dict[str, Any]:
    return of_window("put", 1, number, at, **fields)


def signal_of(number: int, at: int, **fields: Any) -> dict[str, Any]:
    return of_window("signal", 1, number, at, **fields)


def wait_of(number: int, at: int, end: int, **fields: Any) -> dict[str, Any]:
    return of_window("wait_signal", 0, number, at, end=end, **fields)


WORDS = [
    put(0, 1),
    signal_of(1, 2, count=3),
    put(2, 3),
    signal_of(3, 4, count=3),
    signal_of(4, 9, count=3),
    signal_of(5, 5, count=2),
]


@pytest.mark.parametrize(
    ("puts", "waits", "found"),
    [
        ([put(0, 1), put(1, 2), signal_of(2, 3, tag=1)], [wait_of(0, 1, 4, tag=1)], [(1, 0)]),
        ([signal_of(0, 3, tag=1)], [wait_of(0, 1, 4, tag=1)], [(0, 0)]),
        (
            [signal_of(7, 3, tag=5), put(8, 3, tag=3 << 24), signal_of(9, 4, tag=6)],
            [wait_of(3, 1, 4, tag=6)],
            [(9, 3)],
        ),
        ([signal_of(0, 3)], [wait_of(0, 1, 4)], []),
        ([signal_of(0, 3, tag=1)], [wait_of(0, 1, 0, tag=1)], []),
        (WORDS, [{**wait_of(0, 1, 6, count=3), "root": -1}], [(2, 0)]),
    ],
    ids=["last_put", "no_put", "other_window", "of_graphs", "waits", "word"],
)
def test_arrows_go_from_puts_to_waits(
    puts: list[dict[str, Any]], waits: list[dict[str, Any]], found: list[tuple[int, int]]
) -> None:
    (communicator,) = job.merged(
        [recording(rank_of(0, operations=puts), rank_of(1, operations=waits))]
    )
    drawn = [
        ((a.rank, a.operation["number"]), (b.rank, b.operation["number"]))
        for a, b in arrows.arrows(communicator)
    ]
    assert drawn == [((0, put), (1, wait)) for put, wait in found]


WAITING = wait_of(0, 4, 0, tag=2)
FOR_A_WORD = {**WAITING, "root": -1, "tag": 0, "count": 3}


@pytest.mark.parametrize(
    ("signals", "wait", "forgotten", "blamed"),
    [
        ([signal_of(0, 1, tag=1)], WAITING, 0, [0]),
        ([], WAITING, 0, [0]),
        ([], WAITING, 9, None),
        ([signal_of(9, 1, tag=1)], WAITING, 9, [0]),
        ([signal_of(0, 1, tag=2)], WAITING, 0, None),
        ([signal_of(0, 1)], WAITING, 0, None),
        ([], {**WAITING, "tag": 0}, 0, None),
        ([], FOR_A_WORD, 0, []),
        ([], {**FOR_A_WORD, "ended": 5 * SECOND}, 0, None),
        ([], {**WAITING, "started": NOW - SECOND // 2}, 0, None),
    ],
    ids=[
        *("one_less", "none", "forgotten", "counted_since", "sent", "of_graphs"),
        *("waits_in_graph", "word", "ended", "just_called"),
    ],
)
def test_whose_signal_is_missing_is_named(
    signals: list[dict[str, Any]],
    wait: dict[str, Any],
    forgotten: int,
    blamed: list[int] | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sender = rank_of(0, now=NOW, operations=signals, messages=len(signals) + forgotten)
    waiter = rank_of(1, now=NOW, operations=[wait], messages=1)
    found = verdicts_of(recording(sender, waiter), tmp_path, capsys)
    assert [v["ranks"] for v in found] == ([] if blamed is None else [blamed])
    for verdict in found:
        assert (verdict["verdict"], verdict["waiting"], verdict["seconds"]) == (
            "missing_signal", [1], 6.0,
        )  # fmt: skip


def test_top_counts_messages(tmp_path: Path) -> None:
    rates = top.Rates()
    puts = [
        operation(ended=NOW - 10 - n, kind="put", message=True, bytes=10**6, number=n)
        for n in range(5)
    ]
    first = rank_of(0, now=NOW, operations=puts, messages=5, collectives=0)
    rows, _ = screen_of(rates, first, rank_of(1, now=NOW))
    assert rows[0][3:5] == ["5", "5.0"]
    rows, _ = screen_of(
        rates, {**first, "now": NOW + SECOND, "messages": 25}, rank_of(1, now=NOW + SECOND)
    )
    assert rows[0][3] == "20"


def test_the_schema_is_printed_and_knows_every_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["analyze", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    kinds = schema["$defs"]["verdict"]["properties"]["verdict"]["oneOf"]
    page = (ROOT / "docs/troubleshooting.md").read_text()
    judged = "".join((Path(verdicts.__file__).parent / f"{name}.py").read_text()
                     for name in ("verdicts", "slow", "overlap", "preparation"))  # fmt: skip
    for kind in kinds:
        assert f"| `{kind['const']}` |" in page
        assert f'"{kind["const"]}"' in judged
    assert len(kinds) == len(re.findall(r"^\| `(\w+)` \|", page.partition("| verdict |")[2]
                                        .partition("\n\n")[0], re.MULTILINE))  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(state="odd"),
        lambda c: c["ranks"][0].pop("clock_error"),
        lambda c: c["ranks"][0].update(more=1),
        lambda c: c["verdicts"].append({"verdict": "missing_rank", "ranks": [1], "text": ""}),
        lambda c: c["verdicts"].append({"verdict": "new", "ranks": [1], "text": ""}),
    ],
)
def test_the_schema_refuses_what_is_otherwise(
    change: Callable[[dict[str, Any]], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kept(recording(rank_of(0), rank_of(1)), tmp_path)
    assert main(["analyze", file, "--json", "--after", "100"]) == 0
    data = analysis.checked(capsys.readouterr().out)
    change(data["communicators"][0])
    with pytest.raises(jsonschema.ValidationError):
        analysis.checked(json.dumps(data))
