"""What a process learns from its environment, for every launcher, and what is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from harness import programs
from harness.ports import free_port

from torchcomms import CommError, CommTimeoutError, _rendezvous
from torchcomms._local_port import Notice
from torchcomms._slurm import first_of

SECONDS = timedelta(seconds=30)
PREFIXES = ("TORCH", "OMPI_", "PMI", "PALS", "SLURM", "MPI_", "MASTER_")
METHOD = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIXES) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)


def put(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


def place(name: str = "x") -> tuple[int, int]:
    rank, size, _ = _rendezvous.resolve(name, dist.HashStore(), SECONDS)
    return rank, size


def test_nothing_is_a_world_of_one() -> None:
    assert _rendezvous.resolve("x", None, SECONDS) == (0, 1, None)


LAUNCHERS = {
    "torchcomm": {"TORCHCOMM_RANK": 1, "TORCHCOMM_SIZE": 3},
    "openmpi": {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 3},
    "pmi": {"PMI_RANK": 1, "PMI_SIZE": 3},
    "pmix": {"PMIX_RANK": 1, "PMI_SIZE": 3},
    "pmix of Slurm": {"PMIX_RANK": 1, "SLURM_PROCID": 1, "SLURM_STEP_NUM_TASKS": 3},
    "pals": {"PALS_RANKID": 1, "PMI_SIZE": 3},
    "slurm": {"SLURM_PROCID": 1, "SLURM_NTASKS": 3},
    "slurm step": {"SLURM_PROCID": 1, "SLURM_NTASKS": 8, "SLURM_STEP_NUM_TASKS": 3},
    "torchrun": {"RANK": 1, "WORLD_SIZE": 3},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers(monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    put(monkeypatch, **LAUNCHERS[launcher])
    assert place() == (1, 3)


def test_ours_come_first_and_torchrun_before_what_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, SLURM_PROCID=1, SLURM_NTASKS=2, RANK=5, WORLD_SIZE=8)
    assert place() == (1, 2)
    put(monkeypatch, TORCHELASTIC_RUN_ID="none")
    assert place() == (5, 8)
    put(monkeypatch, TORCHCOMM_RANK=3, TORCHCOMM_SIZE=4)
    assert place() == (3, 4)


@pytest.mark.parametrize(
    ("method", "want"),
    [
        ("auto", (1, 2)),
        ("", (1, 2)),
        ("torchrun", (5, 8)),
        ("mpi", (1, 2)),
        ("PALS", (3, 4)),
        ("slurm", (6, 7)),
    ],
)
def test_method(monkeypatch: pytest.MonkeyPatch, method: str, want: tuple[int, int]) -> None:
    put(monkeypatch, OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2, RANK=5, WORLD_SIZE=8)
    put(monkeypatch, PALS_RANKID=3, PALS_SIZE=4, SLURM_PROCID=6, SLURM_NTASKS=7)
    monkeypatch.setenv(METHOD, method)
    assert place() == want


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"RANK": 0}, "RANK is set, but WORLD_SIZE is not"),
        ({"WORLD_SIZE": 2}, "WORLD_SIZE is set, but RANK is not"),
        ({"TORCHCOMM_RANK": 0}, "TORCHCOMM_RANK is set, but TORCHCOMM_SIZE is not"),
        ({"OMPI_COMM_WORLD_SIZE": 2}, "OMPI_COMM_WORLD_SIZE is set, but OMPI_COMM_WORLD_RANK"),
        ({"RANK": 2, "WORLD_SIZE": 2}, r"RANK must be in range \[0, 2\), but is 2"),
        ({"RANK": -1, "WORLD_SIZE": 2}, r"RANK must be in range \[0, 2\), but is -1"),
        ({"RANK": 0, "WORLD_SIZE": 0}, "WORLD_SIZE must be at least 1, but is 0"),
        ({"RANK": 0, "WORLD_SIZE": 1 << 40}, "WORLD_SIZE must be at most 1048576, but is 10995"),
        ({"RANK": "one", "WORLD_SIZE": 2}, "RANK must be a number, but is 'one'"),
        ({"RANK": 0, "WORLD_SIZE": "2.0"}, "WORLD_SIZE must be a number, but is '2.0'"),
        ({"RANK": "", "WORLD_SIZE": 2}, "RANK must be a number, but is ''"),
        ({METHOD: "guess"}, f"{METHOD} must be one of auto, .*, but is 'guess'"),
        ({METHOD: "mpi", "RANK": 0, "WORLD_SIZE": 2}, "Unable to determine rank and size"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": 1}, "Unable to determine rank and size"),
        ({"RANK": 0, "WORLD_SIZE": 2}, "does not know where to find the others"),
        ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "h"}, "MASTER_ADDR is set, but MASTER_PORT"),
        ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": 1}, "MASTER_PORT is set, but MASTER_ADDR"),
        (
            {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "", "MASTER_PORT": 1},
            "MASTER_PORT is set, but MASTER_ADDR is not",
        ),
        (
            {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "h", "MASTER_PORT": ""},
            "MASTER_ADDR is set, but MASTER_PORT is not",
        ),
        (
            {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "h", "MASTER_PORT": 70000},
            r"MASTER_PORT must be in range \[1, 65536\), but is 70000",
        ),
        ({"SLURM_PROCID": 0, "SLURM_NTASKS": 2}, "none of SLURM_STEP_NODELIST, .* is"),
        (
            {"SLURM_PROCID": 0, "SLURM_NTASKS": 2, "SLURM_JOB_NODELIST": "a[x", "SLURM_JOB_ID": 1},
            r"SLURM_JOB_NODELIST is 'a\[x'",
        ),
    ],
)
def test_mistakes_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, object], text: str
) -> None:
    put(monkeypatch, **variables)
    with pytest.raises(CommError, match=text):
        _rendezvous.resolve("x", None, SECONDS)


def test_store_without_place_names_the_variables() -> None:
    with pytest.raises(CommError, match=r"TORCHCOMM_RANK and TORCHCOMM_SIZE.*SLURM_PROCID"):
        _rendezvous.resolve("x", dist.HashStore(), SECONDS)


def test_store_of_the_user_is_prefixed_by_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(monkeypatch, TORCHCOMM_RANK=0, TORCHCOMM_SIZE=2)
    for store in (
        dist.HashStore(),
        dist.FileStore(str(tmp_path / "store"), 2),
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
        dist.PrefixStore("mine", dist.HashStore()),
    ):
        one, other = (_rendezvous.resolve(name, store, SECONDS)[2] for name in ("a", "b"))
        assert one is not None
        assert other is not None
        one.set("key", "of a")
        other.set("key", "of b")
        assert one.get("key") == b"of a"
        assert store.get("torchcomms/b/key") == b"of b"


def test_rank_0_hosts_and_communicators_share_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    put(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    _, _, one = _rendezvous.resolve("one", None, SECONDS)
    _, _, two = _rendezvous.resolve("two", None, SECONDS)  # the port is taken: by ourselves
    assert one is not None
    assert two is not None
    two.set("key", "value")
    client = dist.TCPStore("127.0.0.1", port, is_master=False)
    assert client.get("torchcomms/two/key") == b"value"
    # torch.distributed's own rendezvous may use the same port in the same process.
    dist.TCPStore("127.0.0.1", port, is_master=True, multi_tenant=True, wait_for_workers=False)


FORKS = """
import faulthandler, os, sys
from datetime import timedelta
from torchcomms import _rendezvous
_rendezvous.resolve("parent", None, timedelta(seconds=60))
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
faulthandler.dump_traceback_later(50)
os.environ["MASTER_PORT"] = sys.argv[1]
_rendezvous.resolve("child", None, timedelta(seconds=60))
"""


def test_a_forked_child_may_host_and_end(tmp_path: Path) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, "-c", FORKS, str(free_port())]
    program = programs.start(command, tmp_path, {**place, "MASTER_PORT": str(free_port())})
    ended = programs.finish(program, guard=120)
    assert (ended.code, ended.err) == (0, "")


def test_agent_of_torchrun_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    put(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=agent.port)
    put(monkeypatch, TORCHELASTIC_USE_AGENT_STORE="True")
    for attempt in (0, 1):
        put(monkeypatch, TORCHELASTIC_RESTART_COUNT=attempt)
        _, _, store = _rendezvous.resolve("x", None, SECONDS)
        assert store is not None
        store.set("key", str(attempt))
    assert agent.get("attempt_0/torchcomms/x/key") == b"0"
    assert agent.get("attempt_1/torchcomms/x/key") == b"1"


def test_nobody_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    with pytest.raises(CommTimeoutError, match="Nobody serves the store") as raised:
        _rendezvous.resolve("x", None, timedelta(milliseconds=100))
    assert raised.value.ranks == [0]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("host", ["no such host", "no..host"])
def test_the_host_of_rank_0_does_not_resolve(
    monkeypatch: pytest.MonkeyPatch, rank: int, host: str
) -> None:
    put(monkeypatch, RANK=rank, WORLD_SIZE=2, MASTER_ADDR=host, MASTER_PORT=free_port())
    with pytest.raises(CommError, match=f"host name '{host}' does not resolve.*\n.*MASTER_ADDR"):
        _rendezvous.resolve("x", None, timedelta(milliseconds=100))


def test_the_address_is_of_another_host_than_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    nobodys = "192.0.2.1"  # RFC 5737
    put(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_ADDR=nobodys, MASTER_PORT=free_port())
    with pytest.raises(CommError, match=r"(?s)Could not serve the store at 192.*host this one"):
        _rendezvous.resolve("x", None, timedelta(milliseconds=300))


# Ends with the error that the store cannot be reached, and takes two seconds to end.
REACHES_NOBODY = """
import time
from datetime import timedelta
from torchcomms import _rendezvous

