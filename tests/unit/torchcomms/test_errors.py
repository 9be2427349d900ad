"""The classes of errors."""

from __future__ import annotations

import pickle

import pytest

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
