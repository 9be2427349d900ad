"""docs/migration.md is true: what it says is there is there, and takes what it says it takes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import Rank, Ranks
from harness.doc_blocks import ROOT

import torchcomms
from torchcomms import CommOptions, ReduceOp, _variables

MakeRanks = Callable[[int], Ranks]
PAGE = (ROOT / "docs" / "migration.md").read_text()
STATES = {"same", "extended", "different", "not on this device"}
STUB = {
    node.name: node
    for node in ast.parse((ROOT / "torchcomms" / "_comms.pyi").read_text()).body
    if isinstance(node, (ast.ClassDef, ast.FunctionDef))
}


def rows(start: str, end: str) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row of the tables between two headings, with the heading above each."""
    heading = ""
    for line in PAGE[PAGE.index(start) : PAGE.index(end)].splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        cells = [cell.strip() for cell in line.split(" | ")]
        if line.startswith("| ") and not line.startswith(("| name |", "| `torch.distributed` |")):
            yield heading, [cells[0].removeprefix("| "), *cells[1:]]


def names() -> Iterator[tuple[str, str, str]]:
    """(heading, name with its arguments, state) of every name of the other torchcomms."""
    for heading, cells in rows("### torchcomms\n", "### C++"):
        assert cells[1] in STATES, cells
        if cells[1] in ("different", "not on this device"):
            assert len(cells[2].strip(" |")) > 3, f"{cells[0]}: says not how, or why"
        for name in re.findall(r"`([^`]+)`", cells[0]):
            yield heading, name, cells[1]


ALL = list(names())
API = [entry for entry in ALL if entry[0].startswith("torchcomms")]


def find(heading: str, name: str) -> Any:
    """Raises AttributeError or ImportError if it is not there."""
    module, path = "torchcomms", name
    if heading.split(".")[-1][0].isupper():
        path = f"{heading.split('.')[-1]}.{name}"
    elif heading != "torchcomms":
        module = heading
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def arguments_of(call: str) -> list[tuple[str, bool]]:
    """(name, has a default) of the arguments in a call as the page writes it."""
    function = ast.parse(f"def f({call}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    required = len(given.args) - len(given.defaults)
    return [(argument.arg, i >= required) for i, argument in enumerate(given.args)]


def forms_of(heading: str, name: str, found: Any) -> list[inspect.Signature]:
    """All signatures of a function. Those of the compiled part are its stub's, which lint compares
    with the binary."""
    path = f"{heading.split('.')[-1]}.{name}" if "TorchComm" in heading else name
    *outer, last = path.split(".")
    compiled = getattr(found, "__module__", None) in ("torchcomms._comms", None)
    nodes: list[Any] = list(STUB.values()) if compiled else []
    for part in outer:
        nodes = list(STUB[part].body) if part in STUB else []
    nodes = [node for node in nodes if getattr(node, "name", "") == last]
    if nodes and isinstance(nodes[0], ast.ClassDef):
        nodes = [node for node in nodes[0].body if getattr(node, "name", "") == "__init__"]
    if not nodes:
        return [inspect.signature(found)]
    made = []
    for node in nodes:
        empty = inspect.Parameter.empty
        positional = node.args.args
        defaults = [empty] * (len(positional) - len(node.args.defaults)) + [None] * len(
            node.args.defaults
        )
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(a.arg, kind, default=d)
            for a, d in zip(positional, defaults, strict=True)
            if a.arg != "self"
        ]
        only = inspect.Parameter.KEYWORD_ONLY
        parameters += [inspect.Parameter(a.arg, only, default=None) for a in node.args.kwonlyargs]
        made.append(inspect.Signature(parameters))
    return made


def accepts(signature: inspect.Signature, arguments: list[tuple[str, bool]]) -> bool:
    """Whether it can be called so: all by position in this order, all by name, and without those
    that have a default."""
    everything = {name: object() for name, _ in arguments}
    needed = {name: object() for name, has_default in arguments if not has_default}
    try:
        by_position = signature.bind(*everything.values())
        signature.bind(**everything)
        signature.bind(**needed)
    except TypeError:
        return False
    return list(by_position.arguments) == list(everything)


HERE = [(h, n) for h, n, state in API if state != "not on this device"]