class End:
    def __del__(self, sleep=time.sleep):
        sleep(2)

end = End()
_rendezvous.resolve("x", None, timedelta(seconds=1))
"""


def test_a_program_ends_with_the_error_that_it_got(tmp_path: Path) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1"}
    command = [sys.executable, "-c", REACHES_NOBODY]
    ended = programs.finish(
        programs.start(command, tmp_path, {**place, "MASTER_PORT": str(free_port())})
    )
    assert ended.code == 1
    assert "CommTimeoutError: Could not serve the store" in ended.err


def test_something_else_listens_and_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        put(monkeypatch, RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        with pytest.raises(CommTimeoutError, match=f"listens at 127.0.0.1:{port}, but") as raised:
            _rendezvous.resolve("x", None, timedelta(milliseconds=300))
    assert raised.value.ranks == [0]


def test_rank_0_ends_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        listener.settimeout(SECONDS.total_seconds())
        port = listener.getsockname()[1]

        def end_when_asked() -> None:
            probe, _ = listener.accept()
            probe.close()
            asks, _ = listener.accept()
            listener.close()
            asks.close()

        ended = thread.submit(end_when_asked)
        put(monkeypatch, RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        with pytest.raises(CommTimeoutError, match="Nobody serves the store") as raised:
            _rendezvous.resolve("x", None, timedelta(seconds=2))
        ended.result()
    assert raised.value.ranks == [0]


# Is interrupted when it waits for the answer of a listener that says nothing.
INTERRUPTED = """
import os, signal, socket, threading
from datetime import timedelta
from torchcomms import _rendezvous
listener = socket.create_server(("127.0.0.1", 0))
os.environ.update(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(listener.getsockname()[1]))
def interrupt():
    probe, _ = listener.accept()
    store, _ = listener.accept()
    store.recv(1, socket.MSG_PEEK)  # it has asked, and waits
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
threading.Thread(target=interrupt, daemon=True).start()
try:
    _rendezvous.resolve("x", None, timedelta(seconds=600))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_interrupt_ends_the_wait_for_a_silent_listener() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], timeout=60, check=True, stdout=subprocess.PIPE
    )
    assert done.stdout == b"interrupted\n"


