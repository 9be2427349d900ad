"""tools/check_stubs.py sees a stub that differs from what pybind11 says of the binary."""

from __future__ import annotations

import importlib.util
import math
import types
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "check_stubs.py"
spec = importlib.util.spec_from_file_location("check_stubs", TOOL)
assert spec is not None
assert spec.loader is not None
check_stubs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_stubs)

# As pybind11 writes them.
SEND = (
    "send(self: m.C, tensor: torch.Tensor, dst: typing.SupportsInt, "
    "hints: dict[str, str] = {'a': 'b, c'}, timeout: datetime.timedelta | None = None) -> m.Work\n"
    "\nSends.\n"
)
SPLIT = (
    "split(*args, **kwargs)\nOverloaded function.\n\n"
    "1. split(self: m.C, ranks: list[int], name: str = '') -> m.C\n\nOne group.\n\n"
    "2. split(self: m.C, rank_groups: list[list[int]], arg1: <m.Op object at 0x1>) -> m.C\n"
)
STUB = """
class C:
    def send(self, tensor: Tensor, dst: int, hints: dict[str, str] = ..., *,
             timeout: timedelta | None = None) -> Work: ...
    @overload
    def split(self, ranks: list[int], name: str = ...) -> C: ...
    @overload
    def split(self, rank_groups: list[list[int]], op: Op, /) -> C: ...
    @property
    def size(self) -> int: ...
def version() -> str: ...
"""


@pytest.fixture
def module() -> types.ModuleType:
    def function(doc: str) -> types.FunctionType:
        made = types.FunctionType((lambda: None).__code__, {})
        made.__doc__ = doc
        return made

    made = types.ModuleType("m")
    members = {"send": function(SEND), "split": function(SPLIT), "size": property(len)}
    made.C = type("C", (), members)  # type: ignore[attr-defined]
    made.version = function("version() -> str")  # type: ignore[attr-defined]
    return made


def test_equal_signatures_pass(module: types.ModuleType) -> None:
    assert list(check_stubs.compare_signatures(module, STUB)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dst: int", "destination: int"),
        ("tensor: Tensor, dst: int", "dst: int, tensor: Tensor"),
        ("timeout: timedelta | None = None", "timeout: timedelta | None"),
        (", op: Op", ""),
        ("name: str = ...", "name: str"),
        ("def version()", "def version(verbose: bool = ...)"),
    ],
)
def test_a_difference_is_named(module: types.ModuleType, old: str, new: str) -> None:
    assert old in STUB
    complaints = list(check_stubs.compare_signatures(module, STUB.replace(old, new)))
    assert complaints
    assert all(":" in complaint for complaint in complaints)


CLOSE = """
@overload
def close(a: float, b: float, *, rel_tol: float = ..., abs_tol: float = ...) -> bool: ...
@overload
def close(first: float, second: float) -> bool: ...
"""


def test_a_c_function_has_one_of_the_stubs_spellings() -> None:
    module = types.ModuleType("m")
    module.close = math.isclose  # type: ignore[attr-defined]
    assert list(check_stubs.compare_signatures(module, CLOSE)) == []
    changed = CLOSE.replace("abs_tol: float = ...", "abs_tol: float")
    assert len(list(check_stubs.compare_signatures(module, changed))) == 1


def test_only_overloads_are_left_to_this_comparison() -> None:
    assert check_stubs.overloaded(STUB + CLOSE) == {"C.split", "close"}
