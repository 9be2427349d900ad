"""What objects and errors say to those who print them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import torch

import torchcomms
from torchcomms import CommOptions, ReduceOp, TorchComm


def test_objects_print_what_they_hold(alone: TorchComm) -> None:
    options = CommOptions()
    options.name, options.timeout = "mine", timedelta(seconds=5)
    assert "name='mine'" in repr(options)
    assert "timeout=datetime.timedelta(seconds=5)" in repr(options)
    assert repr(alone.barrier(True)) in ("<TorchWork COMPLETED>", "<TorchWork INPROGRESS>")
    batch = alone.batch_op_create()
    batch.send(torch.ones(3), 0)
    assert repr(batch.ops[0]) == "<P2POp send of 3 Float to rank 0 tag 0>"


def test_a_device_may_be_named() -> None:
    comm = torchcomms.new_comm("fake", "cpu")
    assert comm.get_device() == torch.device("cpu")
    with pytest.raises(TypeError, match=r"must be torch.device or str, not int"):
        torchcomms.new_comm("fake", 3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="nonsense"):
        torchcomms.new_comm("fake", "nonsense")


def test_sizes_that_do_not_fit_are_told(fake: Callable[..., TorchComm]) -> None:
    comm = fake(rank=0, size=4)
    with pytest.raises(torchcomms.CommError, match="got 3 elements instead of 8"):
        comm.all_gather_single(torch.ones(3), torch.ones(2), False)
    with pytest.raises(torchcomms.CommError, match="got 9 elements instead of 8"):
        comm.reduce_scatter_single(torch.ones(2), torch.ones(9), ReduceOp.SUM, False)


def test_what_is_wrong_in_a_list_is_told(fake: Callable[..., TorchComm]) -> None:
    comm, tensor = fake(rank=0, size=1), torch.ones(1)
    with pytest.raises(TypeError, match="a list of ints, but has a float"):
        comm.all_to_all_v_single(tensor, tensor, [1.0], [1], False)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a list of Tensors, but has a NoneType"):
        comm.all_gather([None], tensor, False)  # type: ignore[list-item]


def test_an_aborted_call_names_its_operation(threads: Callable[..., list[TorchComm]]) -> None:
    for comm in threads(2):
        comm.abort()
        with pytest.raises(torchcomms.AbortedError, match=r"all_reduce: .* was aborted") as error:
            comm.all_reduce(torch.ones(1), ReduceOp.SUM, False)
        assert error.value.op == "all_reduce"


def test_what_a_backend_lacks_says_who_has_it() -> None:
    class Small(torchcomms.TorchCommBackend):
        def init(self, device, name, options) -> None: ...  # type: ignore[no-untyped-def]

    if "small" not in torchcomms.built_backends():
        torchcomms.register_backend("small", Small)
    comm = torchcomms.new_comm("small", "cpu")
    with pytest.raises(torchcomms.CommError, match=r"docs/backends/README\.md"):
        comm.new_window()
