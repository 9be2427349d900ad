"""The programs of the documents that this library was asked for by, as printed.

They are in seeds/, to the letter; what stands in them for a machine with GPUs is replaced here.
Not here: what needs a GPU (CUDA graphs).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import Rank, Ranks
from harness.ports import free_port
from harness.programs import torchrun

import torchcomms

SEEDS = Path(__file__).parent / "seeds"
MakeRanks = Callable[[int], Ranks]

BACKENDS = ("ctran", "gloo")
DEVICES = {
    'torch.device("cuda")': 'torch.device("cpu")',
    'torch.device("cuda:0")': 'torch.device("cpu")',
    'torch.device(f"cuda:{device_id}")': 'torch.device("cpu")',
    'device="cuda"': 'device="cpu"',
    "torch.cuda.device_count()": "torch.cpu.device_count()",
    "torch.cuda.current_stream().synchronize()": "torch.cpu.synchronize()",
}
# There is no torch.timedelta.
ERRATA = {"torch.timedelta(": "torchcomms.Timeout("}


def printed(name: str, backend: str, folder: Path) -> str:
    """A program, with the names of this machine."""
    source = (SEEDS / f"{name}.py").read_text()
    places = {
        "/tmp/torchcomm_test": str(folder / f"store-{name}"),
        "master.node.com": "127.0.0.1",
        "port=12345": f"port={free_port()}",
        "world_size=8": "world_size=2",
    }
    backends = {f'"{vendor}"': f'"{backend}"' for vendor in ("nccl", "ncclx")}
    for old, new in (DEVICES | ERRATA | places | backends).items():
        source = source.replace(old, new)
    return source


# What stands before a program where the document leaves that to the reader.
_DEVICE = 'import os, torch; device = torch.device("cpu"); rank = int(os.environ["RANK"])\n'
BEFORE = {
    "features_options": _DEVICE + "from torchcomms import new_comm\n",
    "features_tcp_store": _DEVICE,
    "features_file_store": _DEVICE,
}
# After it: whether it did what the document says.
AFTER = {
    "readme_synchronous": "",
    "readme_asynchronous": "assert (tensor == 3.0).all()",
    "api_basic_usage": "assert (tensor == 1.0).all()",
    "api_asynchronous": "assert rank == 0 or (recv_tensor == 0.0).all()",
    "api_custom_options": "",
    "features_all_reduce": "assert (tensor == 2.0).all()",
    "features_verify_installation": "assert comm.get_size() == 2",
    "features_select_backend": "assert comm.get_name() == 'my_comm'; comm.finalize()",
    "features_options": "assert comm.get_options().hints == {'key': 'value'}; comm.finalize()",
    "features_tcp_store": "assert comm.get_size() == 2; comm.finalize()",
    "features_file_store": "assert comm.get_size() == 2; comm.finalize()",
}
RUNNER = """
import contextlib, os, runpy
from pathlib import Path
rank = os.environ["RANK"]
for file in sorted(Path({folder!r}).glob("*/*.py")):
    if rank == "0":
        print("running", file, flush=True)
    with open(f"{{file}}.{{rank}}", "w") as out, contextlib.redirect_stdout(out):
        runpy.run_path(str(file), run_name="__main__")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each backend with what the two ranks of each program print: PROGRAM.py.RANK.

    One runs after another in the same processes, as starting those takes seconds.
    """
    folder = tmp_path_factory.mktemp("programs")
    for backend in BACKENDS:
        (folder / backend).mkdir()
        for name, after in AFTER.items():
            program = BEFORE.get(name, "") + printed(name, backend, folder / backend)
            (folder / backend / f"{name}.py").write_text(program + "\n" + after)
    runner = folder / "runner.py"
    runner.write_text(RUNNER.format(folder=str(folder)))
    ended = torchrun(runner, 2, folder)
    assert ended.code == 0, ended.out + ended.err
    return folder


@pytest.mark.parametrize("backend", BACKENDS)
def test_quick_start(said: Path, backend: str) -> None:
    for rank in range(2):
        out = (said / backend / f"readme_synchronous.py.{rank}").read_text()
        assert f"Rank {rank}/2: Running on device 0" in out
        assert f"Rank {rank}: Before AllReduce: {rank + 1.0}" in out
        assert f"Rank {rank}: After AllReduce: 3.0" in out


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs(said: Path, backend: str) -> None:
    out = "".join(file.read_text() for file in (said / backend).glob("*.py.[01]"))
    assert out.count("AllReduce completed") == 2
    assert f"TorchComm version: {torchcomms.__version__}" in out
    made = "ncclx" if torch.cuda.is_available() else "gloo"  # the document's own choice
    assert out.count(f"Successfully created {made} communicator") == 2


# The size of the world, and what holds afterwards.
FRAGMENTS = {
    "features_all_gather": (
        2,
        "assert all((t == 1).all() for t in [*tensor_list, output])",
    ),
    "features_all_to_all": (
        4,
        "assert torch.equal(output_tensor, (rank * 1024 + torch.arange(1024)).repeat(4))",
    ),
    "features_send_recv": (2, "assert (tensor == 1).all()"),
    "features_blocking": (2, "assert (tensor == 2).all()"),
    "features_non_blocking": (2, "assert (tensor == 2).all()"),
    "features_several_works": (
        3,
        "assert (tensor1 == 6).all() and (tensor2 == 2).all()\n"
        "assert [t[0].item() for t in output_list] == [3, 4, 5]",
    ),
    "features_split": (8, "assert sub_comm.get_size() == 4 and (tensor == 4).all()"),
    "features_hints": (2, "assert (tensor == 2).all()"),
    "features_timeout": (2, "assert (tensor == 2).all()"),
    "features_reduce_ops": (1, ""),
    "features_properties": (2, "assert (size, options.name) == (2, name)"),
}
# The sizes that this part passes fit no two ranks.
LEFT_OUT = "# Variable-sized all-to-all"


def runs_fragment(rank: Rank, source: str, backend: str, after: str) -> None:
    """With the names that the document has introduced before."""
    names: dict[str, Any] = {
        "torch": torch,
        "ReduceOp": torchcomms.ReduceOp,
        "comm": rank.new_comm(backend, "fragment"),
        "rank": rank.rank,
        "tensor": torch.ones(4),
        "tensor1": torch.full((4,), 1.0 + rank.rank),
        "tensor2": torch.full((4,), 2.0 + rank.rank),
        "tensor3": torch.full((4,), 3.0 + rank.rank),
        "output_list": [torch.zeros(4) for _ in range(rank.size)],
        "compute": lambda: None,
        "compute_something_else": lambda: None,
        "factor": 0.5,
    }
    exec(source.partition(LEFT_OUT)[0] + "\n" + after, names)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragments(ranks: MakeRanks, tmp_path: Path, name: str, backend: str) -> None:
    world, after = FRAGMENTS[name]
    ranks(world).run(runs_fragment, printed(name, backend, tmp_path), backend, after)


def runs_batch(rank: Rank, source: str, backend: str) -> float:
    """Rank 0 runs the fragment, which sends to rank 1 and receives from rank 2."""
    comm = rank.comm(backend)
    tensor1, tensor2 = torch.full((4,), 5.0), torch.zeros(4)
    if rank.rank == 0:
        exec(source, {"comm": comm, "tensor1": tensor1, "tensor2": tensor2})
    elif rank.rank == 1:
        comm.recv(tensor2, 0, async_op=False)
    else:
        comm.send(tensor1 + 1, 0, async_op=False)
    return tensor2[0].item()


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch(ranks: MakeRanks, tmp_path: Path, backend: str) -> None:
    source = printed("features_batch", backend, tmp_path)
    assert ranks(3).run(runs_batch, source, backend) == [6.0, 5.0, 0.0]


def runs_window(rank: Rank, source: str) -> float:
    """The fragment waits for a signal of rank 0 that rank 0 itself never gets: rank 1 sends one."""
    names: dict[str, Any] = {
        "torch": torch,
        "SignalCmpOp": torchcomms.SignalCmpOp,
        "comm": rank.comm("ctran"),
        "my_tensor": torch.full((1024,), 5.0),
    }
    issue, wait, rest = source.partition("# Wait for signal")
    exec(issue, names)
    window = names["window"]
    if rank.rank == 1:
        window.signal(0, 1, 0, False)
    exec(wait + rest, names)
    assert (names["size"], names["device"]) == (1024 * 1024, torch.device("cpu"))
    written = window.get_tensor(1, [1024], torch.float32, 0)
    window.tensor_deregister()
    return float(written.sum())


def test_window(ranks: MakeRanks, tmp_path: Path) -> None:
    source = printed("features_window", "ctran", tmp_path)
    assert ranks(2).run(runs_window, source) == [5.0 * 1024] * 2
