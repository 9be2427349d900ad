"""Operations of graphs that are given communicators and windows themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchcomms.functional
from torchcomms import TorchComm, TorchCommWindow

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
OPS: Any = torch.ops.torchcomms
HAS_OBJECTS = hasattr(OPS.torchcomm_all_reduce, "object")
objects = pytest.mark.skipif(not HAS_OBJECTS, reason="operations of this torch take no objects")


@pytest.fixture
def graphs() -> list[torch.fx.GraphModule]:
    """What `compiled` has compiled."""
    torch._dynamo.reset()
    return []


@pytest.fixture
def compiled(graphs: list[torch.fx.GraphModule]) -> Compile:
    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph

    return torch.compile(fullgraph=True, backend=keep)


def doubled(comm: TorchComm, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = OPS.torchcomm_all_reduce(comm, 2 * x, "SUM", False, None, 0)
    return result


def test_this_torch_takes_objects_if_it_can() -> None:
    can = pytest.importorskip("torch._library.opaque_object")
    assert hasattr(can, "register_custom_class") == HAS_OBJECTS


@objects
def test_operations_take_the_communicator(alone: TorchComm) -> None:
    x = torch.ones(3, requires_grad=True)
    doubled(alone, x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    y = torch.ones(2)
    OPS.torchcomm_all_reduce_(alone, y, "PREMUL_SUM", scale=3.0)
    assert y.tolist() == [3, 3]
    named = torchcomms.functional.register(alone)
    assert OPS.torchcomm_all_gather_single(named, y).tolist() == [3, 3]


@objects
def test_operations_take_the_window(alone: TorchComm) -> None:
    window = alone.window_allocate(16)
    OPS.torchcomm_window_put(window, torch.ones(2), 0, 1)
    assert OPS.torchcomm_window_get_tensor(window, 0, [4], torch.float32).tolist() == [0, 1, 1, 0]


@objects
def test_they_are_told_apart(alone: TorchComm) -> None:
    with pytest.raises(TypeError, match="argument 'window' must be TorchCommWindow or the name"):
        OPS.torchcomm_window_put(alone, torch.ones(2), 0, 0)
    assert isinstance(alone, TorchComm)
    assert not isinstance(alone, TorchCommWindow)
    assert not isinstance(3, TorchComm)


@objects
def test_traces_hold_the_name(alone: TorchComm) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: doubled(alone, x))(torch.ones(3))
    [node] = [n for n in graph.graph.nodes if "torchcomm" in str(n.target)]
    assert node.target is OPS.torchcomm_all_reduce.default
    assert node.args[0] == torchcomms.functional.register(alone)


def test_compiled_code_passes_the_communicator(
    alone: TorchComm, compiled: Compile, graphs: list[torch.fx.GraphModule]
) -> None:
    double = compiled(doubled)
    assert double(alone, torch.ones(3)).tolist() == [2, 2, 2]
    assert double(alone, torch.ones(3)).tolist() == [2, 2, 2]
    assert len(graphs) == 1
    # Another one makes torch compile again.
    assert double(alone.dup(), torch.ones(3)).tolist() == [2, 2, 2]
    assert len(graphs) == 2


WITHOUT_PATCH = """
import torch, torchcomms, torchcomms.functional
comm = torchcomms.new_comm("ctran", torch.device("cpu"), name="one")
other = comm.dup("other")

@torch.compile(fullgraph=True, backend="aot_eager")
def double(comm, x):
    return torch.ops.torchcomms.torchcomm_all_reduce(comm, 2 * x, "SUM", False, None, 0)

x = torch.ones(3, requires_grad=True)
for each in (comm, other, comm):
    double(each, x).sum().backward()
assert x.grad.tolist() == [6, 6, 6]
print("compiled")
"""


@objects
def test_dynamo_passes_objects_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCOMMS_PATCH_FOR_COMPILE", "0")
    program = tmp_path / "program.py"  # a file, of which Dynamo sees the source
    program.write_text(WITHOUT_PATCH)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=240
    )
    assert done.stdout == "compiled\n", done.stderr
