"""Where recordings are from: processes of this host, files, and other hosts over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

from torchcomms.cli.records import clocks, job

_SECONDS = 10.0  # for an answer
_MOST_BYTES = 1 << 30  # of one
# Other hosts of a job are near: what proxies there are is for the rest of the world.
_OPENER = build_opener(ProxyHandler({}))


def find(names: Sequence[str], *, stacks: bool = False) -> list[job.Communicator]:
    """The communicators of a process, of files, and of what `torchcomms analyze --serve` serves on
    other hosts, put together; without names those of the only job of this user on this host.
    `stacks`: those also say where ranks are in Python.

    Raises:
        NotFoundError: there is no such job or file, a server does not answer, or, without names,
            there are several jobs.
    """
    urls = [name for name in names if _is_url(name)]
    found: list[tuple[str, Any]] = []
    for name in names:
        if name.isdecimal():
            found.append((name, job.described(job.live(int(name)))))
        elif not _is_url(name):
            found.append((name, _read(Path(name))))
    if not names:
        communicators = job.live()
    elif len(names) == 1 and names[0].isdecimal():
        communicators = job.live(int(names[0]))
    else:
        communicators = job.merged(
            [*found, *zip(map(_shown, urls), _fetched(urls, stacks), strict=True)]
        )
    clocks.align(communicators)
    return communicators


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
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def _fetched(urls: Sequence[str], stacks: bool) -> Iterable[Any]:
    if not urls:
        return []
    with ThreadPoolExecutor(len(urls)) as pool:
        return list(pool.map(_fetch, urls, repeat(stacks)))


def _fetch(url: str, stacks: bool) -> Any:
    """What a server has recorded; `url` is the address of its page."""
    parts = urlsplit(url)
    token = parse_qs(parts.query).get("token", [""])[0]
    address = urlunsplit(
        (parts.scheme, parts.netloc, "/api/records", "stacks=1" if stacks else "", "")
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with _OPENER.open(Request(address, headers=headers), timeout=_SECONDS) as answer:
            text = answer.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        return json.loads(text)
    except HTTPError as error:
        why = error.read(1000).decode(errors="replace").strip()
    except URLError as error:
        why = str(error.reason)
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        why = str(error)
    raise job.NotFoundError(f"{_shown(url)}: {why or 'there is no answer'}") from None
