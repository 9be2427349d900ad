"""CommOptions, the options of operations, and what the environment says."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import torchcomms
from torchcomms import CommOptions, _comms


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHCOMM_ABORT_ON_ERROR", "TORCHCOMM_TIMEOUT_SECONDS"):
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    options = CommOptions()
    assert options.abort_process_on_timeout_or_error is True
    assert options.timeout == timedelta(seconds=600)
    assert options.store is None
    assert options.hints == {}
    assert options.name == ""
    assert options.rank is None
    assert options.size is None
    assert not options.enable_reconfigure
    assert options == CommOptions()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(text, True) for text in ("1", "true", "YES", "y")],
        *[(text, False) for text in ("0", "False", "no", "n")],
    ],
)
def test_environment_says_whether_to_abort(
    monkeypatch: pytest.MonkeyPatch, text: str, value: bool
) -> None:
    monkeypatch.setenv("TORCHCOMM_ABORT_ON_ERROR", text)
    assert CommOptions().abort_process_on_timeout_or_error is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30", timedelta(seconds=30)),
        ("30.0", timedelta(seconds=30)),
        ("0.5", timedelta(milliseconds=500)),
        ("0.0001", timedelta(milliseconds=1)),
    ],
)
def test_environment_says_the_timeout(
    monkeypatch: pytest.MonkeyPatch, text: str, value: timedelta
) -> None:
    monkeypatch.setenv("TORCHCOMM_TIMEOUT_SECONDS", text)
    assert CommOptions().timeout == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TORCHCOMM_ABORT_ON_ERROR", "perhaps"),
        ("TORCHCOMM_TIMEOUT_SECONDS", "soon"),
        ("TORCHCOMM_TIMEOUT_SECONDS", "-1"),
        ("TORCHCOMM_TIMEOUT_SECONDS", "10 s"),
        ("TORCHCOMM_TIMEOUT_SECONDS", "nan"),
    ],
)
def test_nonsense_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(RuntimeError, match=f"{variable}='{text}'"):
        CommOptions()


def test_members_can_be_set_and_compared() -> None:
    options = CommOptions()
    options.abort_process_on_timeout_or_error = False
    options.timeout = timedelta(seconds=30)
    options.name = "my_comm"
    options.hints = {"key": "value"}
    other = CommOptions()
    assert options != other
    other.abort_process_on_timeout_or_error = False
    other.timeout = timedelta(seconds=30)
    other.name = "my_comm"
    other.hints = {"key": "value"}
    assert options == other
    other.is_high_priority_stream = True
    assert options != other


def test_high_priority_has_two_names() -> None:
    options = torchcomms.CommOptions()
    options.high_priority_stream = True
    assert options.is_high_priority_stream
    options.is_high_priority_stream = False
    assert not options.high_priority_stream


def test_a_timeout_is_a_timedelta() -> None:
    options = CommOptions()
    with pytest.raises(TypeError, match=r"timeout must be datetime\.timedelta, not float"):
        options.timeout = 1.0  # type: ignore[assignment]
    with pytest.raises(ValueError, match="must not be negative"):
        options.timeout = timedelta(seconds=-1)
    options.timeout = torchcomms.Timeout(seconds=2)
    assert options.timeout == timedelta(seconds=2)
    options.timeout = timedelta.max
    assert options.timeout > timedelta(days=365)


OPERATION_OPTIONS = [
    value
    for value in vars(_comms).values()
    if isinstance(value, type)
    and issubclass(value, _comms.OpOptions)
    and value is not _comms.OpOptions
]


def test_every_operation_has_options_and_they_are_public() -> None:
    assert len(OPERATION_OPTIONS) == 17
    assert {cls.__name__ for cls in OPERATION_OPTIONS} <= set(torchcomms.__all__)


@pytest.mark.parametrize("cls", OPERATION_OPTIONS, ids=lambda cls: cls.__name__)
def test_options_of_operations(cls: type[_comms.SendOptions]) -> None:
    assert cls().hints == {}
    assert cls().timeout == timedelta(0)
    options = cls(hints={"a": "b"}, timeout=timedelta(microseconds=1))
    assert options.hints == {"a": "b"}
    # Rounded up: nothing would mean the communicator's.
    assert options.timeout == timedelta(milliseconds=1)
    options.timeout = None
    assert options.timeout == timedelta(0)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_options_can_be_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    options = CommOptions()
    options.timeout = timedelta(seconds=7)
    options.hints = {"a": "b"}
    options.rank, options.size, options.name = 1, 2, "x"
    options.abort_process_on_timeout_or_error = False
    assert copied(options) == options
    send = torchcomms.SendOptions(hints={"a": "b"}, timeout=timedelta(seconds=3), tag=-4)
    same = copied(send)
    assert (same.hints, same.timeout, same.tag) == (send.hints, send.timeout, -4)
    plain = copied(torchcomms.AllReduceOptions(hints={"a": "b"}))
    assert type(plain) is torchcomms.AllReduceOptions
    assert (plain.hints, plain.timeout) == ({"a": "b"}, timedelta())


def test_a_tag_that_does_not_fit() -> None:
    with pytest.raises(torchcomms.CommError, match="tag must fit into 32 bits"):
        torchcomms.SendOptions(tag=2**63)
