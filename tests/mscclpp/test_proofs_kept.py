"""Proofs that were made before are read from files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mscclpp
from mscclpp import engine, proofs_kept
from mscclpp.language import AllReduce, Buffer, CollectiveProgram, MemoryChannel, Rank, SyncType

Write = Callable[..., CollectiveProgram]


@pytest.fixture
def proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the engine from now on, with an empty cache."""
    asked: list[str] = []
    call = engine.call

    def counted(do: str, **request: Any) -> Any:
        asked.append(do)
        return call(do, **request)

    monkeypatch.setattr(engine, "call", counted)
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    return asked


def files(folder: Path) -> list[Path]:
    return sorted((folder / "proofs").iterdir())


def test_a_program_is_proved_once(write_program: Write, proofs: list[str], tmp_path: Path) -> None:
    first = mscclpp.compile(write_program("all_reduce_two_shot", ranks=4, instances=2))
    assert proofs == ["prove"]
    again = mscclpp.compile(write_program("all_reduce_two_shot", ranks=4, instances=2))
    assert proofs == ["prove"]
    assert again.report == first.report
    assert again.report is not None
    assert again.report.rank_order
    assert again._lowered() == first._lowered()
    assert again.plan == first.plan
    assert again.to_json() == first.to_json()
    assert len(files(tmp_path)) == 1


def test_the_plan_of_a_proof_that_is_read_is_parsed_when_it_is_executed(
    write_program: Write, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = mscclpp.compile(write_program("all_reduce_two_shot", ranks=2))._lowered()
    parsed: list[object] = []
    loads = json.loads

    def counted(text: str | bytes) -> object:
        parsed.append(len(text))
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)
    again = mscclpp.compile(write_program("all_reduce_two_shot", ranks=2))
    assert again.report
    assert len(parsed) == 1  # the line that says what is kept
    assert again._lowered() == lowered


def test_a_plan_from_a_file_is_proved_once(
    write_program: Write, proofs: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(write_program("all_reduce_two_shot", ranks=2).to_json())
    plans = [mscclpp.ExecutionPlan(path, 0).algorithm._lowered() for _ in range(2)]
    assert plans[0] == plans[1]
    assert proofs == ["prove"]


def test_another_program_is_proved(write_program: Write, proofs: list[str]) -> None:
    for settings in (
        {}, {"instances": 2}, {"instr_fusion": False}, {"auto_sync": False},
        {"replication_policy": mscclpp.language.ReplicationPolicy.none},
    ):  # fmt: skip
        mscclpp.compile(write_program("all_reduce_two_shot", ranks=2, **settings))
    assert proofs == 5 * ["prove"]


def signalled(sync: SyncType) -> CollectiveProgram:
    """Right only if the threads of the block meet before the signal."""
    with CollectiveProgram("signalled", AllReduce(2, 1, True), 2, auto_sync=False) as program:
        scratch = [Buffer(rank, 1) for rank in range(2)]
        for me, peer in ((0, 1), (1, 0)):
            data, channel = Rank(me).get_input_buffer(), MemoryChannel(peer, me)
            channel.put(scratch[peer][0:1], data[0:1], tb=0)
            channel.signal(tb=0, data_sync=sync)
            channel.wait(tb=0, data_sync=sync)
            Rank(me).reduce(data[0:1], [scratch[me][0:1]], tb=0)
            channel.signal(tb=0, data_sync=sync)
            channel.wait(tb=0, data_sync=sync)
    return program


def test_where_threads_meet_makes_another_program() -> None:
    keys = set()
    for sync in SyncType:
        program = signalled(sync)
        written = program.written()
        from mscclpp.proof import _not_in_json

        keys.add(proofs_kept.key_of(_not_in_json(written)))
    assert len(keys) == len(SyncType)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"null", b'{"key": "another"}', b"a line\nand more", "plan", "properties"],
    ids=str,
)
def test_a_damaged_file_is_a_program_that_was_not_proved(
    write_program: Write, proofs: list[str], tmp_path: Path, damage: bytes | str
) -> None:
    first = mscclpp.compile(write_program("all_reduce_two_shot", ranks=2))
    (path,) = files(tmp_path)
    right = path.read_bytes()
    head, plan = right.split(b"\n")
    if damage == "plan":
        damage = head + b"\n" + plan[:-1]
    elif damage == "properties":
        damage = json.dumps({**json.loads(head), "properties": []}).encode() + b"\n" + plan
    assert isinstance(damage, bytes)
    path.write_bytes(damage)
    again = mscclpp.compile(write_program("all_reduce_two_shot", ranks=2))
    assert proofs == ["prove", "prove"]
    assert again.report == first.report
    assert path.read_bytes() == right


def test_what_is_wrong_is_not_kept(proofs: list[str], tmp_path: Path) -> None:
    for count in (1, 2):
        with CollectiveProgram("wrong", AllReduce(2, 1, True), 2) as program:
            MemoryChannel(1, 0).signal(tb=0)
            MemoryChannel(0, 1).wait(tb=0)
        with pytest.raises(mscclpp.NotProved) as error:
            mscclpp.compile(program)
        assert error.value.locations[0].file == __file__
        assert proofs.count("prove") >= count
    assert not (tmp_path / "proofs").exists()


def test_there_are_at_most_so_many(
    write_program: Write, proofs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs_kept, "_MOST_FILES", 4)
    for instances in range(1, 9):
        mscclpp.compile(write_program("all_reduce_two_shot", ranks=2, instances=instances))
    assert len(files(tmp_path)) <= 4
    mscclpp.compile(write_program("all_reduce_two_shot", ranks=2, instances=8))
    assert len(proofs) == 8


def test_a_cache_that_cannot_be_written_is_none(
    write_program: Write, proofs: list[str], tmp_path: Path
) -> None:
    (tmp_path / "proofs").write_text("a file")
    for _ in range(2):
        mscclpp.compile(write_program("all_reduce_two_shot", ranks=2))
    assert proofs == ["prove", "prove"]
