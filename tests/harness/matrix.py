"""Cases of operation x type x reduction x size x world x ..., and how a rank runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from harness import sizes
from harness.data import COMPLEX, FLOATS, OPAQUE, REDUCIBLE, bits, same_bits
from harness.devices import ONLY_TO_OTHERS, VENDORS
from harness.operations import OPERATIONS, Arguments, Call
from harness.pairs import covering
from harness.reference import OPS, is_defined
from harness.worker import Rank

WORLDS = (1, 2, 3, 4, 7, 8)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


DTYPES = {_name(dtype): dtype for dtype in (*REDUCIBLE, *OPAQUE)}
NO_OP = "-"

# In the order of the fields of Case, after `backend`.
AXES: dict[str, tuple[Any, ...]] = {
    "operation": tuple(OPERATIONS),
    "dtype": tuple(DTYPES),
    "op": (*OPS, NO_OP),
    "size": sizes.NAMES,
    "world": WORLDS,
    "async_op": (False, True),
    "in_place": (False, True),
}


@dataclass(frozen=True)
class Case:
    backend: str
    operation: str
    dtype: str
    op: str
    size: str
    world: int
    async_op: bool
    in_place: bool

    def __str__(self) -> str:
        parts = [self.backend, self.operation, self.dtype, self.op, self.size, f"x{self.world}"]
        parts += ["async"] if self.async_op else []
        parts += ["in place"] if self.in_place else []
        return ", ".join(part for part in parts if part != NO_OP)

    def arguments(self) -> Arguments:
        dtype = DTYPES[self.dtype]
        count = sizes.elements(self.size, dtype.itemsize, self.world)
        counts = [count] * self.world
        if OPERATIONS[self.operation].varying:
            # The first block is the largest, the last is empty, all differ where they can.
            counts = [max(count - r, 0) for r in range(self.world)]
            counts[-1] = counts[-1] if self.world < 3 else 0
        root = (len(self.size) + len(self.dtype)) % self.world
        op = None if self.op == NO_OP else self.op
        return Arguments(dtype, op, root, tuple(counts), self.in_place, len(self.operation))


def makes_sense(fields: Mapping[str, Any]) -> bool:
    """Whether some fields of a case can go together."""
    dtype = DTYPES[fields["dtype"]] if "dtype" in fields else None
    op = fields.get("op")
    if dtype is not None and op not in (None, NO_OP) and not _reduces(op, dtype):
        return False
    if "operation" not in fields:
        return True
    operation = OPERATIONS[fields["operation"]]
    if operation.reduces and (op == NO_OP or dtype in OPAQUE):
        return False
    if not operation.reduces and op not in (None, NO_OP):
        return False
    if fields.get("world", operation.least) < operation.least:
        return False
    return operation.in_place or not fields.get("in_place", False)


def _reduces(op: str, dtype: torch.dtype) -> bool:
    return dtype not in OPAQUE and is_defined(op, dtype)


def all_cases(backend: str, **fixed: Any) -> Iterator[Case]:
    """The product, or the part of it with some fields as given."""

    def completed(fields: dict[str, Any], names: Sequence[str]) -> Iterator[Case]:
        if not makes_sense(fields):
            return
        if not names:
            yield Case(backend, **fields)
            return
        for value in AXES[names[0]]:
            yield from completed({**fields, names[0]: value}, names[1:])

    return filter(_is_possible, completed(fixed, [name for name in AXES if name not in fixed]))


def pairwise(backend: str) -> list[Case]:
    """Cases in which every pair of values of two axes occurs that occurs in any case."""
    cases = [Case(backend, **fields) for fields in covering(AXES, makes_sense)]
    return list(filter(_is_possible, cases))


def _is_possible(case: Case) -> bool:
    """Some cannot send to themselves, so that alone there is nobody to exchange with."""
    if case.backend in VENDORS:
        return _vendor_knows(case)
    return case.operation != "batch" or case.world > 1 or case.backend not in ONLY_TO_OTHERS


def _vendor_knows(case: Case) -> bool:
    """Whether NCCL has the reduction."""
    if case.op == NO_OP:
        return True
    dtype = DTYPES[case.dtype]
    if dtype in (torch.int16, torch.uint16):
        return False
    if case.op in ("BAND", "BOR", "BXOR"):
        return dtype == torch.bool and case.op != "BXOR"
    if dtype in COMPLEX:
        return case.op != "PRODUCT"
    return dtype.itemsize > 1 or not case.op.startswith("PREMUL")


def _close(a: torch.Tensor, b: torch.Tensor, world: int, vendor: bool) -> bool:
    """For sums in any order, rounded on the way; types of 8 bits, but for vendors, at the end."""
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    step = torch.finfo(a.dtype).eps
    off = step if a.element_size() == 1 and not vendor else 4 * world * step
    return torch.allclose(a.double(), b.double(), rtol=off, atol=off, equal_nan=True)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Of two zeros others than us may choose either."""
    return torch.allclose(a.double(), b.double(), rtol=0, atol=0, equal_nan=True)


def _equality(case: Case) -> Callable[[torch.Tensor, torch.Tensor], bool]:
    if case.backend.startswith("ctran") or case.op == NO_OP:
        return same_bits
    dtype = DTYPES[case.dtype]
    if case.op in ("MIN", "MAX"):
        return _equal if dtype in FLOATS else same_bits
    if dtype in (*FLOATS, *COMPLEX):
        return partial(_close, world=case.world, vendor=case.backend in VENDORS)
    return same_bits


@dataclass(frozen=True)
class Report:
    """What a rank says about a case."""

    problems: list[str]
    digest: str  # of the results' bits


def prepared(rank: Rank, operation: str, arguments: Arguments, backend: str) -> Call:
    call = Call(rank.rank, rank.size, arguments, backend, rank.device(backend))
    OPERATIONS[operation].prepare(rank.comm(backend), call)
    return call


def run_case(rank: Rank, case: Case) -> Report:
    """Makes the call and looks at everything it may have touched."""
    call = prepared(rank, case.operation, case.arguments(), case.backend)
    work = call.issue(case.async_op)
    if case.async_op:
        work.wait()
    rank.synchronize(case.backend)
    digest = hashlib.blake2b(digest_size=8)
    for result in call.results():
        digest.update(bits(result).numpy().tobytes())
    return Report(call.problems(_equality(case)), digest.hexdigest())


def run_cases(rank: Rank, cases: Sequence[Case]) -> list[Report]:
    return [run_case(rank, case) for case in cases]


def check(case: Case, reports: Sequence[Report]) -> None:
    """Raises AssertionError with what is wrong on any rank."""
    problems = [problem for report in reports for problem in report.problems]
    if case.operation == "all_reduce" and len({report.digest for report in reports}) != 1:
        problems.append("ranks have different bits")
    assert not problems, f"{case}\n" + "\n".join(problems)
