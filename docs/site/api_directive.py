"""The directive `{api}`: what the source says about a name, without importing it.

    ```{api} torchcomms.TorchComm
    :members: send recv
    ```

documents a class, a function or a variable; of a class the members named, by default all that are
public, except: `:without: send recv`. Signatures and docstrings are those of the stubs (`.pyi`)
where there are any. Docstrings are Markdown, with the sections `Args`, `Returns` and `Raises`.

Every name in `__all__` of the modules in MODULES has to be on some page; what is on none is a
warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import griffe
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import (
    PyAttribute,
    PyClasslike,
    PyFunction,
    PyMethod,
    PyProperty,
    PyVariable,
)
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
MODULES = ("torchcomms", "torchcomms.hooks", "torchcomms.objcol", "torchcomms.device_mesh")
MODULES += ("torchcomms.distwrap", "torchcomms.functional", "torchcomms.plan", "torchcomms.select")
MODULES += ("torchcomms.transport", "torchcomms.triton")
PACKAGE: Any = griffe.load("torchcomms", search_paths=[ROOT], resolve_aliases=True)
LOG = logging.getLogger(__name__)


def find(path: str) -> Any:
    """A public name, wherever it is defined."""
    found = PACKAGE
    for name in path.split(".")[1:]:
        found = found.modules[name] if name in found.modules else members_of(found)[name]
        if found.is_alias:
            found = found.final_target
    return found


def members_of(found: Any) -> dict[str, Any]:
    """In the order of the source. What a stub only overloads is the first form, with all."""
    members = dict(found.members)
    for name, forms in found.overloads.items():
        if forms:
            members[name] = forms[0]
            forms[0].overloads = forms
    return dict(sorted(members.items(), key=lambda item: _line(item[1])))


def _line(member: Any) -> int:
    return (member.alias_lineno if member.is_alias else member.lineno) or 0


def signatures(function: Any, name: str) -> list[str]:
    """As the source has them; of an overloaded function all."""
    return [name + _signature(form) for form in function.overloads or [function]]


def _signature(function: Any) -> str:
    parts: list[str] = []
    keywords = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind.value
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        if kind == "keyword-only" and not keywords:
            keywords = True
            parts.append("*")
        keywords |= stars == "*"
        text = stars + parameter.name
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not stars:
            text += f" = {parameter.default}"
        parts.append(text)
    returns = f" -> {function.returns}" if function.returns is not None else ""
    return f"({', '.join(parts)}){returns}"


def text_of(documented: Any) -> str:
    """The docstring as Markdown with fields; of an overloaded function all, without repetitions."""
    forms = documented.overloads if documented.is_function else None
    forms = forms or [documented]
    texts = [_markdown(form.docstring) for form in forms if form.docstring]
    return "\n\n".join(dict.fromkeys(texts))


def _markdown(docstring: Any) -> str:
    parts: list[str] = []
    for section in docstring.parse("google", warnings=False):
        kind = section.kind.value
        if kind == "parameters":
            parts.append("\n".join(f":param {p.name}: {_indented(p)}" for p in section.value))
        elif kind == "raises":
            lines = (f":raises {p.annotation}: {_indented(p)}" for p in section.value)
            parts.append("\n".join(lines))
        elif kind == "returns":
            parts.append("\n".join(f":returns: {_indented(p)}" for p in section.value))
        elif kind == "attributes":
            parts.append("\n".join(f"- `{p.name}`: {_indented(p)}" for p in section.value))
        elif kind == "text":
            parts.append(section.value)
        else:
            raise ValueError(f"a docstring has a section {kind}, which is not known here")
    return "\n\n".join(parts)


def _indented(element: Any) -> str:
    return "\n  ".join(element.description.splitlines())


def is_public(member: Any) -> bool:
    """Enumerators and constructors too; the rest of what Python calls special is not."""
    if member.name == "__init__":
        return bool(member.docstring) or len(member.parameters) > 1
    return not member.name.startswith("_")


class Api(SphinxDirective):
    required_arguments = 1
    option_spec: ClassVar = {"members": directives.unchanged, "without": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        path = self.arguments[0]
        try:
            found = find(path)
        except KeyError:
            raise self.error(f"there is no {path}") from None
        self.env.note_dependency(str(found.filepath))
        if found.is_module:
            return self.parse_text_to_nodes(text_of(found))
        parent, _, name = path.rpartition(".")
        if found.is_class:
            return self.of_class(found, parent, name)
        if find(parent).is_class:
            module, _, cls = parent.rpartition(".")
            return self.of_member(found, module, cls)
        with _context(self.env.ref_context, parent, None):
            if found.is_function:
                return self.described(PyFunction, "function", signatures(found, name), found)
            return self.described(PyVariable, "data", [name], found)

    def of_class(self, found: Any, module: str, name: str) -> list[nodes.Node]:
        with _context(self.env.ref_context, module, None):
            made = self.described(PyClasslike, "class", [name + self.constructor(found)], found)
        content = next(made[-1].findall(addnodes.desc_content))
        for member in self.members(found):
            content += self.of_member(member, module, name)
        return made

    def constructor(self, found: Any) -> str:
        init = members_of(found).get("__init__")
        return _signature(init).partition(" -> ")[0] if init is not None else ""

    def members(self, found: Any) -> Iterator[Any]:
        """In the order of the source, or of the option."""
        if "members" in self.options:
            for name in self.options["members"].split():
                if name not in members_of(found):
                    raise self.error(f"{found.path} has no {name}")
                yield members_of(found)[name]
            return
        without = self.options.get("without", "").split()
        for name, member in members_of(found).items():
            if is_public(member) and name not in without and name != "__init__":
                yield member.final_target if member.is_alias else member

    def of_member(self, found: Any, module: str, cls: str) -> list[nodes.Node]:
        with _context(self.env.ref_context, module, cls):
            if found.is_function:
                return self.described(PyMethod, "method", signatures(found, found.name), found)
            options = {} if found.annotation is None else {"type": str(found.annotation)}
            directive = PyProperty if "property" in found.labels else PyAttribute
            return self.described(directive, "attribute", [found.name], found, options)

    def described(
        self,
        directive: Any,
        kind: str,
        signature: list[str],
        found: Any,
        options: dict[str, str] | None = None,
    ) -> list[nodes.Node]:
        text = text_of(found)
        if found.is_class and (init := members_of(found).get("__init__")) is not None:
            text = "\n\n".join(filter(None, [text, text_of(init)]))
        made = directive(
            f"py:{kind}",
            ["\n".join(signature)],
            options or {},
            StringList(text.splitlines(), source=str(found.filepath)),
            self.lineno,
            self.content_offset,
            self.block_text,
            self.state,
            self.state_machine,
        )
        return list(made.run())


class _context:
    """The module and class to which the names that follow belong."""

    def __init__(self, context: dict[str, Any], module: str, cls: str | None) -> None:
        self.context = context
        self.names = {"py:module": module, "py:class": cls}

    def __enter__(self) -> None:
        self.before = {name: self.context.get(name) for name in self.names}
        self.context.update(self.names)

    def __exit__(self, *_: object) -> None:
        self.context.update(self.before)


def check_completeness(app: Sphinx, error: Exception | None) -> None:
    if error is not None:
        return
    described = app.env.domains.python_domain.objects
    for module in MODULES:
        for export in find(module).exports or ():
            name = getattr(export, "name", export)
            path = f"{module}.{name}"
            target = find(path)
            if target.is_module or name.startswith("_") or path in described:
                continue
            if f"{target.path.rpartition('.')[0]}.{name}" not in described:
                LOG.warning("%s is on no page of docs/api", path)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("api", Api)
    app.connect("env-updated", lambda app, env: check_completeness(app, None))
    return {"version": "1", "parallel_read_safe": True}
