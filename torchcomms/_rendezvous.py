"""How the processes of a communicator find each other: rank, size, and a store they share.

`resolve` reads what launchers leave in the environment. Which variables, in which order, stands in
`_LAUNCHERS`; where the store is, in `_open_store`.
"""

import atexit
import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from torchcomms import _local_port, _variables
from torchcomms._errors import CommError, CommTimeoutError, hinted
from torchcomms._slurm import first_host

_METHOD = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"
_PAUSE_SECONDS = 0.02
_OWN_NAME_SECONDS = 10.0
_SERVES_ELSEWHERE = "is the host this one, that of rank 0, and the port free?"
_MOST_RANKS = 1 << 20
_SPARE = timedelta(minutes=1)


@dataclass(frozen=True)
class _Launcher:
    """Something that starts processes, and the variables in which it numbers them."""

    name: str
    rank: str
    sizes: tuple[str, ...]
    #: A variable that is there when processes were started, and not merely could be.
    if_set: str = ""
    #: Whether `rank` without a size, or the reverse, is a mistake of the user.
    strict: bool = True


_TORCHCOMM = _Launcher("torchcomm", "TORCHCOMM_RANK", ("TORCHCOMM_SIZE",))
_OPEN_MPI = _Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",))
# Process managers give the rank their own way and leave the size to whom they work for.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PALS_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_PMI = _Launcher("PMI", "PMI_RANK", _SIZES, strict=False)
_PMIX = _Launcher("PMIx", "PMIX_RANK", _SIZES, strict=False)
_PALS = _Launcher("PALS", "PALS_RANKID", ("PALS_SIZE", *_SIZES), strict=False)
# An allocation alone has the size but no rank.
_SLURM = _Launcher("Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), strict=False)
_TORCHRUN = _Launcher("torchrun", "RANK", ("WORLD_SIZE",))
# What torchrun started inside a job of MPI or Slurm is numbered by torchrun.
_ELASTIC = _Launcher("torchrun", "RANK", ("WORLD_SIZE",), if_set="TORCHELASTIC_RUN_ID")

#: By the value of TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD, in the order of asking.
_LAUNCHERS: Mapping[str, tuple[_Launcher, ...]] = {
    "auto": (_TORCHCOMM, _ELASTIC, _OPEN_MPI, _PMI, _PMIX, _PALS, _SLURM, _TORCHRUN),
    "torchcomm": (_TORCHCOMM,),
    "torchrun": (_TORCHCOMM, _TORCHRUN),
    "mpi": (_TORCHCOMM, _OPEN_MPI, _PMI, _PMIX),
    "pals": (_TORCHCOMM, _PALS),
    "slurm": (_TORCHCOMM, _SLURM),
}


@dataclass(frozen=True)
class Place:
    """Where a process stands, and who said so."""

    rank: int
    size: int
    launcher: str


def resolve(name: str, store: Store | None, timeout: timedelta) -> tuple[int, int, Store | None]:
    """The rank of this process, the number of ranks, and a store for communicator `name`.

    Without `store` the processes find each other through MASTER_ADDR and MASTER_PORT, which
    torchrun sets; under Slurm without those through the first node of the job; under an MPI
    without those, on one host, through the process that launched them. The connection is kept:
    communicators of a process share it. What is returned is prefixed by `name`, so that
    communicators of different names do not meet; making several of one name, one after another, is
    up to the backends, which use a fresh prefix for each.

    One process with nothing in its environment is a world of one rank and needs no store.

    Args:
        name: the name of the communicator, the same on every rank.
        store: any store of torch that all ranks share, or None.
        timeout: of connecting to the store, and the store's own.

    Raises:
        CommError: the environment says nothing, too little, or what makes no sense.
    """
    env = _variables.environment()
    place = _find_place(env)
    if place is None:
        if store is not None:
            raise hinted(
                CommError,
                "A store was given, but not the place of this process among those that share it",
                hint=f"set TORCHCOMM_RANK and TORCHCOMM_SIZE; {_looked_for(env)}",
            )
        if _method(env) != "auto" or "MASTER_ADDR" in env:
            raise hinted(
                CommError,
                "Unable to determine rank and size from environment variables",
                hint=f"set TORCHCOMM_RANK and TORCHCOMM_SIZE; {_looked_for(env)}",
            )
        return 0, 1, None
    if store is None:
        if place.size == 1:
            return 0, 1, None
        store = _open_store(place, env, timeout)
    return place.rank, place.size, PrefixStore(f"torchcomms/{name}", store)


def _named(place: Place) -> str:
    return f"Rank {place.rank} of {place.size} (says {place.launcher})"


def _method(env: Mapping[str, str]) -> str:
    method = (env.get(_METHOD) or "auto").lower()
    if method not in _LAUNCHERS:
        raise CommError(f"{_METHOD} must be one of {', '.join(_LAUNCHERS)}, but is '{method}'")
    return method


def _looked_for(env: Mapping[str, str]) -> str:
    launchers = {launcher.rank: launcher for launcher in _LAUNCHERS[_method(env)]}.values()
    tried = ", ".join(f"{one.rank} and {' or '.join(one.sizes)}" for one in launchers)
    return f"looked for: {tried}"


def _find_place(env: Mapping[str, str]) -> Place | None:
    for launcher in _LAUNCHERS[_method(env)]:
        if launcher.if_set and launcher.if_set not in env:
            continue
        size_variable = next((one for one in launcher.sizes if one in env), None)
        if launcher.rank in env and size_variable is not None:
            return _checked(launcher, size_variable, env)
        if launcher.strict and (launcher.rank in env or size_variable is not None):
            there, missing = launcher.rank, launcher.sizes[0]
            if launcher.rank not in env:
                there, missing = missing, there
            raise hinted(
                CommError, f"{there} is set, but {missing} is not", hint=f"set {missing} as well"
            )
    return None


def _checked(launcher: _Launcher, size_variable: str, env: Mapping[str, str]) -> Place:
    rank = _number(launcher.rank, env)
    size = _number(size_variable, env)
    if not 1 <= size <= _MOST_RANKS:
        bound = "at least 1" if size < 1 else f"at most {_MOST_RANKS}"
        raise CommError(f"{size_variable} must be {bound}, but is {size}")
    if not 0 <= rank < size:
        raise hinted(
            CommError,
            f"{launcher.rank} must be in range [0, {size}), but is {rank}",
            hint=f"{size_variable} is {size}",
        )
    return Place(rank, size, launcher.name)


def _number(variable: str, env: Mapping[str, str]) -> int:
    text = env[variable]
    if not (text.isascii() and text.removeprefix("-").isdecimal()):
        raise CommError(f"{variable} must be a number, but is '{text}'")
    return int(text)


def _port(variable: str, env: Mapping[str, str]) -> int:
    port = _number(variable, env)
    if not 0 < port < 1 << 16:
        raise CommError(f"{variable} must be in range [1, 65536), but is {port}")
    return port


def _open_store(place: Place, env: Mapping[str, str], timeout: timedelta) -> Store:
    """The store of the world, where the environment says it is."""
    address, port = env.get("MASTER_ADDR") or None, env.get("MASTER_PORT") or None
    if (address is None) != (port is None):
        there, missing = "MASTER_ADDR", "MASTER_PORT"
        if address is None:
            there, missing = missing, there
        raise hinted(
            CommError, f"{there} is set, but {missing} is not", hint=f"set {missing} as well"
        )
    if address is not None:
        # torchrun's agent has the port, and outlives the workers it restarts: they keep apart by
        # their number of the attempt.
        agent = env.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
        prefix = f"attempt_{env.get('TORCHELASTIC_RESTART_COUNT', '0')}" if agent else ""
        serves = place.rank == 0 and not agent
        return _tcp_store(address, _port("MASTER_PORT", env), serves, prefix, timeout)
    if _started_by_srun(place, env):
        return _tcp_store(first_host(env), _slurm_port(env), place.rank == 0, "", timeout)
    if place.launcher in (_OPEN_MPI.name, _PMI.name, _PMIX.name) and _on_one_host(place, env):
        return _store_beside(place, timeout)
    raise hinted(
        CommError,
        f"{_named(place)} does not know where to find the others",
        hint="set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there, the same "
        "for every process",
    )


def _started_by_srun(place: Place, env: Mapping[str, str]) -> bool:
    """Also where srun speaks PMI with its processes; not where it only started those of an MPI."""
    if place.launcher in (_PMI.name, _PMIX.name):
        return env.get("SLURM_STEP_NUM_TASKS") == str(place.size)
    return place.launcher == _SLURM.name


def _slurm_port(env: Mapping[str, str]) -> int:
    """Agreed without talking: from the numbers of job and step; below where ports are lent."""
    if "SLURM_JOB_ID" not in env:
        raise hinted(
            CommError,
            "SLURM_PROCID is set, but SLURM_JOB_ID is not",
            hint="set MASTER_ADDR and MASTER_PORT",
        )
    job = _number("SLURM_JOB_ID", env)
    # Special steps (batch, external) have huge numbers; only that steps differ matters here.
    step = _number("SLURM_STEP_ID", env) if "SLURM_STEP_ID" in env else 0
    return 20000 + (job * 31 + step) % 10000


def _on_one_host(place: Place, env: Mapping[str, str]) -> bool:
    return any(
        env.get(variable) == str(place.size)
        for variable in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
    )


# Stores that are open, by address. They stay open: what one rank no longer needs,
# another may be about to ask of it.
_open: dict[str, Store] = {}
_lock = threading.Lock()


def _begin_as_a_child() -> None:
    """Keeps the parent's stores for ever: one that serves joins its thread when it is destroyed.

    The child has no such thread, or another one of that number, which never ends.
    """
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    for store in _open.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))
    _open.clear()


