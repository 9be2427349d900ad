"""Shared memory, and tensors of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import Rank, Ranks, standins

import mscclpp
from mscclpp.utils import torch_dtype_to_mscclpp_dtype

MakeRanks = Callable[[int], Ranks]


def tensor_of(bytes: int, *arguments: object, **more: object) -> torch.Tensor:
    capsule = mscclpp.RawGpuBuffer(bytes).to_dlpack(*arguments, **more)  # type: ignore[arg-type]
    return torch.utils.dlpack.from_dlpack(capsule)


@pytest.mark.parametrize(
    "kind",
    [
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16,
        torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    ],
)  # fmt: skip
def test_a_buffer_is_a_tensor_of_zeros(kind: torch.dtype) -> None:
    tensor = tensor_of(4096, data_type=str(kind))
    assert (tensor.dtype, tensor.device.type) == (kind, "cpu")
    assert tensor.nbytes == 4096
    assert not tensor.any()
    tensor.fill_(1)
    assert tensor.to(torch.complex128).sum().item() == tensor.numel()


def test_it_lives_as_long_as_its_tensors() -> None:
    buffer = mscclpp.RawGpuBuffer(1 << 20)
    tensor = torch.utils.dlpack.from_dlpack(buffer.to_dlpack("torch.int32"))
    assert tensor.data_ptr() == buffer.data()
    assert (buffer.nelems(), buffer.bytes(), buffer.device_id()) == (1 << 20, 1 << 20, -1)
    tensor += 7
    del buffer
    gc.collect()
    assert tensor.eq(7).all()


def test_capsules_that_nobody_takes_are_let_go_of() -> None:
    for _ in range(1000):
        mscclpp.RawGpuBuffer(1 << 30).to_dlpack("torch.int32")


def test_shapes_and_strides() -> None:
    tensor = tensor_of(96, "torch.float32", shape=[4, 6])
    assert tensor.shape == (4, 6)
    assert tensor_of(96, "torch.float32", shape=(2, 3), strides=(1, 2)).stride() == (1, 2)
    assert tensor_of(0, "torch.float32").shape == (0,)
    with pytest.raises(ValueError, match="of 25 elements does not fit: there is memory for 24"):
        tensor_of(96, "torch.float32", shape=[25])
    with pytest.raises(ValueError, match="has no shape"):
        tensor_of(96, "torch.float32", shape=[-1])
    with pytest.raises(ValueError, match=r"'torch\.complex32' is none of"):
        tensor_of(96, "torch.complex32")
    with pytest.raises(ValueError, match="a buffer has no -1 bytes"):
        mscclpp.RawGpuBuffer(-1)
    for size in (1.5, "8"):
        with pytest.raises(TypeError, match="the size of a buffer must be an int, not"):
            mscclpp.RawGpuBuffer(size)  # type: ignore[arg-type]


def test_sizes_are_rounded_up_to_a_granularity() -> None:
    buffer = mscclpp.RawGpuBuffer(100, 64)
    assert (buffer.nelems(), buffer.bytes()) == (100, 128)
    assert mscclpp.RawGpuBuffer(0, granularity=64).bytes() == 0
    with pytest.raises(ValueError, match="granularity is 0"):
        mscclpp.RawGpuBuffer(100, 0)


def test_small_floats_of_other_makers_are_bytes_that_move() -> None:
    assert tensor_of(8, "fp8_e4m3b15").dtype is torch.uint8
    for name in ("float8_e4m3fnuz", "float8_e5m2fnuz"):
        assert mscclpp.RawGpuBuffer(8).to_dlpack(f"torch.{name}") is not None
        with pytest.raises(ValueError, match="can be viewed as uint8"):
            torch_dtype_to_mscclpp_dtype(getattr(torch, name))


def test_numpy_takes_it() -> None:
    array = np.from_dlpack(mscclpp.RawGpuBuffer(10))  # type: ignore[arg-type]
    assert array.dtype == np.uint8
    assert array.tolist() == [0] * 10


ON_A_GPU = """
    import mscclpp
    from mscclpp import _runtime

    raw = mscclpp.RawGpuBuffer(1 << 20)
    assert (raw.device_id(), raw.__dlpack_device__()) == (0, (2, 0))
    assert _runtime.gpu_of(raw.data() + 100) == 0
    buffer = mscclpp.GpuBuffer((2, 3), "float16", device="cuda")
    described = buffer.__cuda_array_interface__
    assert (described["data"][0], described["typestr"]) == (buffer.data(), "<f2")
    assert not hasattr(buffer, "__array_interface__")
    assert mscclpp.RawGpuBuffer(8, device="cuda:3").device_id() == 3
    host = mscclpp.RawGpuBuffer(8, device="cpu")
    assert (host.device_id(), _runtime.gpu_of(host.data())) == (-1, -1)
    assert mscclpp.Device().type is mscclpp.DeviceType.GPU
    links = _runtime.gpu_links().split()
    assert (len(links), links[0], links[-1]) == (64 * 63, "0-1:1,1,1", "63-62:1,1,1")
    for wrong, why in (("tpu", "neither 'cpu' nor 'cuda'"), ("cuda:64", "sees 64 GPUs")):
        try:
            mscclpp.RawGpuBuffer(8, device=wrong)
        except ValueError as error:
            assert why in str(error), error
        else:
            raise AssertionError(wrong)
    print("right")
"""


def test_where_there_is_a_gpu_it_is_there(tmp_path: Path) -> None:
    standins.build()
    command = [sys.executable, "-c", textwrap.dedent(ON_A_GPU)]
    environment = {**os.environ, **standins.environment(tmp_path)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert said.stdout == "right\n", said.stderr


def symmetric(rank: Rank) -> None:
    with mscclpp.CommGroup(store=rank.store("m"), rank=rank.rank, size=rank.size) as group:
        mine = tensor_of(1 << 16, "torch.int32")
        (packet,) = (
            algorithm
            for algorithm in mscclpp.AlgorithmCollectionBuilder().build_default_algorithms()
            if algorithm.name == "default_allreduce_rsag_zero_copy"
        )
        for blocks, threads in ((0, 0), (4, 512), (128, 1024)):
            mine.fill_(rank.rank + 1)
            code = packet.execute(
                group.communicator,
                mine.data_ptr(),
                mine.data_ptr(),
                mine.nbytes,
                mine.nbytes,
                torch_dtype_to_mscclpp_dtype(mine.dtype),
                mscclpp.ReduceOp.SUM,
                nblocks=blocks,
                nthreads_per_block=threads,
                symmetric_memory=True,
            )
            assert code == 0
            assert mine.eq(3).all()


def test_algorithms_take_it(ranks: MakeRanks) -> None:
    ranks(2).run(symmetric)


def test_types_of_torch() -> None:
    assert torch_dtype_to_mscclpp_dtype(torch.float16) is mscclpp.DataType.float16
    assert torch_dtype_to_mscclpp_dtype(torch.float8_e4m3fn) is mscclpp.DataType.float8_e4m3
    assert torch_dtype_to_mscclpp_dtype(torch.bool) is mscclpp.DataType.bool
    assert torch_dtype_to_mscclpp_dtype(torch.complex64) is mscclpp.DataType.complex64
    assert mscclpp.DataType.float8_e4m3fn is mscclpp.DataType.float8_e4m3
    with pytest.raises(ValueError, match=r"there is no DataType for torch\.complex32"):
        torch_dtype_to_mscclpp_dtype(torch.complex32)
