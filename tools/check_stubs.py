#!/usr/bin/env python3
"""Compares the stubs of extension modules (.pyi) with the installed binaries.

mypy's stubtest compares the names, and the signatures it can see. Two kinds it cannot: pybind11
writes a function's signature into its docstring only, and a C function that takes its arguments in
several spellings has one signature where the stub has overloads. Those are compared here, by the
names of the arguments and by which of them have a default.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What stubtest says of every class of pybind11.
OF_PYBIND11 = re.compile(
    r" is inconsistent, metaclass differs$"
    r'|\.__init__ is inconsistent, stub does not have \*args parameter "args"$'
)

# One signature: (name of argument, has a default) in order, `self` and markers left out.
Signature = tuple[tuple[str, bool], ...]
OPENING, CLOSING = "([{<", ")]}>"


def split_arguments(text: str) -> list[str]:
    """The arguments in the text between a signature's parentheses."""
    parts, depth, quote = [""], 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING and text[position - 1 : position + 1] != "->":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def signature_of_line(name: str, line: str) -> Signature | None:
    """The signature in a line such as `name(self: T, count: int = 1) -> None`, if it is one."""
    match = re.match(rf"(?:\d+\. )?{re.escape(name)}\((.*)\)(?: -> .*)?$", line.strip())
    if match is None:
        return None
    signature = []
    for argument in split_arguments(match[1]):
        named = re.match(r"(\*{0,2}\w+)", argument)
        if named is None or argument in ("/", "*") or named[1] == "self":
            continue
        # The type may hold no " = ", so the first one starts the default.
        signature.append((named[1], " = " in argument))
    return tuple(signature)


def binary_signatures(name: str, docstring: str) -> list[Signature]:
    """What pybind11 wrote into a docstring: one signature, or one per overload."""
    lines = docstring.splitlines()
    if len(lines) > 1 and lines[1].startswith("Overloaded function"):
        numbered = [line for line in lines[2:] if re.match(rf"\d+\. {re.escape(name)}\(", line)]
        return [s for s in (signature_of_line(name, line) for line in numbered) if s is not None]
    found = signature_of_line(name, lines[0]) if lines else None
    return [] if found is None else [found]


def stub_signature(function: ast.FunctionDef) -> Signature:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    signature = [(a.arg, i >= first_default) for i, a in enumerate(positional)]
    if arguments.vararg:
        signature.append(("*" + arguments.vararg.arg, False))
    signature += [
        (a.arg, default is not None)
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        signature.append(("**" + arguments.kwarg.arg, False))
    bound = bool(signature) and signature[0][0] in ("self", "cls")
    return tuple(signature[1:] if bound else signature)


def same(binary: Signature, stub: Signature) -> bool:
    """Arguments that have no name in the binary (arg0) may have any in the stub."""
    return len(binary) == len(stub) and all(
        b[1] == s[1] and (b[0] == s[0] or re.fullmatch(r"arg\d+", b[0]))
        for b, s in zip(binary, stub, strict=True)
    )


def stub_functions(body: list[ast.stmt], scope: str = "") -> Iterator[tuple[str, list[Signature]]]:
    """(qualified name, its overloads) of each function in a stub; properties are left out."""
    functions: dict[str, list[Signature]] = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from stub_functions(node.body, f"{scope}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(d) for d in node.decorator_list}
            if not any(d == "property" or d.endswith(".setter") for d in decorators):
                functions.setdefault(node.name, []).append(stub_signature(node))
    for name, signatures in functions.items():
        yield scope + name, signatures


def text_signature(function: Any) -> list[Signature]:
    """The signature of a C function that carries one for inspect."""
    if not getattr(function, "__text_signature__", None):
        return []
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == "self":
        del parameters[0]
    return [tuple((str(p).split("=")[0], p.default is not p.empty) for p in parameters)]


def overloaded(stub: str) -> set[str]:
    return {name for name, found in stub_functions(ast.parse(stub).body) if len(found) > 1}


def compare_signatures(module: Any, stub: str) -> Iterator[str]:
    """A line for each function whose signatures differ."""
    for qualified, expected in stub_functions(ast.parse(stub).body):
        target: Any = module
        for part in qualified.split("."):
            target = inspect.getattr_static(target, part, None)
            target = target.__func__ if isinstance(target, staticmethod) else target
        of_inspect = text_signature(target)
        docstring = getattr(target, "__doc__", None) or ""
        found = of_inspect or binary_signatures(qualified.split(".")[-1], docstring)
        if not found:
            continue
        for signature in found:
            if not any(same(signature, other) for other in expected):
                yield f"{qualified}: the binary has {show(signature)}, the stub does not"
        for other in expected if not of_inspect else ():
            if not any(same(signature, other) for signature in found):
                yield f"{qualified}: the stub has {show(other)}, the binary does not"


def show(signature: Signature) -> str:
    return "(" + ", ".join(name + " = ..." * default for name, default in signature) + ")"


def extension_modules(package: Any) -> list[str]:
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    return sorted(
        f"{package.__name__}.{file.name.split('.')[0]}"
        for folder in package.__path__
        for file in Path(folder).iterdir()
        if file.name.endswith(suffixes)
    )


def stubtest(overloads: dict[str, set[str]]) -> Iterator[str]:
    """What stubtest says of modules, without what is compared here or holds for all pybind11.

    Args:
        overloads: by module, the functions that have several signatures.
    """
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", *overloads]
    result = subprocess.run(
        [*command, "--mypy-config-file", "pyproject.toml"],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (result.stdout + result.stderr).splitlines()
    signatures = tuple(
        f"{module}.{name} is inconsistent, "
        for module, names in overloads.items()
        for name in names
    )
    expected = [line for line in lines if OF_PYBIND11.search(line) or line.startswith(signatures)]
    if result.returncode != 0:
        yield from (line for line in lines if line not in expected)
        if not expected:
            yield f"stubtest failed with exit code {result.returncode}"


def main() -> int:
    # The installed package, not the folder of its sources beside us.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != ROOT]
    importlib.import_module("torch")
    modules = []
    for package in ("torchcomms", "mscclpp"):
        found = extension_modules(importlib.import_module(package))
        if not found:
            print(f"{package} is installed without an extension module")
            return 1
        modules += found
    failed = False
    overloads = {}
    for name in modules:
        stub = ROOT / (name.replace(".", "/") + ".pyi")
        if not stub.exists():
            print(f"{name} has no stub: {stub.relative_to(ROOT)} is missing")
            failed = True
            continue
        for complaint in compare_signatures(importlib.import_module(name), stub.read_text()):
            print(f"{stub.relative_to(ROOT)}: {complaint}")
            failed = True
        overloads[name] = overloaded(stub.read_text())
    for complaint in stubtest(overloads):
        print(complaint)
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
