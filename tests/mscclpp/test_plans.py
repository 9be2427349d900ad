"""Programs become the execution plans that their authors expect: fields, order, numbers, bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mscclpp.language import AlgoSpec, AllReduce, CollectiveProgram, ReplicationPolicy, read

Write = Callable[..., CollectiveProgram]
Names = Callable[..., str]
PROGRAMS = Path(__file__).parent / "programs"
ALL = sorted(path.stem for path in PROGRAMS.glob("*.py"))


def test_packets_of_two_ranks_become_just_this(write_program: Write) -> None:
    plan = json.loads(write_program("all_reduce_packets").to_json())
    assert plan["gpus"][0] == {
        "id": 0,
        "input_chunks": 2,
        "output_chunks": 2,
        "scratch_chunks": 3,
        "threadblocks": [
            {
                "id": 0,
                "ops": [
                    {
                        "name": "ppkt",
                        "src_buff": [{"type": "i", "index": 1, "size": 1}],
                        "dst_buff": [{"buffer_id": 0, "index": 1, "size": 1}],
                        "channel_type": "memory",
                    }
                ],
                "channels": [],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
            },
            {
                "id": 1,
                "ops": [
                    {
                        "name": "respkt",
                        "src_buff": [
                            {"type": "i", "index": 0, "size": 1},
                            {"type": "s", "index": 0, "size": 1},
                        ],
                        "dst_buff": [
                            {"type": "i", "index": 0, "size": 1},
                            {"buffer_id": 0, "index": 0, "size": 1},
                        ],
                        "channel_type": "memory",
                        "reduce_op": "sum",
                    }
                ],
                "channels": [],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
            },
            {
                "id": 2,
                "ops": [
                    {
                        "name": "upkt",
                        "src_buff": [{"type": "s", "index": 1, "size": 1}],
                        "dst_buff": [{"type": "i", "index": 1, "size": 1}],
                    }
                ],
                "channels": [],
                "remote_buffer_refs": [],
            },
        ],
        "channels": [{"channel_type": "memory", "connected_to": [1]}],
        "remote_buffers": [{"rank": 1, "type": "s", "access_channel_types": ["memory"]}],
        "semaphores": [],
    }


def test_keys_stand_in_this_order(write_program: Write) -> None:
    text = write_program("all_gather_port").to_json(indent=None)
    plan = json.loads(text)
    assert list(plan) == [
        "name", "collective", "protocol", "inplace", "reuse_resources", "gpus",
        "num_threads_per_block", "use_double_scratch_buffer", "buffer_alignment",
        "min_message_size", "max_message_size",
    ]  # fmt: skip
    assert list(plan["gpus"][0]) == [
        "id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels",
        "remote_buffers", "semaphores",
    ]  # fmt: skip
    block = plan["gpus"][0]["threadblocks"][1]
    assert list(block) == ["id", "ops", "channels", "remote_buffer_refs"]
    assert list(block["ops"][-1]) == ["name", "iter_context", "ops"]
    pws = next(op for op in block["ops"][-1]["ops"] if op["name"] == "pws")
    assert list(pws) == ["name", "src_buff", "dst_buff", "channel_ids", "channel_type"]
    assert plan["max_message_size"] == 2**64 - 1
    assert plan["num_threads_per_block"] == 1024


def test_a_reduction_from_all_and_to_all_is_one_instruction(
    write_program: Write, names: Names
) -> None:
    plan = write_program("all_reduce_two_shot", ranks=4).plan()
    for rank in range(4):
        assert names(plan, rank) == "nop rlxsignal nop rlxwait nop rres nop signal wait nop"
    (rres,) = [op for op in plan.gpus[2].threadblocks[0].ops if op.name == "rres"]
    peers = [refs.rank for refs in plan.gpus[2].remote_buffers]
    assert peers == [0, 1, 3]
    assert [type(part).__name__ for part in rres.src_buff] == ["LocalPart"] + ["RemotePart"] * 3
    assert [type(part).__name__ for part in rres.dst_buff] == ["LocalPart"] + ["RemotePart"] * 3
    assert {part.index for part in (*rres.src_buff, *rres.dst_buff)} == {2}
    assert rres.channel_ids == ()


def test_a_switch_channel_is_reduced_and_stored_at_once(write_program: Write, names: Names) -> None:
    plan = write_program("all_reduce_switch").plan()
    exchange = "nop rlxsignal nop rlxwait nop"
    assert names(plan, 1) == f"{exchange} glres {exchange}"
    memory, switch = json.loads(write_program("all_reduce_switch").to_json())["gpus"][1]["channels"]
    assert memory == {"channel_type": "memory", "connected_to": [0]}
    assert switch == {
        "channel_type": "switch",
        "buffer_type": "i",
        "rank_groups": [{"size": 2, "ranks": [0, 1]}],
    }


def test_a_loop_becomes_a_pipeline_on_each_thread_block(write_program: Write, names: Names) -> None:
    plan = write_program("all_gather_port").plan()
    for rank in range(3):
        assert names(plan, rank, 0) == "pipeline"
        assert names(plan, rank, 1) == "nop signal nop wait nop pipeline"
        first, second = (block.ops[-1] for block in plan.gpus[rank].threadblocks)
        assert [op.name for op in first.ops] == ["copy", "nop", "sem_release", "copy"]
        assert [op.name for op in second.ops] == [
            "sem_acquire",
            "nop",
            "pws",
            "flush",
            "wait",
            "nop",
        ]
        assert first.iter_context is not None
        assert (first.iter_context.unit_size, first.iter_context.num_chunks) == (2**20, 1)
        assert [s.init_value for s in plan.gpus[rank].semaphores] == [0]


def test_a_group_shares_an_operation(write_program: Write, names: Names) -> None:
    plan = write_program("all_to_all_group", blocks=3).plan()
    exchange = "nop rlxsignal nop rlxwait nop"
    assert names(plan, 0, 0) == f"copy {exchange} barrier put barrier signal wait"
    assert names(plan, 0, 1) == names(plan, 0, 2) == "copy barrier put barrier"
    for number, block in enumerate(plan.gpus[1].threadblocks):
        for op in block.ops:
            if op.name in ("copy", "put"):
                assert op.tbg_info is not None
                assert (op.tbg_info.tb_id, op.tbg_info.tbg_size) == (number, 3)
            if op.name == "barrier":
                assert (op.barrier_id, op.num_threadblocks) == (0, 3)


def test_data_that_others_are_told_of_is_complete(write_program: Write, names: Names) -> None:
    plan = write_program("send_receive").plan()
    assert names(plan, 0) == "copy nop signal nop"
    assert names(plan, 1) == "nop wait nop get"


def test_thread_blocks_that_are_left_out_do_nothing() -> None:
    with CollectiveProgram("gap", AllReduce(1, 1, False), 1) as program:
        from mscclpp.language import Rank

        rank = Rank(0)
        rank.copy(rank.get_output_buffer()[0:1], rank.get_input_buffer()[0:1], tb=2)
    assert [block.id for block in program.plan().gpus[0].threadblocks] == [0, 1, 2]
    assert [len(block.ops) for block in program.plan().gpus[0].threadblocks] == [0, 0, 1]


def test_a_specification_says_all_that_a_program_says(write_program: Write) -> None:
    settings = {
        "instances": 2,
        "protocol": "LL",
        "instr_fusion": False,
        "auto_sync": False,
        "replication_policy": ReplicationPolicy.none,
        "reuse_resources": True,
        "num_threads_per_block": 512,
        "use_double_scratch_buffer": True,
        "buffer_alignment": 32,
        "min_message_size": 1 << 10,
        "max_message_size": 48 << 30,
    }
    spec = AlgoSpec(
        name="switch",
        collective=AllReduce(2, 1, True),
        nranks_per_node=2,
        world_size=2,
        in_place=True,
        tags={"nvls": 1},
        **settings,
    )
    said = write_program("all_reduce_switch", spec=spec).to_json()
    assert said == write_program("all_reduce_switch", **settings).to_json()
    head = {name: value for name, value in json.loads(said).items() if name != "gpus"}
    assert head == {
        "name": "switch",
        "collective": "allreduce",
        "protocol": "LL",
        "inplace": True,
        "reuse_resources": True,
        "num_threads_per_block": 512,
        "use_double_scratch_buffer": True,
        "buffer_alignment": 32,
        "min_message_size": 1 << 10,
        "max_message_size": 48 << 30,
    }


@pytest.mark.parametrize("name", ALL)
def test_the_same_program_is_the_same_bytes_in_every_process(
    write_program: Write, name: str
) -> None:
    path = str(PROGRAMS / f"{name}.py")
    source = f"import runpy; print(runpy.run_path({path!r})['program'](instances=2).to_json())"
    texts = {
        subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {write_program(name, instances=2).to_json() + "\n"}


@pytest.mark.parametrize("name", ALL)
def test_lines_of_the_program_are_in_the_plan_and_in_the_json_if_asked_for(
    write_program: Write, name: str
) -> None:
    program = write_program(name)
    for gpu in program.plan().gpus:
        for block in gpu.threadblocks:
            for op in block.ops:
                assert op.locations
                for location in op.locations:
                    assert location.file == str(PROGRAMS / f"{name}.py")
    plain, located = program.to_json(), program.to_json(locations=True)
    assert "locations" not in plain
    assert f"{name}.py:" in located
    assert read(located).gpus[0].threadblocks[0].ops[0].locations
    assert read(located) == read(plain) == program.plan()
