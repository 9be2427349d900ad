"""Whole programs: how torch.distributed finds the backends, from the first import to the end."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch.distributed as dist
from harness.programs import Program, run_ranks

HAS_HOOKS = importlib.util.find_spec("torchcomms.hooks") is not None

START = """
import sys
rank, size = int(sys.argv[1]), int(sys.argv[2])
backends = {backends!r}
for number, backend in enumerate(backends):
    store = dist.PrefixStore(str(number), dist.FileStore(sys.argv[3], size))
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    value = torch.full((4,), rank + 1.0)
    dist.all_reduce(value)
    group = dist.new_group(list(range(size)))
    dist.broadcast(value, src=size - 1, group=group)
    dist.barrier()
    used = dist.group.WORLD._get_backend(torch.device("cpu"))
    print(backend, value[0].item(), type(used).__name__, used.name())
    dist.destroy_process_group(group)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import torchcomms, torch, torch.distributed as dist",
        pytest.param(
            "import torch, torch.distributed as dist",
            marks=pytest.mark.skipif(
                not hasattr(dist.Backend, "_ensure_backend_registered"),
                reason="this torch knows no entry points",
            ),
        ),
    ],
)
def test_backend_by_name(tmp_path: Path, imports: str) -> None:
    source = imports + START.format(backends=["ctran"])
    for ended in run_ranks(source, 1, tmp_path):
        assert ended.out.split("\n")[0] == "ctran 1.0 _BackendWrapper ctran", ended.err


@pytest.mark.skipif(not HAS_HOOKS, reason="torch asks for torchcomms.hooks.FlightRecorderHook")
@pytest.mark.skipif(
    not hasattr(dist, "config") or not hasattr(dist.config, "use_torchcomms"),
    reason="this torch cannot use torchcomms by itself",
)
@pytest.mark.parametrize("first", ["torch", "torchcomms"])
def test_torch_uses_torchcomms(tmp_path: Path, first: str) -> None:
    names = ["gloo", "cpu:gloo", "ctran", "cpu:ctran"]
    prepare = ""
    if not hasattr(dist.distributed_c10d, "_create_torchcomms_backend"):
        # Torch 2.11 tells no ranks: they are those of the environment, as with torchrun. And its
        # destroy_process_group(group) finalizes a communicator of several devices several times.
        prepare = "import os, sys\nos.environ['RANK'], os.environ['WORLD_SIZE'] = sys.argv[1:3]\n"
        names.remove("gloo")
    imports = f"{prepare}import {first}, torch, torch.distributed as dist"
    source = imports + START.format(backends=names)
    for ended in run_ranks(source, 2, tmp_path, TORCH_DISTRIBUTED_USE_TORCHCOMMS="1"):
        assert ended.code == 0, ended.err
        assert ended.out.splitlines() == [
            f"{name} 3.0 _BackendWrapper {name.rpartition(':')[2]}" for name in names
        ]


@pytest.mark.skipif(
    not hasattr(dist.distributed_c10d, "_create_torchcomms_backend"),
    reason="split_group() of this torch splits groups of GPUs alone",
)
def test_torch_splits_groups_of_several_devices(tmp_path: Path) -> None:
    """A group of "gloo" has the CPU and GPUs, and torch asks for the part of each."""
    source = (
        "import sys, torch, torch.distributed as dist\n"
        "from datetime import timedelta\n"
        "rank, size = int(sys.argv[1]), int(sys.argv[2])\n"
        "store = dist.FileStore(sys.argv[3], size)\n"
        "dist.init_process_group('gloo', store=store, rank=rank, world_size=size)\n"
        "dist.distributed_c10d._set_pg_timeout(timedelta(seconds=30), dist.group.WORLD)\n"
        "for pair in ([0, 1], [1, 2], [0, 2], [0, 2]):\n"
        "    part = dist.split_group(split_ranks=[pair])\n"
        "    assert isinstance(part, dist.ProcessGroup) == (rank in pair)\n"
        "    if rank in pair:\n"
        "        value = torch.tensor([rank])\n"
        "        dist.all_reduce(value, group=part)\n"
        "        print(value.item())\n"
        "dist.destroy_process_group()\n"
    )
    said = []
    for ended in run_ranks(source, 3, tmp_path, TORCH_DISTRIBUTED_USE_TORCHCOMMS="1"):
        assert ended.code == 0, ended.err
        said.append(ended.out.split())
    assert said == [["1", "2", "2"], ["1", "3"], ["3", "2", "2"]]


def test_registered_while_torch_starts(tmp_path: Path) -> None:
    """As with torch 2.11 to 2.13, which imports this package before it has anything to register
    with, and knows no entry points."""
    ended = Program(
        "import sys, types\n"
        "import torchcomms._c10d as ours\n"
        "module = sys.modules['torch.distributed.distributed_c10d']\n"
        "backend, finders = module.Backend, list(sys.meta_path)\n"
        "backend._plugins.pop('CTRAN', None)\n"
        "del module.Backend\n"
        "ours.register_when_ready()\n"
        "import wave\n"
        "assert len(sys.meta_path) == len(finders) + 1\n"
        "module.Backend = backend\n"
        "import tabnanny\n"
        "assert 'CTRAN' in backend._plugins and sys.meta_path == finders\n"
        "print('registered')\n",
        tmp_path,
    ).end()
    assert ended.out.strip() == "registered", ended.err
