"""`torchcomms analyze --serve`: the page, the data and the metrics of a running job."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable
from urllib.error import HTTPError

import pytest
from harness import Rank, Ranks
from harness.failing import all_reduce, until_dead
from harness.programs import served, stranger
from harness.ranks import GUARD_SECONDS

from torchcomms.cli import main
from torchcomms.cli.records import serve

MakeRanks = Callable[[int], Ranks]


def works(rank: Rank) -> None:
    comm = rank.comm("ctran", 2)
    for _ in range(3):
        all_reduce(comm, 1000)
    rank.say("ready")
    rank.listen()
    comm.finalize()


def get(address: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=GUARD_SECONDS
        ) as answer:
            return int(answer.status), answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_job_is_served_to_whoever_has_the_token(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(4).start(works)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    pid = job.ranks.processes[0].pid
    assert pid is not None
    with served([str(pid)]) as address:
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]{20,})", address)
        assert found is not None, address
        root, token = found.groups()
        for path in ("/", "/api/state", "/api/trace", "/metrics", "/nothing"):
            assert get(root + path)[0] == 403
            assert get(root + path, "wrong")[0] == 403
            assert get(root + path, token)[0] == (404 if path == "/nothing" else 200)

        status, page = get(address)
        assert status == 200
        assert "<canvas" not in page, "it is drawn by the script"
        assert not re.search(r"(src|href)=", page), "nothing is fetched from elsewhere"

        state = json.loads(get(root + "/api/state", token)[1])
        (communicator,) = state["communicators"]
        assert communicator["size"] == 4
        assert [rank["calls"] for rank in communicator["ranks"]] == [4] * 4
        links = communicator["ranks"][0]["links"]
        assert links
        assert [len(row["operations"]) for row in state["recent"]] == [3] * 4

        lines = get(root + "/metrics", token)[1].splitlines()
        samples = [line for line in lines if not line.startswith("#")]
        for line in samples:
            assert re.fullmatch(r'torchcomms_\w+\{(\w+="[^"]*",?)+\} [\d.e+-]+', line), line
        alive = [line for line in samples if line.startswith("torchcomms_rank_alive")]
        assert [line[-2:] for line in alive] == [" 1"] * 4
        sent = [line for line in samples if line.startswith("torchcomms_link_sent_bytes_total")]
        assert any(f'rank="0",peer="{links[0]["peer"]}"' in line for line in sent)

        assert json.loads(get(root + "/api/trace", token)[1])
        for rank in range(4):
            job.ranks.processes[rank].signal(signal.SIGKILL)
        for rank in range(4):
            until_dead(job, rank)
        assert get(root + "/api/state", token)[0] == 503, "the job has ended"


def test_a_token_of_ones_own_and_none(fresh_ranks: MakeRanks) -> None:
    job = fresh_ranks(4).start(works)
    for rank in range(4):
        assert job.hear(rank) == "ready"
    pid = job.ranks.processes[0].pid
    assert pid is not None
    with served([str(pid)], "127.0.0.1:0", "--token", "mine") as address:
        assert address.endswith("/?token=mine")
        assert get(address)[0] == 200
    with served([str(pid)], "127.0.0.1:0", "--token", "") as address:
        assert get(address)[0] == 200
    with pytest.raises(SystemExit, match="2"):
        main(["analyze", str(pid), "--serve", "nonsense"])
    for rank in range(4):
        job.say(rank)
    job.results()


def test_there_is_no_job(capsys: pytest.CaptureFixture[str]) -> None:
    with stranger() as pid:
        assert main(["analyze", str(pid), "--serve"]) == 2
    assert "no communicator" in capsys.readouterr().err


def test_an_address_of_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no IPv6")
    with serve.server(list, lambda _: {}, ("::1", 0), "") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert get(f"http://[::1]:{server.server_address[1]}/api/state") == (200, '{"recent": []}')
        server.shutdown()


def test_requests_that_are_none_are_answered_or_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve._Handler, "timeout", 0.2)
    with serve.server(list, lambda _: {}, ("127.0.0.1", 0), "secret") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for request, answer in (
            (b"GET http://[?token=x HTTP/1.1\r\n\r\n", b"HTTP/1.0 400 "),
            (b"GET / HT", b""),  # and no more
        ):
            with socket.create_connection(server.server_address[:2], GUARD_SECONDS) as client:
                client.sendall(request)
                assert client.recv(1000)[: len(b"HTTP/1.0 400 ")] == answer
        server.shutdown()
