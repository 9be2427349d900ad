"""Backends: which there are, and how others are found."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest
import torch
from torch.distributed import HashStore

import torchcomms
from torchcomms import CommError, CommOptions, TorchComm, _comms

CPU = torch.device("cpu")


def test_backends_of_this_build() -> None:
    built = torchcomms.built_backends()
    assert built == sorted(built)
    for name in ("ctran", "fake"):
        assert name in built
        assert torchcomms.is_backend_built(name)
        assert _comms._is_backend_registered(name)


def test_unknown_backend_is_told_what_there_is() -> None:
    assert not torchcomms.is_backend_built("carrier-pigeon")
    for kind in (ModuleNotFoundError, torchcomms.BackendNotFoundError):
        with pytest.raises(kind, match="Unknown backend 'carrier-pigeon'"):
            torchcomms.new_comm("carrier-pigeon", CPU)
    with pytest.raises(CommError, match=r"Unknown backend 'carrier-pigeon'.* has: .*ctran.*fake"):
        torchcomms.new_comm("carrier-pigeon", CPU)
    with pytest.raises(ModuleNotFoundError, match="failed to find backend carrier-pigeon"):
        torchcomms._load_backend("carrier-pigeon")


class EntryPoint:
    """An entry point of another package."""

    def __init__(self, name: str, load: Callable[[], None]) -> None:
        self.name = name
        self.load = load


def _installed(monkeypatch: pytest.MonkeyPatch, entry: EntryPoint) -> None:
    def entry_points(group: str) -> list[EntryPoint]:
        assert group == "torchcomms.backends"
        return [entry]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_entry_point_that_registers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    _installed(monkeypatch, EntryPoint("other", lambda: loaded.append(True)))
    with pytest.raises(ModuleNotFoundError, match="does not register a backend other"):
        torchcomms._load_backend("other")
    assert loaded
    assert "other" not in torchcomms.built_backends()


def test_error_of_a_backends_package_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("libother.so is missing")

    _installed(monkeypatch, EntryPoint("other", broken))
    with pytest.raises(OSError, match=r"libother\.so is missing"):
        torchcomms.new_comm("other", CPU)


def test_reconfigure_is_refused_where_it_cannot_be() -> None:
    message = r"\[TorchComm\]: enable_reconfigure=true is not supported by backend: ncclx"
    with pytest.raises(CommError, match=message):
        torchcomms.new_comm("ncclx", CPU, options=_options(0, 1), enable_reconfigure=True)


def test_ctran_says_which_devices_it_knows() -> None:
    with pytest.raises(CommError, match="no support for device 'xpu:0'"):
        torchcomms.new_comm("ctran", torch.device("xpu", 0), options=_options(0, 1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs here")
@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("ctran", r"the NVIDIA driver .* could not be loaded"),
        ("nccl", r"could not be loaded"),  # the driver, or NCCL
        ("ncclx", r"could not be loaded"),
    ],
)
def test_backends_of_gpus_say_that_there_are_none(backend: str, message: str) -> None:
    if not torchcomms.is_backend_built(backend):
        pytest.skip(f"built without {backend}")
    with pytest.raises(CommError, match=message):
        torchcomms.new_comm(
            backend, torch.device("cuda", 0), options=_options(0, 1), store=HashStore()
        )


def _options(rank: int | None, size: int | None) -> CommOptions:
    options = CommOptions()
    options.rank, options.size = rank, size
    return options


@pytest.mark.parametrize(
    ("rank", "size", "message"),
    [
        (2, 2, r"rank must be in range \[0, 2\), but got 2"),
        (-1, 2, r"rank must be in range \[0, 2\), but got -1"),
        (0, 0, r"rank must be in range \[0, 0\), but got 0"),
        (1, None, "must be given together"),
        (None, 2, "must be given together"),
    ],
)
def test_places_that_cannot_be(rank: int | None, size: int | None, message: str) -> None:
    with pytest.raises(CommError, match=message):
        torchcomms.new_comm("fake", CPU, options=_options(rank, size))


def test_several_ranks_need_a_store() -> None:
    with pytest.raises(CommError, match="needs a store"):
        torchcomms.new_comm("ctran", CPU, options=_options(0, 2))


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "3"}, (2, 3)),
        ({"TORCHCOMM_RANK": "1", "TORCHCOMM_SIZE": "5"}, (1, 5)),
        ({"TORCHCOMM_RANK": "1", "TORCHCOMM_SIZE": "5", "RANK": "2", "WORLD_SIZE": "3"}, (1, 5)),
        ({"RANK": "2"}, (0, 1)),
    ],
)
def test_fake_takes_its_place_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], place: tuple[int, int]
) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHCOMM_RANK", "TORCHCOMM_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    comm = torchcomms.new_comm("fake", CPU)
    assert (comm.get_rank(), comm.get_size()) == place


def test_arguments_override_options() -> None:
    options = _options(0, 1)
    options.name = "from-options"
    options.hints = {"a": "1"}
    comm = torchcomms.new_comm("fake", CPU, options=options)
    assert comm.get_name() == "from-options"
    assert comm.get_options().hints == {"a": "1"}
    comm = torchcomms.new_comm(
        "fake",
        CPU,
        "from-argument",
        options=options,
        abort_process_on_timeout_or_error=False,
        timeout=torchcomms.Timeout(seconds=5),
        is_high_priority_stream=True,
        hints={"b": "2"},
    )
    found = comm.get_options()
    assert comm.get_name() == found.name == "from-argument"
    assert not found.abort_process_on_timeout_or_error
    assert found.timeout == torchcomms.Timeout(seconds=5)
    assert found.is_high_priority_stream
    assert found.hints == {"b": "2"}
    assert options.name == "from-options"  # untouched


def test_a_communicator_needs_a_timeout() -> None:
    with pytest.raises(CommError, match="timeout must be positive"):
        torchcomms.new_comm("fake", CPU, timeout=torchcomms.Timeout(0))


def test_communicators_are_made_by_new_comm() -> None:
    with pytest.raises(TypeError, match="No constructor"):
        TorchComm()
