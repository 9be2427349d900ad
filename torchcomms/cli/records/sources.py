"""Where recordings are from: processes of this host, files, and other hosts over HTTP."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import repeat
from pathlib import Path
from threading import Event, Timer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torchcomms.cli.records import clocks, job, terminal

_SECONDS = 10.0  # for an answer
_MOST_BYTES = 1 << 30  # of one
_MOST_SHOWN = 1000  # bytes of one that says why there is none
_MOST_DIGITS = 10  # of a process id


Live = Callable[[int | None], list[job.Communicator]]


class Followed:
    """Jobs of this host that are looked at again and again.

    One is found again when the process that named it has ended, as the ranks that are left have its
    record, and when other jobs have started.
    """

    def __init__(self) -> None:
        self._processes: dict[int | None, list[int]] = {}

    def live(self, pid: int | None) -> list[job.Communicator]:
        """As `job.live`."""
        named = [] if pid is None else [pid]
        for known in dict.fromkeys([*named, *self._processes.get(pid, [])]):
            with suppress(job.NotFoundError):
                return self._kept(pid, job.live(known))
        return self._kept(pid, job.live(pid))

    def _kept(
        self, pid: int | None, communicators: list[job.Communicator]
    ) -> list[job.Communicator]:
        ranks = [rank for one in communicators for rank in one.ranks.values()]
        self._processes[pid] = [r["process"] for r in ranks if r["process"] is not None]
        return communicators


def find(
    names: Sequence[str], *, stacks: bool = False, live: Live = job.live
) -> list[job.Communicator]:
    """The communicators of a process, of files, and of what `torchcomms analyze --serve` serves on
    other hosts, put together; without names those of the only job of this user on this host.
    `stacks`: those also say where ranks are in Python. `live` reads those of a process.

    Raises:
        NotFoundError: there is no such job or file, a server does not answer, or, without names,
            there are several jobs.
    """
    urls = [name for name in names if _is_url(name)]
    found: list[dict[str, Any]] = []
    for name in names:
        if _is_pid(name):
            found.append(job.described(live(int(name))))
        elif not _is_url(name):
            found.append(job.received(name, _read(Path(name))))
    if not names:
        communicators = live(None)
    elif len(names) == 1 and _is_pid(names[0]):
        communicators = live(int(names[0]))
    else:
        fetched = map(job.received, map(_shown, urls), _fetched(urls, stacks))
        communicators = job.merged([*found, *fetched])
    clocks.align(communicators)
    return communicators


def _is_pid(name: str) -> bool:
    return name.isdecimal() and len(name) <= _MOST_DIGITS


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise job.NotFoundError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise job.NotFoundError(
            f"{path} is no recording of `torchcomms analyze --save`: {error}"
        ) from None


def _shown(url: str) -> str:
    """Without the token."""
    return re.split("[?#]", url)[0]


def _fetched(urls: Sequence[str], stacks: bool) -> Iterable[Any]:
    if not urls:
        return []
    with ThreadPoolExecutor(len(urls)) as pool:
        return list(pool.map(_fetch, urls, repeat(stacks)))


def _fetch(url: str, stacks: bool) -> Any:
    """What a server has recorded; `url` is the address of its page."""
    try:
        status, text = _answer(url, "/api/records?stacks=1" if stacks else "/api/records")
        if status == HTTPStatus.OK:
            return json.loads(text)
        why = text[:_MOST_SHOWN].decode(errors="replace").strip() or f"its answer is {status}"
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        why = str(error) or "there is no answer"
    raise job.NotFoundError(f"{_shown(url)}: {terminal.printable(why)}") from None


def _answer(url: str, target: str) -> tuple[int, bytes]:
    """The status and the content of what the server of a page says about something else.

    Other hosts of a job are near: what proxies there are is for the rest of the world.
    """
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("it names no host")
    token = parse_qs(parts.query).get("token", [""])[0]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    made = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    port = parts.port or made.default_port
    with closing(made(parts.hostname, port, timeout=_SECONDS)) as connection:
        connection.connect()
        with _cut_in_time(connection.sock):
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as answer:
                text = answer.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    return answer.status, text


@contextmanager
def _cut_in_time(connection: socket.socket) -> Iterator[None]:
    """Bounds the whole of an answer, where the timeout of a socket is for each piece of it."""
    is_late = Event()

    def cut() -> None:
        is_late.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = Timer(_SECONDS, cut)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if is_late.is_set():
            raise TimeoutError(f"no whole answer has come in {_SECONDS:g} s")
