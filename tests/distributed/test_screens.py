"""What people look at: `torchcomms top` in a terminal, and the page in a browser."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from harness import Job, Rank, Ranks
from harness.failing import all_reduce, until

MakeRanks = Callable[[int], Ranks]
RANKS, ABSENT = 4, 2
HINT = "it is installed by `make test`, where that can be done"


def waits_for_one(rank: Rank, name: str) -> None:
    """Three calls, and a fourth that one rank does not make."""
    hints = {"ctran::host": f"host{rank.host(2)}"}
    comm = rank.new_comm("ctran", name, hints=hints, timeout=timedelta(minutes=10))
    for _ in range(3):
        all_reduce(comm, 1000)
    rank.say("ready")
    if rank.rank == ABSENT:
        rank.listen()
    all_reduce(comm, 1000)
    if rank.rank != ABSENT:
        rank.listen()
    comm.finalize()


@pytest.fixture
def job(fresh_ranks: MakeRanks) -> Iterator[Job]:
    started = fresh_ranks(RANKS).start(waits_for_one, "<b>world</b>")
    for rank in range(RANKS):
        assert started.hear(rank) == "ready"
    yield started
    for rank in range(RANKS):
        started.say(rank)
    started.results()


def _pid(job: Job) -> int:
    pid = job.ranks.processes[0].pid
    assert pid is not None
    return pid


class Terminal:
    """A command in a terminal of so many columns and lines."""

    def __init__(self, folder: Path, command: str) -> None:
        program = shutil.which("tmux")
        if program is None:
            pytest.skip(f"tmux is not there: {HINT}")
        self._tmux = [program, "-u", "-f", "/dev/null", "-S", str(folder / "tmux")]
        command = f"env -u COLUMNS -u LINES {command}; echo ended $?; cat"
        self._do("new-session", "-d", "-x", "120", "-y", "20", command)

    def _do(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    def screen(self) -> str:
        return self._do("capture-pane", "-p").rstrip()

    def press(self, key: str) -> None:
        self._do("send-keys", key)

    def close(self) -> None:
        self._do("kill-server")


SCREEN = """\
<b>world</b>: 4 of 4 ranks
 rank      pid     calls  ops/s      MB/s  waits  seconds   for  in
    0        #         5      #         #      #        #     #  all_reduce(sum, float32, 1000 elements)
    1        #         5      #         #      #        #     #  all_reduce(sum, float32, 1000 elements)
    2        #         4      #         #      #
    3        #         5      #         #      #        #     #  all_reduce(sum, float32, 1000 elements)
  ! rank 2 has not called all_reduce #4 (4000 B)"""  # noqa: E501


def _compared(screen: str) -> str:
    """Without what differs each time, the end of a verdict, and what goes after a minute."""
    lines: list[str] = []
    for line in screen.splitlines():
        if line.startswith("  slowest of the last minute: rank "):
            continue
        if lines and lines[-1].startswith("  !") and line.startswith("    "):
            continue  # the same verdict goes on
        cells = line.split(maxsplit=8)
        if len(cells) >= 6 and cells[0].isdecimal() and len(line) > 40:
            shown = f"{'#':>9}{cells[2]:>10}{'#':>7}{'#':>10}{'#':>7}"
            if len(cells) == 9:
                shown += f"{'#':>9}{'#':>6}  {cells[8]}"
            lines.append(f"{cells[0]:>5}{shown}".rstrip())
        else:
            lines.append(re.sub(r" \(rank.*", "", line.rstrip()))
    return "\n".join(lines)


def test_top_shows_a_terminal_who_waits_for_whom(job: Job, tmp_path: Path) -> None:
    command = f"{sys.executable} -m torchcomms top {_pid(job)} --interval 0.1 --after 0.1"
    terminal = Terminal(tmp_path, command)
    try:
        last = ""

        def shows_it() -> bool:
            nonlocal last
            last = _compared(terminal.screen())
            return last == SCREEN

        try:
            until(shows_it, "top's screen")
        except AssertionError:
            assert last == SCREEN
        terminal.press("C-c")
        until(lambda: "ended 0" in terminal.screen(), "top has ended")
        assert "Traceback" not in terminal.screen()
    finally:
        terminal.close()