@pytest.mark.parametrize("heading", sorted({heading for heading, _ in HERE}))
def test_what_is_said_to_be_here_takes_the_same_arguments(heading: str) -> None:
    wrong = []
    for _, entry in [pair for pair in HERE if pair[0] == heading]:
        name, called, call = entry.partition("(")
        try:
            found = find(heading, name)
        except (AttributeError, ImportError):
            wrong.append(f"{entry}: is not there")
            continue
        if found is torchcomms.Timeout:  # its signature is not to be had
            assert found(**{name: 1 for name, _ in arguments_of(call.removesuffix(")"))})
        elif called:
            arguments = arguments_of(call.removesuffix(")"))
            forms = forms_of(heading, name, found)
            if not any(accepts(form, arguments) for form in forms):
                wrong.append(f"{entry}: takes {' or '.join(map(str, forms))}")
    assert not wrong, "\n".join(wrong)


def test_what_is_said_not_to_be_here_is_not() -> None:
    for heading, entry, state in ALL:
        if state != "not on this device" or heading.split()[0] in ("Hints", "Environment"):
            continue
        module, _, name = entry.partition("(")[0].rpartition(".")
        if heading.startswith("Modules"):
            assert importlib.util.find_spec(module) is None or not hasattr(
                importlib.import_module(module), name
            ), entry
        else:
            with pytest.raises((AttributeError, ImportError)):
                find(heading, entry.partition("(")[0])


OPERATIONS = [
    entry
    for heading, entry in HERE
    if heading == "torchcomms.TorchComm" and "async_op" in entry and "all_gather_p" not in entry
]


@pytest.mark.parametrize("entry", OPERATIONS)
def test_operations_accept_the_call(entry: str) -> None:
    """For real, as their arguments are not read by pybind11: by position and by name."""
    options = CommOptions()
    options.rank, options.size = 0, 1
    comm = torchcomms.new_comm("fake", torch.device("cpu"), options=options)
    tensor = torch.zeros(4)
    values: dict[str, Any] = {"op": ReduceOp.SUM, "async_op": False, "hints": None}
    values |= {"timeout": None, "root": 0, "dst": 0, "src": 0}
    values |= {"output_split_sizes": [4], "input_split_sizes": [4]}
    name, _, call = entry.partition("(")
    given = {
        argument: values.get(argument, [tensor] if argument.endswith("_list") else tensor)
        for argument, _ in arguments_of(call.removesuffix(")"))
    }
    function = getattr(comm, name)
    assert function(*given.values()).is_completed()
    assert function(**given).is_completed()


def test_environment_variables() -> None:
    known = {variable.name for variable in _variables.variables()}
    for heading, name, state in ALL:
        if heading == "Environment variables":
            assert (name in known) == (state != "not on this device"), name


def test_hints() -> None:
    """Each is read where its backend reads hints."""
    backends = ROOT / "torchcomms" / "csrc" / "backends"
    sources = {
        "nccl": "".join(f.read_text() for f in (backends / "nccl").glob("*.cpp")),
        "ncclx": "".join(f.read_text() for f in (backends / "nccl").glob("*.cpp")),
        "gloo": (backends / "gloo" / "gloo.cpp").read_text(),
    }
    for heading, entry, state in ALL:
        if heading == "Hints":
            backend, _, name = entry.partition(": ")
            name = "::" + name.rpartition("::")[2] if "::high" in name else name
            assert (f'"{name}"' in sources[backend]) == (state != "not on this device"), entry


def calls_of_the_table() -> list[str]:
    return [cells[1].strip(" |`") for _, cells in rows("## From torch.dist", "What is different")]


def runs_the_table(rank: Rank, calls: list[str]) -> int:
    os.environ |= {"TORCHCOMM_RANK": "0", "TORCHCOMM_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": "0"}
    given: dict[str, Any] = {name: getattr(torchcomms, name) for name in torchcomms.__all__}
    given |= {"torch": torch, "objcol": importlib.import_module("torchcomms.objcol")}
    given |= {"device_mesh": importlib.import_module("torchcomms.device_mesh")}
    given |= {"DDP": torch.nn.parallel.DistributedDataParallel, "model": torch.nn.Linear(4, 4)}
    given |= {"tensor": torch.ones(4), "output": torch.empty(4), "objects": [None]}
    given |= {"tensors": [torch.ones(4)], "outputs": [torch.empty(4)]}
    for call in calls:
        try:
            exec(call, given)
        except Exception as error:
            raise AssertionError(call) from error
    return len(calls)


def test_the_calls_beside_those_of_torch_distributed_run(fresh_ranks: MakeRanks) -> None:
    calls = calls_of_the_table()
    assert len(calls) > 35
    assert fresh_ranks(1).run(runs_the_table, calls) == [len(calls)]
