"""The classes of errors."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
from torch.distributed import HashStore

import torchcomms
from torchcomms import AbortedError, CommError, CommTimeoutError, MismatchError, PeerLostError

CLASSES = [CommError, CommTimeoutError, PeerLostError, MismatchError, AbortedError]


@pytest.mark.parametrize("cls", CLASSES)
def test_all_are_runtime_errors(cls: type[CommError]) -> None:
    assert issubclass(cls, CommError)
    assert issubclass(cls, RuntimeError)
    assert cls.__name__ in torchcomms.__all__


@pytest.mark.parametrize("cls", CLASSES)
def test_they_tell_who_and_what_also_in_another_process(cls: type[CommError]) -> None:
    error = pickle.loads(pickle.dumps(cls("it broke", [1, 2], "all_reduce", "restart it")))
    assert type(error) is cls
    assert str(error) == "it broke"
    assert error.ranks == [1, 2]
    assert error.op == "all_reduce"
    assert error.hint == "restart it"


def test_defaults() -> None:
    error = CommError("it broke")
    assert error.ranks == []
    assert error.op == ""
    assert error.hint == ""


def test_a_rank_0_that_does_not_come_is_told_with_one_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHCOMM_RANK", "1")
    monkeypatch.setenv("TORCHCOMM_SIZE", "2")
    store, short = HashStore(), timedelta(milliseconds=100)
    with pytest.raises(CommTimeoutError) as raised:
        torchcomms.new_comm("ctran", "cpu", "nobody comes", store=store, timeout=short)
    assert raised.value.ranks == [0]
    assert str(raised.value).count("hint: ") == 1


def test_a_gloo_that_cannot_be_made_says_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch")  # torch's own variable
    with pytest.raises(CommError, match="Gloo could not be made") as raised:
        torchcomms.new_comm("gloo", "cpu", "nowhere")
    assert "torchcomms doctor" in raised.value.hint
