"""Plans are read without loss, and what is no plan is refused by the place where it is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mscclpp
from mscclpp.language import CollectiveProgram, PlanFormatError, read, write
from mscclpp.language.plan import SwitchChannels
from mscclpp.proof import prove_kept

Write = Callable[..., CollectiveProgram]
ALL = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("*.py"))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("indent", [None, 2, 4])
def test_what_is_written_is_read(
    write_program: Write, name: str, instances: int, indent: int | None
) -> None:
    program = write_program(name, instances=instances)
    text = program.to_json(indent)
    assert read(text) == program.plan()
    assert write(read(text), indent) == text
    located = program.to_json(indent, locations=True)
    assert write(read(located), indent, locations=True) == located
    assert write(read(located), indent) == text


# As another compiler may write it: keys in another order, keys that are left out or unknown here,
# lists of nothing, references that nobody uses.
FOREIGN: dict[str, Any] = {
    "collective": "allgather",
    "name": "theirs",
    "version": {"of": ["their", "compiler"], "x": 1.5, "y": None},
    "gpus": [
        {
            "threadblocks": [
                {
                    "ops": [
                        {
                            "dst_buff": [{"size": 1, "index": 1, "buffer_id": 1, "note": "é"}],
                            "src_buff": [{"size": 1, "index": 0, "type": "i"}],
                            "name": "put",
                            "channel_type": "memory",
                            "channel_ids": [],
                            "tbg_info": {"tbg_size": 2, "tb_id": 1},
                        },
                        {"name": "gstore", "channel_type": "switch", "reduce_op": None,
                         "src_buff": [{"type": "o", "index": 0, "size": 1}],
                         "dst_buff": [{"switch_channel_id": 0, "index": 0, "size": 1}]},
                        {"name": "barrier", "barrier_id": 3, "num_threadblocks": 1},
                        {"name": "sem_release", "semaphore_ids": [1]},
                        {"name": "pipeline", "ops": [{"name": "nop"}],
                         "iter_context": {"num_chunks": 2, "unit_size": 1048576}},
                    ],
                    "id": 5,
                    "remote_buffer_refs": [
                        {"access_channel_type": "memory", "remote_buffer_ids": [1, 0]}
                    ],
                    "channels": [{"channel_type": "switch", "channel_ids": [1]}],
                }
            ],
            "id": 0,
            "input_chunks": 1,
            "output_chunks": 2,
            "scratch_chunks": 2,
            "remote_buffers": [
                {"rank": 1, "type": "s", "access_channel_types": ["port", "memory"]},
                {"rank": 1, "type": "o", "access_channel_types": []},
            ],
            "channels": [
                {"channel_type": "switch", "buffer_type": "o",
                 "rank_groups": [{"size": 1, "ranks": [0]}, {"ranks": [1, 0], "size": 2}]},
                {"channel_type": "port", "connected_to": [1, 1]},
            ],
            "semaphores": [{"init_value": 0}, {"init_value": 7}],
        },
        {"id": 1, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 2, "threadblocks": []},
    ],
    "max_message_size": 18446744073709551615,
}  # fmt: skip


def test_nothing_of_another_compiler_is_lost() -> None:
    text = json.dumps(FOREIGN, indent=2)
    plan = read(text)
    assert write(plan) == text, "keys, their order, and those without meaning here"
    assert plan.extra == {"version": FOREIGN["version"]}
    assert plan.protocol == "Simple"
    assert isinstance(plan.gpus[0].channels[0], SwitchChannels)
    assert plan.gpus[0].switches()[1][1] == (1, 0)
    put = plan.gpus[0].threadblocks[0].ops[0]
    assert put.tbg_info is not None
    assert put.tbg_info.tb_id == 1


def spoiled(path: str, value: object) -> str:
    """The foreign plan with what is at a path replaced, or left out if the value is ..."""
    plan: Any = json.loads(json.dumps(FOREIGN))
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    place = plan
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(plan)


OPS = "gpus/0/threadblocks/0/ops"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("name", ..., "plan: 'name' is missing"),
        ("gpus/0/threadblocks/0/id", ..., r"plan.gpus\[0\].threadblocks\[0\]: 'id' is missing"),
        ("gpus", {}, "plan.gpus: a list was expected"),
        ("gpus/1", [], r"plan.gpus\[1\]: an object was expected"),
        ("gpus/1/id", 2, r"plan.gpus\[1\].id: gpus are listed by rank"),
        ("gpus/0/input_chunks", True, "an integer was expected, not True"),
        ("gpus/0/input_chunks", 1.0, "an integer was expected, not 1.0"),
        ("gpus/0/input_chunks", -1, "a number from 0 to"),
        ("gpus/0/input_chunks", 0, "chunk 0 of input of rank 0, which has 0"),
        ("max_message_size", 2**64, "a number from 0 to"),
        (
            "gpus/0/input_chunks",
            10**4000,
            "a number from 0 to 2.64-1 was expected, not 1.{39}[.]{3}$",
        ),
        ("num_threads_per_block", 0, "a block has 1 to 1024 threads, not 0"),
        (f"{OPS}/0/name", "dance", r"ops\[0\].name: there is no operation 'dance'"),
        (f"{OPS}/0/channel_type", "pigeon", "'pigeon'"),
        (f"{OPS}/0/channel_type", ..., "names no buffer"),
        (f"{OPS}/0/channel_ids", [0], "the thread block has no memory channel 0"),
        (f"{OPS}/0/src_buff/0", {"index": 0, "size": 1}, "the keys .* were expected"),
        (f"{OPS}/0/src_buff/0/size", 2, "chunk 1 of input of rank 0, which has 1"),
        (f"{OPS}/0/dst_buff/0/buffer_id", 2, "names no buffer"),
        (f"{OPS}/0/tbg_info/tb_id", 2, "2 is no place in a group of 2"),
        (f"{OPS}/2/barrier_id", ..., "a barrier needs a barrier_id"),
        (f"{OPS}/3/semaphore_ids", [2], "there is no semaphore 2"),
        (f"{OPS}/4/iter_context", ..., "a pipeline needs an iter_context"),
        (f"{OPS}/4/ops/0/name", "jump", r"ops\[4\].ops\[0\].name: there is no operation"),
        ("gpus/0/remote_buffers/0/rank", 2, "there is no rank 2"),
        ("gpus/0/channels/1/connected_to", [9], "there is no rank 9"),
        ("gpus/0/channels/0/channel_type", "port", "these are no port channels"),
        ("gpus/0/channels/0/rank_groups/0/size", 2, "the number of its ranks"),
        ("gpus/0/threadblocks/0/channels/0/channel_ids", [2], "has no switch channel 2"),
        ("gpus/0/threadblocks/0/remote_buffer_refs/0/remote_buffer_ids", [2], "no remote buffer 2"),
    ],
)
def test_what_is_no_plan_is_refused_by_place(path: str, value: object, says: str) -> None:
    with pytest.raises(PlanFormatError, match=says):
        read(spoiled(path, value))


MINE, HIS = [{"size": 1, "index": 0, "type": "s"}], [{"size": 1, "index": 0, "buffer_id": 1}]
INPUT, OUTPUT = ([{"size": 1, "index": 0, "type": kind}] for kind in "io")
OUTPUT_OF_ALL = [{"switch_channel_id": 0, "index": 0, "size": 1}]


@pytest.mark.parametrize(
    ("name", "source", "destination", "says"),
    [
        ("ppkt", INPUT, [{"size": 1, "index": 0, "buffer_id": 0}], "output of rank 1"),
        ("cpkt", INPUT, OUTPUT, "output of rank 0"),
        ("upkt", INPUT, OUTPUT, "input of rank 0"),
        ("rppkt", OUTPUT, HIS, "output of rank 0"),
        ("rppkt", MINE, [{"size": 1, "index": 0, "buffer_id": 0}], "output of rank 1"),
        ("repkt", INPUT + OUTPUT, OUTPUT, "output of rank 0"),
        ("recpkt", INPUT + MINE, OUTPUT + OUTPUT, "output of rank 0"),
        ("respkt", INPUT + INPUT, OUTPUT + HIS, "input of rank 0"),
        ("gstorepkt", INPUT, OUTPUT_OF_ALL, "output of rank 1"),
    ],
)
def test_packets_lie_in_scratch_only(
    name: str, source: list[Any], destination: list[Any], says: str
) -> None:
    kind = "switch" if destination is OUTPUT_OF_ALL else "memory"
    given = {"name": name, "channel_type": kind, "src_buff": source, "dst_buff": destination}
    place = r"plan.gpus\[0\].threadblocks\[0\].ops\[0\]"
    with pytest.raises(PlanFormatError, match=f"{place}: '{name}' has packets in {says}"):
        read(spoiled(f"{OPS}/0", given))


@pytest.mark.parametrize(
    ("name", "source", "destination"),
    [
        ("ppkt", INPUT, HIS),
        ("cpkt", OUTPUT, MINE),
        ("upkt", MINE, OUTPUT),
        ("rppkt", MINE, HIS),
        ("repkt", INPUT + MINE, OUTPUT),
        ("recpkt", INPUT + MINE, OUTPUT + MINE),
        ("respkt", INPUT + MINE, OUTPUT + HIS),
    ],
)
def test_data_of_operations_with_packets_lies_anywhere(
    name: str, source: list[Any], destination: list[Any]
) -> None:
    given = {"name": name, "channel_type": "memory", "src_buff": source, "dst_buff": destination}
    assert read(spoiled(f"{OPS}/0", given)).gpus[0].threadblocks[0].ops[0].name == name


def test_sizes_of_no_message_are_refused() -> None:
    text = json.dumps({**FOREIGN, "min_message_size": 2, "max_message_size": 1})
    with pytest.raises(PlanFormatError, match="min_message_size: no message has 2 to 1 bytes"):
        read(text)


def test_what_is_no_json_is_refused() -> None:
    for text in ("", "{", "[" * 100_000, '{"name": "a", "name": "b"}', "3", "null", "1" * 5000):
        with pytest.raises(PlanFormatError):
            read(text)


def test_a_key_that_stands_twice_is_found_among_many() -> None:
    many = ", ".join(f'"k{i}": 0' for i in range(200_000))
    with pytest.raises(PlanFormatError, match="the key 'k199999' stands twice"):
        read(f'{{{many}, "k199999": 1}}')


def test_what_has_no_meaning_here_is_of_no_weight(write_program: Write, tmp_path: Path) -> None:
    text = write_program("all_reduce_two_shot").to_json()
    strange = '{"strange": ' + "[" * 900 + "]" * 900 + ", " + text[1:]
    file = tmp_path / "plan.json"
    for content in (strange.encode(), strange.encode("utf-16"), strange.encode("utf-8-sig")):
        file.write_bytes(content)
        assert mscclpp.ExecutionPlan(file, 0).algorithm.plan == read(strange)
    assert prove_kept(read(strange))
    file.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(PlanFormatError, match="this is no JSON"):
        mscclpp.ExecutionPlan(file, 0)