os.register_at_fork(after_in_child=_begin_as_a_child)


def _shared(address: str, connect: Callable[[], Store]) -> Store:
    with _lock:
        if address not in _open:
            _open[address] = connect()
        return _open[address]


def _tcp_store(host: str, port: int, serves: bool, prefix: str, timeout: timedelta) -> Store:
    def connect() -> Store:
        deadline = time.monotonic() + timeout.total_seconds()
        if serves:
            _wait_for_own_name(host, port, timeout)
        else:
            _wait_for_server(host, port, timeout, deadline)
        try:
            return _construct(host, port, serves, timeout, deadline)
        except CommTimeoutError:
            raise
        except Exception as error:
            raise hinted(
                CommError,
                f"Could not {'serve' if serves else 'reach'} the store at {host}:{port}: {error}",
                hint=_SERVES_ELSEWHERE if serves else "is it a TCPStore?",
            ) from error

    store = _shared(f"{host}:{port}", connect)
    return PrefixStore(prefix, store) if prefix else store


def _construct(host: str, port: int, serves: bool, timeout: timedelta, deadline: float) -> TCPStore:
    """The constructor waits for the server's answer without a deadline, and deaf to Ctrl-C.

    So a thread runs it, which is left behind when the answer does not come. Its own timeout is
    longer: a thread that returns to Python while the interpreter ends would abort the process.
    """
    made: Future[TCPStore] = Future()

    def run() -> None:
        try:
            # Several tenants: torch.distributed may serve from the same port of this process.
            store = TCPStore(
                host,
                port,
                is_master=serves,
                timeout=timeout + _SPARE,
                wait_for_workers=False,
                multi_tenant=serves,
            )
            store.set_timeout(timeout)
        except Exception as error:
            made.set_exception(error)
        else:
            made.set_result(store)

    threading.Thread(target=run, name="TCPStore", daemon=True).start()
    if not wait([made], max(0.0, deadline - time.monotonic())).done:
        if serves:
            raise hinted(
                CommTimeoutError,
                f"Could not serve the store at {host}:{port}: this rank did not reach itself there "
                f"for {timeout}",
                ranks=[0],
                hint=_SERVES_ELSEWHERE,
            )
        _wait_for_server(host, port, timeout, deadline)  # raises if it has gone
        raise hinted(
            CommTimeoutError,
            f"Something listens at {host}:{port}, but does not answer as a TCPStore: waited for "
            f"{timeout}",
            ranks=[0],
            hint="does another service use this port, or is rank 0 stopped? See MASTER_PORT",
        )
    return made.result()


