"""`torchcomms analyze --serve`: a job as a page, as data, and as metrics for Prometheus."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torchcomms.cli.records import job, timeline
from torchcomms.cli.records.calls import called, current, users
from torchcomms.cli.records.traffic import traffic

Look = Callable[[], Sequence[job.Communicator]]
Describe = Callable[[Sequence[job.Communicator]], dict[str, Any]]

_PAGE = Path(__file__).with_name("page.html")
_TRACE_SECONDS = 10.0
_RECENT = 64  # operations of each rank that the page draws
# What the page may do: nothing but ask this server.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
)


def metrics(communicators: Sequence[job.Communicator], verdicts: dict[str, Any]) -> str:
    """In Prometheus' text format."""
    lines: list[str] = []

    def family(name: str, kind: str, doc: str, rows: Iterable[tuple[dict[str, Any], Any]]) -> None:
        lines.append(f"# HELP torchcomms_{name} {doc}")
        lines.append(f"# TYPE torchcomms_{name} {kind}")
        for labels, value in rows:
            text = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
            lines.append(f"torchcomms_{name}{{{text}}} {value}")

    ranks = [
        ({"communicator": c.name, "group": c.group, "rank": r}, rank)
        for c in communicators
        for r, rank in sorted(c.ranks.items())
    ]
    family(
        "rank_alive",
        "gauge",
        "Whether the process of a rank lives.",
        ((labels, int(rank["state"] == "alive")) for labels, rank in ranks),
    )
    family(
        "calls_total",
        "counter",
        "Collectives that a rank has started.",
        ((labels, rank["collectives"]) for labels, rank in ranks),
    )
    family(
        "messages_total",
        "counter",
        "Sends, receives and operations of windows that a rank has started.",
        ((labels, rank["messages"]) for labels, rank in ranks),
    )
    family(
        "replays_total",
        "counter",
        "Operations of CUDA graphs that a rank has been seen to replay.",
        ((labels, rank.get("replayed", 0)) for labels, rank in ranks),
    )
    family(
        "in_operation_seconds",
        "gauge",
        "For how long a rank is in its operation; 0: in none.",
        ((labels, _inside(rank)) for labels, rank in ranks),
    )
    family(
        "link_sent_bytes_total",
        "counter",
        "Bytes from a rank to another one, by transport.",
        (
            (
                {
                    "communicator": c.name,
                    "group": c.group,
                    "rank": way.source,
                    "peer": way.target,
                    "transport": way.transport,
                },
                count,
            )
            for c in communicators
            for way, count in traffic(c).items()
        ),
    )
    family(
        "verdict",
        "gauge",
        "What torchcomms analyze says is wrong; the label ranks names who causes it.",
        (
            (
                {
                    "communicator": c["name"],
                    "group": c["group"],
                    "verdict": verdict["verdict"],
                    "ranks": " ".join(map(str, verdict["ranks"])),
                },
                1,
            )
            for c in verdicts["communicators"]
            for verdict in c["verdicts"]
        ),
    )
    return "\n".join(lines) + "\n"


def _inside(rank: dict[str, Any]) -> float:
    operation = current(rank)
    if operation is None:
        return 0.0
    return max(int(rank["now"]) - int(operation["started"]), 0) / 1e9


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _recent(communicators: Sequence[job.Communicator]) -> list[dict[str, Any]]:
    """What the page draws: by rank the last operations, in seconds before now."""
    rows = []
    for c in communicators:
        for r, rank in sorted(c.ranks.items()):
            last = sorted(users(rank), key=lambda o: int(o["started"]))[-_RECENT:]
            rows.append(
                {
                    "group": c.group,
                    "rank": r,
                    "operations": [
                        {
                            "kind": o["kind"],
                            "call": called(o),
                            "of": timeline.kind_of(o),
                            "number": o["number"],
                            "from": (rank["now"] - o["started"]) / 1e9,
                            "to": (rank["now"] - (o["ended"] or rank["now"])) / 1e9,
                        }
                        for o in last
                    ],
                }
            )
    return rows


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Callable[..., _Handler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that has gone is no news
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server_version = "torchcomms"
    sys_version = ""
    timeout = 10.0  # for a request: who sends half of one is not kept

    def __init__(self, look: Look, describe: Describe, token: str, *rest: Any) -> None:
        self._look = look
        self._describe = describe
        self._token = token
        super().__init__(*rest)

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        try:
            address = urlsplit(self.path)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", "that is no address\n")
            return
        asked = parse_qs(address.query)
        given = asked.get("token", [""])[0]
        scheme, _, bearer = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = bearer
        if self._token and not hmac.compare_digest(given.encode(), self._token.encode()):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "the token is missing or wrong\n")
            return
        if address.path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", _PAGE.read_text())
            return
        answers: dict[str, Callable[[], tuple[str, str]]] = {
            "/api/state": self._state,
            "/api/trace": self._trace,
            "/api/records": partial(self._records, asked.get("stacks") == ["1"]),
            "/metrics": self._metrics,
        }
        answer = answers.get(address.path)
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is no such page\n")
            return
        try:
            self._send(HTTPStatus.OK, *answer())
        except job.NotFoundError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")

    def _state(self) -> tuple[str, str]:
        found = self._look()
        state = {**self._describe(found), "recent": _recent(found)}
        return "application/json", json.dumps(state)

    def _trace(self) -> tuple[str, str]:
        return "application/json", json.dumps(timeline.events(self._look(), _TRACE_SECONDS))

    def _records(self, stacks: bool) -> tuple[str, str]:
        return "application/json", json.dumps(job.records(self._look(), stacks=stacks))

    def _metrics(self) -> tuple[str, str]:
        found = self._look()
        return "text/plain; version=0.0.4", metrics(found, self._describe(found))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)


def server(
    look: Look, describe: Describe, address: tuple[str, int], token: str
) -> ThreadingHTTPServer:
    """Ready to serve; an empty token asks for none."""
    return _Server(address, partial(_Handler, look, describe, token))


def serve(look: Look, describe: Describe, address: tuple[str, int], token: str | None) -> None:
    """Serves until it is interrupted. `token` None: a fresh one."""
    token = secrets.token_urlsafe(16) if token is None else token
    with server(look, describe, address, token) as running:
        host, port = running.server_address[:2]
        query = f"/?token={token}" if token else "/"
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        print(f"http://{shown}:{port}{query}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr, flush=True)
        running.serve_forever()
