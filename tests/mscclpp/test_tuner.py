"""Measuring which algorithm is the fastest."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Rank, Ranks

import mscclpp
from mscclpp import tuner
from mscclpp.benches import CpuBench
from mscclpp.defaults import DefaultAlgorithm

MakeRanks = Callable[[int], Ranks]
PROGRAMS = Path(__file__).parent / "programs"
SIZES = (1000, 1 << 16)


def group_of(rank: Rank, folder: str) -> mscclpp.CommGroup:
    os.environ["CTRAN_TUNING_DIR"] = folder
    return mscclpp.CommGroup(store=rank.store("tune"), rank=rank.rank, size=rank.size)


def test_a_table_is_of_one_engine_and_of_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    comm = mscclpp.CommGroup().communicator

    def path() -> Path:
        return tuner._path(comm, CpuBench("any"), [], ["allreduce"], [8])

    paths = {path()}
    assert path() in paths
    monkeypatch.setattr(tuner, "version", "another")
    paths.add(path())
    monkeypatch.setattr(tuner.engine, "digest", lambda: "another")
    paths.add(path())
    monkeypatch.setattr(tuner._runtime, "gpu_count", lambda: 2)
    monkeypatch.setattr(tuner._runtime, "gpu_name", lambda number: f"GPU {number}")
    for links in ("0-1:1,1,0 1-0:1,1,0", "0-1:0,0,0 1-0:0,0,0"):
        monkeypatch.setattr(tuner._runtime, "gpu_links", lambda links=links: links)
        paths.add(path())
    assert len(paths) == 5


def program(ranks: int) -> mscclpp.DslAlgorithm:
    write = runpy.run_path(str(PROGRAMS / "all_reduce_two_shot.py"))["program"]
    return mscclpp.compile(write, ranks=ranks)


def measures(rank: Rank, folder: str) -> dict[str, object]:
    told: list[tuple[float, str]] = []
    with group_of(rank, folder) as group:
        defaults = list(mscclpp.AlgorithmCollectionBuilder().build_default_algorithms())
        tuned = mscclpp.tune(
            group,
            ["allreduce", "allgather", "reducescatter", "alltoall", "broadcast"],
            SIZES,
            1.0,
            algorithms=[*defaults, program(rank.size)],
            progress=lambda done, following: told.append((done, following)),
        )
        assert tuned.measured
        again = mscclpp.tune(
            group.communicator,
            list(tuned.seconds),
            SIZES,
            1.0,
            algorithms=tuned.algorithms.values(),
        )
        assert not again.measured
        assert again.seconds == tuned.seconds
        assert mscclpp.tune(group, sizes=SIZES, budget_s=0.2, again=True).measured
    unit = 4 * rank.size
    assert told[0] == (0.0, f"allreduce, {1000 // unit * unit} bytes")
    assert told[-1] == (1.0, "")
    for collective, by_size in tuned.seconds.items():
        assert list(by_size) == [size // unit * unit for size in SIZES]
        for size, times in by_size.items():
            fastest = tuned.best(collective, size - 1)
            assert fastest.collective == collective
            assert times[fastest.name] == min(times.values())
            assert len(times) == sum(a.collective == collective for a in tuned.algorithms.values())
        assert tuned.best(collective, 1 << 40) is tuned.best(collective, SIZES[-1] // unit * unit)
    with pytest.raises(ValueError, match="'nothing' was not measured: "):
        tuned.best("nothing", 8)
    return dict(tuned.seconds)


@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_get_one_table_that_is_kept(ranks: MakeRanks, tmp_path: Path, size: int) -> None:
    first, *others = ranks(size).run(measures, str(tmp_path))
    assert all(other == first for other in others)
    (kept, _) = sorted(tmp_path.iterdir(), key=lambda path: -path.stat().st_size)
    assert json.loads(kept.read_text())["format"] == 2


def selects(rank: Rank, folder: str) -> None:
    with group_of(rank, folder) as group:
        tuned = mscclpp.tune(group, sizes=[4096], budget_s=0.2)
        tuned.path.write_text("no table")
        group.barrier()
        assert mscclpp.tune(group, sizes=[4096], budget_s=0.2).measured
        builder = mscclpp.AlgorithmCollectionBuilder()
        for algorithm in tuned.algorithms.values():
            builder.add_algorithm_builder(algorithm)
        builder.set_algorithm_selector(tuned.select)
        request = mscclpp.CollectiveRequest(
            2, 2, rank.rank, 1, 1, 4096, 0, "allreduce", mscclpp.DataType.float32
        )
        assert builder.build().select_algorithm(request) is tuned.best("allreduce", 4096)
        request.collective = "allgather"
        assert builder.build().select_algorithm(request) is None


def test_it_selects_for_collections(ranks: MakeRanks, tmp_path: Path) -> None:
    ranks(2).run(selects, str(tmp_path))


class Wrong(DefaultAlgorithm):
    """Does nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = "wrong"

    def execute(self, *_: object, **__: object) -> int:
        return 0


def finds_out(rank: Rank, folder: str) -> None:
    with group_of(rank, folder) as group:
        for name in ("default_allreduce_packet", "default_broadcast_fullmesh"):
            wrong = Wrong(name)
            with pytest.raises(mscclpp.CommError, match="'wrong' gives wrong results at 4096 byt"):
                mscclpp.tune(group, [wrong.collective], [4096], 0.2, algorithms=[wrong])
        with pytest.raises(ValueError, match="sizes must be positive"):
            mscclpp.tune(group, sizes=[1024, -4])
        for nothing in ({"collectives": []}, {"sizes": []}):
            with pytest.raises(ValueError, match="there is nothing to measure"):
                mscclpp.tune(group, **nothing)
        with pytest.raises(TypeError, match=r"a list of names, such as \['allreduce'\]"):
            mscclpp.tune(group, "allreduce")
        with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
            mscclpp.tune(group, sizes=[1.5])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=r"comm must be a Communicator.*, not int"):
            mscclpp.tune(5)
        with pytest.raises(ValueError, match="no algorithm for 'gather' to measure"):
            mscclpp.tune(group, ["gather"])
        with pytest.raises(ValueError, match="must be positive"):
            mscclpp.tune(group, budget_s=0)
        with pytest.raises(ValueError, match="the same name"):
            mscclpp.tune(group, algorithms=[program(2), program(2)])
        assert not list(Path(folder).iterdir())


def test_a_wrong_algorithm_is_an_error(ranks: MakeRanks, tmp_path: Path) -> None:
    ranks(2).run(finds_out, str(tmp_path))