def test_slurm_meets_at_its_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, SLURM_PROCID=0, SLURM_NTASKS=2, SLURM_JOB_ID=4242, SLURM_STEP_ID=1)
    put(monkeypatch, SLURM_JOB_NODELIST="other[1-2]", SLURM_STEP_NODELIST="localhost,other1")
    _, _, store = _rendezvous.resolve("x", None, SECONDS)
    assert store is not None
    store.set("key", "value")
    port = 20000 + (4242 * 31 + 1) % 10000
    assert dist.TCPStore("localhost", port, is_master=False).get("torchcomms/x/key") == b"value"


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[3,5-7]", "node3"),
        ("node[08-11],other", "node08"),
        ("a[1-2]b[007,9]-ib,c", "a1b007-ib"),
        ("cluster-gpu[12-13]", "cluster-gpu12"),
    ],
)
def test_node_lists(hosts: str, first: str) -> None:
    assert first_of(hosts) == first


@pytest.mark.parametrize("hosts", ["", ",a", "a[", "a[]", "a[x]", "a]1", "a[1-2"])
def test_what_is_no_node_list(hosts: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        first_of(hosts)


# A launcher stands among the parents: a process of such a name, that starts the ranks.
LAUNCHER = """
import os, pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text("mpirun")
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1], str(r)],
                          env=os.environ | {"OMPI_COMM_WORLD_RANK": str(r),
                                            "OMPI_COMM_WORLD_SIZE": "2",
                                            "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
         for r in range(2)]
sys.exit(max(process.wait() for process in ranks))
"""
RANK = """
import sys
from datetime import timedelta
from torchcomms import _rendezvous
rank, size, store = _rendezvous.resolve("x", None, timedelta(seconds=60))
assert (rank, size) == (int(sys.argv[1]), 2)
store.set(f"from{rank}", "")
store.wait([f"from{1 - rank}"])
# Rank 0 serves: it stays until the other has all it asked for.
if rank == 0:
    store.wait(["done"])
else:
    store.set("done", "")
"""


def test_mpi_on_one_host_needs_no_address(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", LAUNCHER, textwrap.dedent(RANK)]
    subprocess.run(command, env=environment, check=True, timeout=120)
    (directory,) = tmp_path.iterdir()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert list(directory.iterdir()) == []  # rank 0 has cleaned up


def test_mpi_without_a_launcher_we_know(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_LOCAL_SIZE=2)
    monkeypatch.setattr(_rendezvous._local_port.Notice, "of_launcher", staticmethod(lambda: None))
    with pytest.raises(CommError, match="none of its parents is a launcher"):
        _rendezvous.resolve("x", None, SECONDS)


def test_mpi_on_several_hosts_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_LOCAL_SIZE=2)
    with pytest.raises(CommError, match="set MASTER_ADDR"):
        _rendezvous.resolve("x", None, SECONDS)


def test_notice_of_a_dead_process_does_not_count(tmp_path: Path) -> None:
    notice = Notice(tmp_path / "notice.json")
    notice.publish(1234)
    assert notice.wait(timedelta(0)) == 1234
    text = notice.path.read_text()
    notice.path.write_text(text.replace('"started": "', '"started": "9'))
    with pytest.raises(CommTimeoutError):
        notice.wait(timedelta(0))
    notice.remove()
    assert not notice.path.exists()


def test_directory_that_others_can_enter_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"torchcomms-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(CommError, match="mode 0700"):
        _rendezvous._local_port._private_directory()
