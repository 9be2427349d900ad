"""Programs for `torchcomms plan`: FILE.py:NAME.

The command finds this through the entry point `torchcomms.plans`.
"""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import mscclpp
from mscclpp.compiler import DslAlgorithm
from mscclpp.language import CollectiveProgram, ProgramError, collectives

if TYPE_CHECKING:
    from torchcomms.plan import Timeline

T = TypeVar("T")

_NAMES = {
    "all_reduce": collectives.AllReduce,
    "all_gather": collectives.AllGather,
    "reduce_scatter": collectives.ReduceScatter,
    "all_to_all": collectives.AllToAll,
}
_RANKS = ("ranks", "num_ranks", "world_size", "size", "n")  # how a function may call their number


class Wrong:
    """What is wrong with a program before it comes to the proof, as a report."""

    def __init__(self, error: ProgramError) -> None:
        self._error = error

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self._error}\n"


class Program:
    """A program, as `torchcomms plan` asks plans. Errors are ValueErrors."""

    def __init__(self, program: CollectiveProgram) -> None:
        self._program = program

    def __str__(self) -> str:
        return self._asked(self._program.explain)

    def to_json(self) -> str:
        return self._asked(self._program.to_json)

    def verify(self) -> mscclpp.Report | Wrong:
        try:
            return self._program.verify()
        except mscclpp.CannotVerify as error:
            raise ValueError(error) from error
        except ProgramError as error:
            return Wrong(error)

    def simulate(
        self, bytes: int, machine: Mapping[str, Any] | None = None, *, units: int = 1
    ) -> Timeline:
        return self._asked(lambda: self._program.simulate(bytes, machine, units=units))

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except ProgramError as error:
            raise ValueError(error) from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a function that writes a program has to be told."""
    group = parser.add_argument_group("for programs in Python, FILE.py:NAME")
    group.add_argument("--ranks", type=int, metavar="N", help="what a function NAME is told")
    group.add_argument("--instances", type=int, default=1, metavar="N", help="the same")
    group.add_argument(
        "--collective",
        choices=_NAMES,
        help="of the specification that it takes; default: as the function is called",
    )
    group.add_argument("--in-place", action="store_true", help="whether that collective is")


def read_program(arguments: argparse.Namespace) -> Program | None:
    """What FILE.py:NAME is: a program, a compiled one, or a function that writes one. None: the
    argument does not look like that.

    Raises:
        ValueError: it is nothing of these, or the file cannot be executed.
    """
    name: str = arguments.file
    file, _, attribute = name.rpartition(":")
    if not file.endswith(".py"):
        return None
    names = _executed(Path(file))
    if attribute not in names:
        raise ValueError(f"{file} has no '{attribute}'")
    found = names[attribute]
    if not isinstance(found, (CollectiveProgram, DslAlgorithm)) and callable(found):
        try:
            found = _called(name, found, arguments)
        except ProgramError as error:
            raise ValueError(error) from error
    if isinstance(found, DslAlgorithm):
        found = found.program
    if not isinstance(found, CollectiveProgram):
        raise ValueError(f"{name} is no CollectiveProgram but {found!r}")
    return Program(found)


def _executed(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"there is no file '{file}'")
    sys.path.insert(0, str(file.parent))  # as Python itself does
    try:
        return runpy.run_path(str(file))
    except Exception as error:
        raise ValueError(f"{file}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))


def _called(name: str, function: Callable[..., Any], told: argparse.Namespace) -> object:
    """What the function writes: one of a specification, of a number of ranks, or of nothing."""
    parameters = inspect.signature(function).parameters
    required = [p.name for p in parameters.values()
                if p.default is p.empty and p.kind < p.VAR_POSITIONAL]  # fmt: skip
    if told.ranks is None and required:
        raise ValueError(f"{name} is a function of {', '.join(required)}: say --ranks")
    arguments: dict[str, Any] = {}
    word = next((word for word in _RANKS if word in parameters), None)
    if word is None and required:
        arguments[required[0]] = _specification(name, told)
    elif told.ranks is not None:
        if word is None:
            raise ValueError(
                f"{name} takes none of {', '.join(_RANKS)}, so it cannot be told --ranks"
            )
        arguments[word] = told.ranks
        if told.instances != 1:
            arguments["instances"] = told.instances
    return function(**arguments)


def _specification(name: str, told: argparse.Namespace) -> mscclpp.AlgoSpec:
    attribute = name.rpartition(":")[2]
    collective = told.collective
    if collective is None:
        plain = attribute.replace("_", "").lower()
        collective = next((c for c in _NAMES if c.replace("_", "") in plain), None)
    if collective is None:
        raise ValueError(f"{name} takes a specification: say --collective")
    return mscclpp.AlgoSpec(
        name=attribute,
        collective=_NAMES[collective](told.ranks, 1, told.in_place),
        nranks_per_node=told.ranks,
        world_size=told.ranks,
        in_place=told.in_place,
        instances=told.instances,
        protocol="Simple",
    )