class Page(HTMLParser):
    """The texts of a page by the tag around them, and its canvases."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.canvases: list[dict[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "canvas":
            self.canvases.append(dict(attrs))
        if tag not in ("meta", "link", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self.texts.setdefault(self._open[-1], []).append(data.strip())


def _browse(address: str, folder: Path, *arguments: str) -> str:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip(f"Chromium is not there: {HINT}")
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    # It asks nobody but the address: not for a proxy, nor for updates. /dev/shm may be full.
    command += ["--no-proxy-server", "--disable-background-networking", "--no-first-run"]
    command += ["--disable-component-update", "--disable-dev-shm-usage"]
    # Time stands still while it waits for an answer: as much passes as the page needs.
    command += ["--window-size=1000,1000", "--virtual-time-budget=2500"]
    for seconds in (60, 61, 120):  # on a busy machine it hangs now and then, before it has asked
        profile = f"--user-data-dir={folder / f'profile-{seconds}'}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                [*command, profile, *arguments, address],
                capture_output=True,
                text=True,
                check=True,
                timeout=seconds,
            ).stdout
    raise AssertionError("Chromium does not end")


@contextlib.contextmanager
def _served(job: Job) -> Iterator[str]:
    command = [sys.executable, "-m", "torchcomms", "analyze", str(_pid(job)), "--after", "0.1"]
    with subprocess.Popen([*command, "--serve"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def _colours(png: bytes) -> set[bytes]:
    """Of an image with 8 bits a sample, by scan line filters of PNG."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, kind = int.from_bytes(png[16:20]), int.from_bytes(png[20:24]), png[25]
    size = {2: 3, 6: 4}[kind]
    at, data = 8, b""
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    raw, stride = zlib.decompress(data), width * size + 1
    assert len(raw) == stride * height
    found, above = set(), bytearray(width * size)
    for y in range(height):
        how, line = raw[y * stride], bytearray(raw[y * stride + 1 : (y + 1) * stride])
        for x in range(len(line)):
            a = line[x - size] if x >= size else 0
            b, c = above[x], above[x - size] if x >= size else 0
            guess = min((a, b, c), key=lambda v, p=a + b - c: abs(p - v))  # type: ignore[misc]
            line[x] = (line[x] + (0, a, b, (a + b) // 2, guess)[how]) & 255
        found |= {bytes(line[x : x + 3]) for x in range(0, len(line), size)}
        above = line
    return found


def test_the_page_shows_a_browser_who_waits_for_whom(job: Job, tmp_path: Path) -> None:
    with _served(job) as address:
        page = Page(_browse(address, tmp_path, "--dump-dom"))
        assert page.texts["span"] == ["live", "stuck", "all_reduce"], "the last one of the legend"
        assert page.texts["h2"] == [
            "<b>world</b>, 4 ranks",
            "bytes from rank (row) to rank (column)",
            "last operations",
        ], "a name is a text, whatever it says"
        assert any("rank 2 has not called all_reduce #4" in text for text in page.texts["p"])
        cells = page.texts["td"]
        assert cells.count("all_reduce(sum, float32, 1000 elements)") == 3
        assert cells.count("alive") == RANKS
        assert any(cell.endswith(" tcp") for cell in cells)
        (canvas,) = page.canvases
        assert int(canvas["height"] or 0) == 18 * RANKS + 4

        picture = tmp_path / "page.png"

        def shows_the_time_line() -> bool:
            _browse(address, tmp_path, f"--screenshot={picture}")
            return any(max(c) - min(c) > 100 for c in _colours(picture.read_bytes()))

        until(shows_the_time_line, "a picture with colours")
