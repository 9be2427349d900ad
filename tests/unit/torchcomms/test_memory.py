"""Allocators and registration of tensors."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchcomms
from torchcomms import ReduceOp, TorchComm, TorchCommWinAccessType

Make = Callable[..., list[TorchComm]]
Fake = Callable[..., TorchComm]
OnEach = Callable[[Any, Callable[[Any], Any]], list[Any]]


def is_shared_mapping(tensor: torch.Tensor) -> bool:
    """Whether the kernel says that the tensor's memory is shared."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        first, end = (int(address, 16) for address in span.split("-"))
        if first <= tensor.data_ptr() < end:
            return rights.endswith("s")
    return False


def test_shared_tensors_are_whole_pages_of_shared_memory(alone: TorchComm) -> None:
    for tensor in (
        torchcomms.empty_shared([3, 5], torch.int16),
        torchcomms.get_mem_allocator("ctran", "cpu").empty([3, 5], dtype=torch.int16),
        alone.get_mem_allocator().empty([3, 5], torch.int16),
        alone.mem_allocator.empty([3, 5], torch.int16),
    ):
        assert tensor.dtype == torch.int16
        assert tensor.shape == (3, 5)
        assert tensor.is_contiguous()
        assert tensor.device == torch.device("cpu")
        assert tensor.data_ptr() % mmap.PAGESIZE == 0
        assert is_shared_mapping(tensor)
        tensor.copy_(torch.arange(15).view(3, 5))
        assert torch.equal(tensor, torch.arange(15, dtype=torch.int16).view(3, 5))
    assert torchcomms.empty_shared((4,)).dtype == torch.get_default_dtype()
    assert torchcomms.empty_shared([0]).numel() == 0


def test_shared_memory_goes_with_its_tensor() -> None:
    tensor = torchcomms.empty_shared([1 << 20])
    view, address = tensor[5:], tensor.data_ptr()
    del tensor
    view.fill_(1.0)
    del view
    gc.collect()
    mapped = Path("/proc/self/maps").read_text()
    assert f"{address:x}-" not in mapped


def test_a_shared_tensor_can_grow() -> None:
    tensor = torchcomms.empty_shared([3])
    tensor.fill_(2.0)
    tensor.resize_(5000)
    assert tensor[:3].tolist() == [2.0] * 3
    assert is_shared_mapping(tensor)


def test_the_sizes_of_a_tensor_are_checked() -> None:
    with pytest.raises(RuntimeError, match="negative"):
        torchcomms.empty_shared([-1])
    with pytest.raises(RuntimeError):
        torchcomms.empty_shared([1 << 62])
    with pytest.raises(torchcomms.CommError, match="No allocator factory registered for backend"):
        torchcomms.get_mem_allocator("nobody")
    with pytest.raises(TypeError, match=r"get_mem_allocator.*'device' must be torch.device or str"):
        torchcomms.get_mem_allocator("ctran", 3)  # type: ignore[arg-type]


def test_operations_and_windows_take_shared_tensors(threads: Make, on_each: OnEach) -> None:
    def one(comm: TorchComm) -> None:
        tensor = torchcomms.empty_shared([1000])
        tensor.fill_(comm.get_rank() + 1.0)
        comm.tensor_register(tensor)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        assert (tensor == 3.0).all()
        comm.tensor_deregister(tensor)
        window = comm.new_window(tensor)
        access = window.get_attr(1 - comm.get_rank()).access_type
        assert access == TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
        window.tensor_deregister()

    on_each(threads(2), one)


def test_a_tensor_that_has_moved_is_let_go_of(alone: TorchComm) -> None:
    tensor = torch.zeros(8)
    alone.tensor_register(tensor)
    tensor.resize_(5000)
    alone.tensor_deregister(tensor)
    storage = tensor.untyped_storage()._weak_ref()
    del tensor
    assert torch.UntypedStorage._expired(storage)


@pytest.mark.parametrize("backend", ["fake", "ctran"])
def test_registration(backend: str, fake: Fake, alone: TorchComm) -> None:
    comm = fake() if backend == "fake" else alone
    tensor = torch.zeros(8)
    comm.tensor_register(tensor)
    with pytest.raises(torchcomms.CommError, match=r"Double registration error\."):
        comm.tensor_register(tensor)
    comm.tensor_deregister(tensor)
    with pytest.raises(torchcomms.CommError, match="not registered"):
        comm.tensor_deregister(tensor)
    comm.tensor_register(tensor)
    with pytest.raises(torchcomms.CommError, match="contiguous tensor required"):
        comm.tensor_register(torch.zeros(4, 4).t())
