"""Plug-in backends: libraries that the environment names, in C and in C++."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from harness import Rank, Ranks

import torchcomms
from torchcomms import ReduceOp

MakeRanks = Callable[[int], Ranks]
SIZE = 3
EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
INSTALLED = Path(torchcomms._comms.__file__).parent


def compile_library(source: Path, library: Path, *options: str | Path) -> str:
    compiler = "c++" if source.suffix == ".cpp" else "cc"
    command: list[str | Path] = [compiler, "-shared", "-fPIC", source, "-o", library]
    command += ["-I", INSTALLED / "include", "-lpthread", *options]
    subprocess.run(list(map(str, command)), check=True, timeout=280)
    return str(library)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plugins")


@pytest.fixture(scope="module")
def by_store(folder: Path) -> str:
    return compile_library(EXAMPLES / "by_store.c", folder / "libby_store.so", "-std=c11", "-Wall")


@pytest.fixture(scope="module")
def counting(folder: Path) -> str:
    place = Path(torch.__file__).parent
    lib = INSTALLED / "lib" / "libtorchcomms.so"
    return compile_library(
        EXAMPLES / "counting.cpp",
        folder / "libcounting.so",
        "-std=c++20",
        "-O0",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        "-isystem",
        place / "include",
        lib,
        f"-Wl,-rpath,{lib.parent}:{place / 'lib'}",
        *(place / "lib" / name for name in ("libtorch.so", "libtorch_cpu.so", "libc10.so")),
    )


def with_plugin(case: Callable[[Rank], None], rank: Rank, backend: str, path: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"TORCHCOMMS_BACKEND_LIB_PATH_{backend.upper()}", path)
        case(rank)


def uses_c(rank: Rank, path: str) -> None:
    with_plugin(_uses_c, rank, "by_store", path)


def _uses_c(rank: Rank) -> None:
    comm = rank.new_comm("by_store", "plugin", hints={"some": "hint"})
    assert comm.get_backend() == "by_store"
    assert comm.get_backend_version() == "1.0"
    value = torch.full((1000,), rank.rank + 1.0)
    comm.all_reduce(value, ReduceOp.SUM, False)
    assert torch.equal(value, torch.full((1000,), 6.0))
    work = comm.broadcast(value.mul_(rank.rank), 2, True)
    assert work.wait(timedelta(seconds=20))
    assert work.is_completed()
    assert torch.equal(value, torch.full((1000,), 12.0))
    output = torch.zeros(SIZE * 2, dtype=torch.int64)
    comm.all_gather_single(output, torch.tensor([rank.rank, 7]), False)
    assert output.tolist() == [0, 7, 1, 7, 2, 7]
    after, before = (rank.rank + 1) % SIZE, (rank.rank - 1) % SIZE
    box = torch.zeros(3)
    batch = comm.batch_op_create()
    batch.send(torch.full((3,), float(rank.rank)), after)
    batch.recv(box, before)
    batch.issue(False)
    assert box[0] == before
    comm.barrier(False)

    part = comm.split([2, 0] if rank.rank != 1 else [], "part")
    if part is not None:
        ones = torch.ones(1)
        part.all_reduce(ones, ReduceOp.SUM, False)
        assert ones.item() == 2
        part.finalize()

    with pytest.raises(torchcomms.CommError, match=r"all_reduce .* only sums of float32"):
        comm.all_reduce(torch.ones(1, dtype=torch.float64), ReduceOp.SUM, False)
    work = comm.recv(box, before, True, timeout=timedelta(milliseconds=50))
    with pytest.raises(torchcomms.CommTimeoutError, match=r"recv .*timed out"):
        work.wait()
    assert work.status == torchcomms.WorkStatus.TIMEDOUT
    comm.finalize()
    with pytest.raises(torchcomms.CommError, match="finalized"):
        comm.barrier(False)


def test_plugin_in_c(ranks: MakeRanks, by_store: str) -> None:
    ranks(SIZE).run(uses_c, by_store)


def polls(rank: Rank, path: str) -> None:
    with_plugin(_polls, rank, "by_store", path)


def _polls(rank: Rank) -> None:
    """A thread waits for each operation, for the records, while this one looks."""
    comm = rank.new_comm("by_store", "polls")
    value = torch.ones(4)
    for _ in range(100):
        work = comm.all_reduce(value.fill_(1), ReduceOp.SUM, True)
        while not work.is_completed():
            pass
        assert value[0] == rank.size
    comm.finalize()


def test_looking_at_works_does_not_hold_up_their_end(ranks: MakeRanks, by_store: str) -> None:
    ranks(2).run(polls, by_store)


def uses_cpp(rank: Rank, path: str) -> None:
    with_plugin(_uses_cpp, rank, "counting", path)


def _uses_cpp(rank: Rank) -> None:
    assert torchcomms.is_backend_built("counting")
    comm = rank.new_comm("counting", "plugin")
    assert comm.get_backend() == "counting"
    value = torch.ones(5)
    for _ in range(3):
        comm.all_reduce(value, ReduceOp.SUM, False)
    assert value[0] == SIZE**3
    assert comm.get_backend_version() == "3 operations"
    part = comm.split([0, 1] if rank.rank < 2 else [], "part")
    if part is not None:
        part.barrier(False)
        part.finalize()
    comm.finalize()


def test_plugin_in_cpp(ranks: MakeRanks, counting: str) -> None:
    ranks(SIZE).run(uses_cpp, counting)


ABI = "1.5"  # of the loader in C++

# A backend that cannot be used, and what is said of it.
UNUSABLE: dict[str, tuple[str, str]] = {
    "old": (
        "typedef struct { void *a, *b; const char* (*version)(void); } Loader;\n"
        'static const char* version(void) { return "0.9"; }\n'
        "Loader create_dynamic_loader_old(void) { Loader l = {0, 0, version}; return l; }\n",
        f"ABI version mismatch: {ABI} != 0.9",
    ),
    "voiceless": (
        "typedef struct { void *a, *b, *version; } Loader;\n"
        "Loader create_dynamic_loader_voiceless(void) { Loader l = {0}; return l; }\n",
        f"ABI version mismatch: {ABI} != none",
    ),
    "hollow": (
        "typedef struct { void *a, *b; const char* (*version)(void); } Loader;\n"
        f'static const char* version(void) {{ return "{ABI}"; }}\n'
        "Loader create_dynamic_loader_hollow(void) { Loader l = {0, 0, version}; return l; }\n",
        "its loader lacks new_comm or destroy_comm",
    ),
    "barren": (
        "typedef struct { void* (*a)(void); void (*b)(void*); const char* (*c)(void); } Loader;\n"
        "static void* make(void) { return 0; }\n"
        "static void end(void* made) { }\n"
        f'static const char* version(void) {{ return "{ABI}"; }}\n'
        "static Loader loader = {make, end, version};\n"
        "Loader create_dynamic_loader_barren(void) { return loader; }\n",
        "new_comm of the plug-in returned nothing",
    ),
    "newer": (
        "#include <comms/torchcomms/plugin.h>\n"
        "const torchcomms_plugin* torchcomms_plugin_newer(uint32_t host) {\n"
        "  static torchcomms_plugin p = {.size = sizeof p, .version = 2};\n"
        "  return &p;\n}\n",
        "ABI version mismatch: 1 != 2",
    ),
    "shy": (
        "#include <comms/torchcomms/plugin.h>\n"
        "const torchcomms_plugin* torchcomms_plugin_shy(uint32_t host) { return NULL; }\n",
        "does not serve version 1",
    ),
    "short": (
        "#include <comms/torchcomms/plugin.h>\n"
        "const torchcomms_plugin* torchcomms_plugin_short(uint32_t host) {\n"
        "  static torchcomms_plugin p = {.size = offsetof(torchcomms_plugin, wait),\n"
        "      .version = 1, .release = (void*)1, .wait = (void*)1};\n"
        "  return &p;\n}\n",
        "lacks one of create",
    ),
    "empty": ("int nothing;\n", "neither create_dynamic_loader_empty nor torchcomms_plugin_empty"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_used_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source, message = UNUSABLE[name]
    file = folder / f"{name}.c"
    file.write_text(source)
    library = compile_library(file, folder / f"lib{name}.so")
    monkeypatch.setenv(f"TORCHCOMMS_BACKEND_LIB_PATH_{name.upper()}", library)
    with pytest.raises(torchcomms.CommError, match=message):
        torchcomms.new_comm(name, torch.device("cpu"))


# Does what its hint "mode" says: nothing well.
FAULTY = """
#include <comms/torchcomms/plugin.h>
#include <stdio.h>
#include <string.h>
static char mode[32];
static int ended;
static torchcomms_comm* create(const torchcomms_comm_options* o, char* error, size_t n) {
  snprintf(mode, sizeof mode, "%s", o->hints[1]);
  if (strcmp(mode, "create") == 0) { snprintf(error, n, "no cable"); return NULL; }
  if (strcmp(mode, "silent") == 0) return NULL;
  return (torchcomms_comm*)mode;
}
static void destroy(torchcomms_comm* c) { }
static torchcomms_operation* start(torchcomms_comm* c, const torchcomms_call* call, char* error,
                                   size_t n) {
  if (strcmp(mode, "mute") == 0) return NULL;
  if (strcmp(mode, "long") == 0) { memset(error, 'x', n - 1); error[n - 1] = 0; return NULL; }
  return (torchcomms_operation*)&ended;
}
static int test(torchcomms_operation* o) {
  return strcmp(mode, "odd") == 0 ? 7 : TORCHCOMMS_FAILED;
}
static int wait(torchcomms_operation* o, int64_t deadline) { return test(o); }
static const char* why(torchcomms_operation* o) {
  return strcmp(mode, "broken") == 0 ? "it fell off" : NULL;
}
static void release(torchcomms_operation* o) { }
const torchcomms_plugin* torchcomms_plugin_faulty(uint32_t host) {
  static torchcomms_plugin p = {.size = sizeof p, .version = 1, .name = NULL,
    .create = create, .destroy = destroy, .start = start, .test = test, .wait = wait,
    .cancel = NULL, .error = why, .release = release};
  return &p;
}
"""


def test_what_a_plugin_gets_wrong_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder / "faulty.c"
    source.write_text(FAULTY)
    library = compile_library(source, folder / "libfaulty.so")
    monkeypatch.setenv("TORCHCOMMS_BACKEND_LIB_PATH_FAULTY", library)

    def make(mode: str) -> torchcomms.TorchComm:
        return torchcomms.new_comm("faulty", torch.device("cpu"), "x", hints={"mode": mode})

    with pytest.raises(torchcomms.CommError, match="cannot make communicator 'x': no cable"):
        make("create")
    with pytest.raises(torchcomms.CommError, match=r"cannot make .*: no reason given"):
        make("silent")
    tensor = torch.ones(2)
    for mode, message in {
        "mute": "all_reduce on backend 'faulty': no reason given",
        "long": "all_reduce on backend 'faulty': x{1000}",
        "broken": "all_reduce .*it fell off",
        "nameless": "all_reduce .*no reason given",
        "odd": "all_reduce",
    }.items():
        comm = make(mode)
        assert comm.get_backend_version() == "unknown"
        for async_op in (False, True):
            with pytest.raises(torchcomms.CommError, match=message):
                comm.all_reduce(tensor, ReduceOp.SUM, async_op).wait()
        for unsupported in (comm.new_window, comm.abort):
            with pytest.raises(torchcomms.CommError, match="not supported by backend faulty"):
                unsupported()
        comm.finalize()


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(torchcomms.CommError, match="TORCHCOMMS_BACKEND_LIB_PATH_NO_SUCH"):
        torchcomms.new_comm("no-such", torch.device("cpu"))
    monkeypatch.setenv("TORCHCOMMS_BACKEND_LIB_PATH_NO_SUCH", "/nowhere/lib.so")
    with pytest.raises(torchcomms.CommError, match=r"cannot load /nowhere/lib\.so"):
        torchcomms.new_comm("no-such", torch.device("cpu"))