def _wait_for_own_name(host: str, port: int, timeout: timedelta) -> None:
    """Until the name resolves: a container's own may take a moment. (TCPStore waits to the end.)"""
    deadline = time.monotonic() + min(timeout.total_seconds(), _OWN_NAME_SECONDS)
    while True:
        try:
            socket.getaddrinfo(host, port)
            return
        except UnicodeError as error:  # "a..b"
            raise _unresolved(host, error) from error
        except OSError as error:
            if time.monotonic() >= deadline:
                raise _unresolved(host, error) from error
        time.sleep(_PAUSE_SECONDS)


def _unresolved(host: str, error: Exception) -> CommError:
    return hinted(
        CommError,
        f"The host name {host!r} does not resolve: {error}",
        hint="MASTER_ADDR has to be a name or an address of the host of rank 0",
    )


def _wait_for_server(host: str, port: int, timeout: timedelta, deadline: float) -> None:
    """Until somebody listens there. (TCPStore waits as well, but deaf to Ctrl-C.)"""
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except UnicodeError as error:
            raise _unresolved(host, error) from error
        except OSError as error:
            if time.monotonic() >= deadline and isinstance(error, socket.gaierror):
                raise _unresolved(host, error) from error
            if time.monotonic() >= deadline:
                raise hinted(
                    CommTimeoutError,
                    f"Nobody serves the store at {host}:{port} after {timeout}: {error}",
                    ranks=[0],
                    hint="has rank 0 been started, with the same MASTER_ADDR and MASTER_PORT?",
                ) from error
        time.sleep(_PAUSE_SECONDS)


def _store_beside(place: Place, timeout: timedelta) -> Store:
    """A store that rank 0 serves at a port of its choice, which the others learn from a file."""
    notice = _local_port.Notice.of_launcher()
    if notice is None:
        raise hinted(
            CommError,
            f"{_named(place)} does not know where to find the others: none of its parents is a "
            "launcher of MPI that we know",
            hint="set MASTER_ADDR=127.0.0.1 and MASTER_PORT to a free port",
        )

    def serve() -> Store:
        store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timeout, wait_for_workers=False)
        notice.publish(store.port)
        atexit.register(notice.remove)
        return store

    def join() -> Store:
        deadline = time.monotonic() + timeout.total_seconds()
        return _construct("127.0.0.1", notice.wait(timeout), False, timeout, deadline)

    return _shared(str(notice.path), serve if place.rank == 0 else join)
