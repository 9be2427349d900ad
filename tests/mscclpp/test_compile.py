"""`mscclpp.compile`, and what programs tell of themselves."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

import mscclpp
from mscclpp.language import AllReduce, CollectiveProgram, ProgramError, Rank, ReduceOperationType

Write = Callable[..., CollectiveProgram]


def wrong(spec: mscclpp.AlgoSpec | None = None, *, chunk: int = 0) -> CollectiveProgram:
    with CollectiveProgram("wrong", AllReduce(2, 1, False), 2) as program:
        rank = Rank(0)
        rank.copy(rank.get_output_buffer()[chunk], rank.get_input_buffer()[chunk], tb=0)
    return program


def specification(**settings: object) -> mscclpp.AlgoSpec:
    return mscclpp.AlgoSpec(
        name="switch",
        collective=AllReduce(4, 1, True),
        nranks_per_node=4,
        world_size=4,
        in_place=True,
        instances=4,
        protocol="Simple",
        min_message_size=1 << 20,
        max_message_size=48 << 30,
        tags={"nvls": 1},
        **settings,  # type: ignore[arg-type]
    )


def test_a_function_and_a_specification_become_an_algorithm(write_program: Write) -> None:
    def algo(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
        return write_program("all_reduce_switch", spec=spec)

    algorithm = mscclpp.compile(algo=algo, algo_spec=specification(), rank=1)
    assert (algorithm.name, algorithm.collective, algorithm.rank) == ("switch", "allreduce", 1)
    assert algorithm.tags == {"nvls": 1}
    assert algorithm.message_size_range == (1 << 20, 48 << 30)
    assert (algorithm.is_dsl_algorithm(), algorithm.is_native_algorithm()) == (True, False)
    assert repr(algorithm) == "<allreduce 'switch' of 4 ranks>"
    assert algorithm.report
    assert len(algorithm.plan.gpus[0].threadblocks) == 4  # instances, once
    assert algorithm.to_json() == algorithm.program.to_json()
    algorithm.set_message_size_range(0, 1024)
    assert algorithm.message_size_range == (0, 1024)
    with pytest.raises(ValueError, match="no message has 2 to 1 bytes"):
        algorithm.set_message_size_range(2, 1)


def test_a_program_and_arguments_are_taken(write_program: Write) -> None:
    assert mscclpp.compile(write_program("all_reduce_packets")).name == "all_reduce_packets"
    assert mscclpp.compile(write_program, name="all_reduce_two_shot", ranks=3).name == "two_shot"
    with pytest.raises(TypeError, match="takes no ranks"):
        mscclpp.compile(write_program("all_reduce_packets"), ranks=3)
    with pytest.raises(TypeError, match="takes a program, or a function that writes one, not 5"):
        mscclpp.compile(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must return a CollectiveProgram"):
        mscclpp.compile(lambda: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(mscclpp.language.ProgramError, match="there is no rank 2"):
        mscclpp.compile(write_program("all_reduce_packets"), rank=2)
    with pytest.raises(mscclpp.language.ProgramError, match="there is no rank '0'"):
        mscclpp.compile(write_program("all_reduce_packets"), rank="0")  # type: ignore[arg-type]


def test_a_wrong_program_is_compiled_only_by_those_who_insist() -> None:
    with pytest.raises(mscclpp.NotProved) as error:
        mscclpp.compile(wrong, chunk=1)
    (line, *_) = error.value.locations
    assert line.text().startswith('with CollectiveProgram("wrong"')
    assert "nobody writes output[0] of rank 0" in str(error.value)
    assert error.value.report.findings
    algorithm = mscclpp.compile(wrong, verify=False)
    assert algorithm.report is None
    assert '"name": "wrong"' in algorithm.to_json()
    with pytest.raises(ValueError, match="is not right:\nwrong result: output"):
        mscclpp.register(algorithm)


def test_reductions_are_not_mixed() -> None:
    with CollectiveProgram("mixed", AllReduce(1, 3, True), 1) as program:
        data = Rank(0).get_input_buffer()
        Rank(0).reduce(data[0:1], [data[1:2]], tb=0, reduce_op=ReduceOperationType.min)
        Rank(0).reduce(data[0:1], [data[2:3]], tb=0)  # here
    for verify in (True, False):
        with pytest.raises(ProgramError, match="reduces with sum here, and with min") as error:
            mscclpp.compile(program, verify=verify)
        assert "write a program for each" in str(error.value)
        lines = [line.text() for line in error.value.locations]
        assert lines[0].endswith("# here")
        assert "ReduceOperationType.min" in lines[1]


def test_a_program_is_simulated_and_drawn(write_program: Write) -> None:
    program = write_program("all_reduce_two_shot", ranks=4)
    small, large = program.simulate(1 << 10), program.simulate(1 << 24, units=4)
    assert 0 < small.seconds < large.seconds
    assert "two_shot" in str(large)
    slow = {"slow_ranks": [[1, 8.0]]}
    assert program.simulate(1 << 24, slow).seconds > program.simulate(1 << 24).seconds
    with pytest.raises(ValueError, match=r"in 1000000000 units are more than .* fewer units"):
        program.simulate(1 << 20, units=10**9)
    picture = program.draw(1 << 20)
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "two_shot: 4 ranks" in picture


def test_a_program_explains_itself(write_program: Write) -> None:
    text = write_program("all_reduce_two_shot", ranks=2).explain()
    assert "two_shot: allreduce of 2 ranks, in place; chunks: 2 of input, 2 of output, 0 of" in text
    assert "proved right, for any count of elements" in text
    assert "rank 1, thread block 0\n" in text
    assert (
        "rres input[0], input[0] of 1 = input[0], input[0] of 1  (all_reduce_two_shot.py:" in text
    )
    assert "rlxwait from 1  (" in text
    text = write_program("all_gather_port").explain()
    assert "pipeline of 1048576 bytes at a time" in text
    assert "    sem_release 0  (" in text
    text = write_program("all_to_all_group").explain()
    assert "barrier 0 of 2 thread blocks" in text
    assert "put output[0] of 1 = input[1], share 1 of 2" in text
    text = write_program("all_reduce_switch").explain()
    assert "glres input[0] of ranks [0, 1] = input[0] of ranks [0, 1]" in text
    assert "wrong: " in wrong().explain()
