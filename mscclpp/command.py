"""Programs for `torchcomms plan`: FILE.py:NAME.

The command finds this through the entry point `torchcomms.plans`.
"""

from __future__ import annotations

import argparse
import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import mscclpp
from mscclpp import engine
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
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


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
        except (mscclpp.CannotVerify, engine.EngineError) as error:
            raise ValueError(_said(error)) from error
        except ProgramError as error:
            return Wrong(error)

    def simulate(
        self, bytes: int, machine: Mapping[str, Any] | None = None, *, units: int = 1
    ) -> Timeline:
        return self._asked(lambda: self._program.simulate(bytes, machine, units=units))

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except (ProgramError, engine.EngineError) as error:
            raise ValueError(_said(error)) from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a function that writes a program has to be told."""
    group = parser.add_argument_group("for programs in Python, FILE.py:NAME")
    group.add_argument("--ranks", type=_count, metavar="N", help="what a function NAME is told")
    group.add_argument("--instances", type=_count, default=1, metavar="N", help="the same")
    group.add_argument(
        "--collective",
        choices=_NAMES,
        help="of the specification that it takes; default: as the function is called",
    )
    group.add_argument("--in-place", action="store_true", help="whether that collective is")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text:.40}' is not a number, 1 or more")
    return int(text)


def read_program(arguments: argparse.Namespace) -> Program | None:
    """What FILE.py:NAME is: a program, a compiled one, or a function that writes one. None: the
    argument does not look like that.

    Raises:
        ValueError: it is nothing of these, or the file cannot be executed.
    """
    name: str = arguments.file
    path, _, attribute = name.rpartition(":")
    if name.endswith(".py") or not attribute:
        path, attribute = name.removesuffix(":"), ""
    if not path.endswith(".py"):
        return None
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file '{file}'")
    if not attribute:
        raise ValueError(f"{file} is a program in Python: add :FUNCTION, as in {file}:all_reduce")
    with _errors_of(file):
        names = runpy.run_path(str(file))
    if attribute not in names:
        raise ValueError(f"{file} has no '{attribute}'{_instead(names)}")
    found = names[attribute]
    is_written = isinstance(found, (CollectiveProgram, DslAlgorithm))
    if inspect.isclass(found):
        raise ValueError(f"{name} is a class: name a program, or a function that writes one")
    if is_written and arguments.ranks is not None:
        raise ValueError(f"{name} is already written, so it cannot be told --ranks")
    is_called = not is_written and callable(found)
    if is_called:
        call = _prepared(name, found, arguments)
        with _errors_of(file):
            found = call()
    if isinstance(found, DslAlgorithm):
        found = found.program
    if not isinstance(found, CollectiveProgram):
        is_what = "returns" if is_called else "is"
        raise ValueError(f"{name} {is_what} no CollectiveProgram but {_shown(found)}")
    return Program(found)


@contextmanager
def _errors_of(file: Path) -> Iterator[None]:
    """Around what the user's file does: what it raises becomes a ValueError with the line. Modules
    beside the file can be imported, as Python itself lets them."""
    sys.path.insert(0, str(file.parent))
    try:
        yield
    except ProgramError as error:
        raise ValueError(_said(error)) from error
    except SystemExit as error:
        raise ValueError(
            f"{_line_of(error, file)}: it exits (SystemExit: {error}); a file that is read must "
            'not, except under `if __name__ == "__main__":`'
        ) from error
    except SyntaxError as error:
        where = f"{error.filename or file}:{error.lineno or 1}"
        raise ValueError(f"{where}: {type(error).__name__}: {error.msg}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        kind, text = type(error).__name__, str(error)
        raise ValueError(f"{_line_of(error, file)}: {kind}{': ' * bool(text)}{text}") from error
    finally:
        with suppress(ValueError):  # the file may have removed it
            sys.path.remove(str(file.parent))


def _said(error: Exception) -> str:
    """In one line: without the text of the program's lines."""
    if not isinstance(error, ProgramError) or not error.locations:
        return str(error)
    first, *more = dict.fromkeys(error.locations)
    return f"{first}: {error.why}{''.join(f' (and {location})' for location in more)}"


def _line_of(error: BaseException, file: Path) -> str:
    """The innermost line that is the user's: of this file, or of one beside it or below."""
    folder = file.resolve().parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if frame.filename.startswith(_HERE) or "site-packages" in path.parts:
            continue
        if path == file or path.resolve().is_relative_to(folder):
            return f"{frame.filename}:{frame.lineno}"
    return str(file)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:  # of the user's __repr__
        return f"a {type(value).__name__}"


def _instead(names: Mapping[str, Any]) -> str:
    """The functions and programs that the file has itself."""
    own = [
        name
        for name, value in names.items()
        if isinstance(value, (CollectiveProgram, DslAlgorithm))
        or (inspect.isfunction(value) and value.__module__ == "<run_path>")
    ]
    return f"; it has {', '.join(own[:8])}" if own else ""


def _prepared(
    name: str, function: Callable[..., Any], told: argparse.Namespace
) -> Callable[[], object]:
    """The call that writes the program: of a specification, of a number of ranks, or of nothing."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise ValueError(f"{name} does not say what it takes: name a function in Python") from None
    parameters = signature.parameters
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in rest]
    word = next((word for word in _RANKS if word in parameters), None)
    taken = [p for p in required if p != "instances"]
    takes_spec = word is None and bool(taken)
    what = taken[0] if takes_spec else word
    unknown = [p for p in required if p not in (what, "instances")]
    if unknown:
        raise ValueError(
            f"{name} takes {', '.join(required)}: it can be told a specification, or one of "
            f"{', '.join(_RANKS)}, and instances; give {', '.join(unknown)} a default"
        )
    if told.ranks is None and what in required:
        raise ValueError(f"{name} is a function of {', '.join(required)}: say --ranks")
    if told.ranks is not None and what is None:
        raise ValueError(f"{name} takes none of {', '.join(_RANKS)}, so it cannot be told --ranks")
    bound = signature.bind_partial()
    if takes_spec:
        bound.arguments[taken[0]] = _specification(name, told)
    elif told.ranks is not None and word is not None:
        bound.arguments[word] = told.ranks
    more = {}
    if "instances" in parameters:
        if told.instances != 1 or "instances" in required:
            bound.arguments["instances"] = told.instances
    elif told.instances != 1 and any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
        more["instances"] = told.instances
    elif told.instances != 1 and not takes_spec:
        raise ValueError(f"{name} takes no instances, so it cannot be told --instances")
    bound.apply_defaults()
    return lambda: function(*bound.args, **bound.kwargs, **more)


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
