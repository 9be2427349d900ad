"""Programs for GPUs as programs for the host: what the host's compiler does not know is rewritten.

`kernel<<<grid, block>>>(arguments)` becomes a call of `mscclpp::host::Launch`, and
`extern __shared__ T name[];` a pointer. Lines keep their numbers.
"""

from __future__ import annotations

import re

__all__ = ["rewrite"]

# What is no code: comments, raw strings, strings, characters (after a digit, ' separates digits).
_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*)?"
    r"(?P<type>[\w:][\w:\s<>,]*?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
_NAME = re.compile(r"[\w:.]+\Z")
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def rewrite(source: str, file: str) -> str:
    """`source`, which is the text of `file`, for the host's compiler.

    Raises:
        ValueError: there is a launch that cannot be understood.
    """
    quoted = file.replace("\\", "\\\\").replace('"', '\\"')
    text = _DYNAMIC.sub(
        r"auto* const \g<name> = static_cast<\g<type>*>(::mscclpp::host::dynamicShared());", source
    )
    while True:
        code = _code(text)
        at = code.rfind("<<<")  # from the last on, so that what follows is rewritten already
        if at < 0:
            return f'#line 1 "{quoted}"\n{text}'
        begin = _begin_of_kernel(code, at)
        closing = _closing(code, at + 3, ">>>")
        opening = closing + 3
        while opening < len(code) and code[opening].isspace():
            opening += 1
        if begin == at or closing < 0 or opening >= len(code) or code[opening] != "(":
            line = text.count("\n", 0, at) + 1
            raise ValueError(f"{file}:{line}: this is no launch of a kernel that can be understood")
        end = _closing(code, opening + 1, ")")
        kernel, how = text[begin:at].strip(), text[at + 3 : closing]
        arguments = text[opening + 1 : end]
        comma = ", " if arguments.strip() else ""
        call = (
            f"::mscclpp::host::Launch({how})"
            f"([&](auto... mscclpp_arguments) {{ {kernel}(mscclpp_arguments...); }}"
            f"{comma}{arguments})"
        )
        text = text[:begin] + call + text[end + 1 :]


def _code(text: str) -> str:
    """The text with blanks for all that is no code."""
    return _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def _begin_of_kernel(code: str, end: int) -> int:
    """Where the name, with its template arguments, before `end` begins; `end` if there is none."""
    at = end
    while at > 0 and code[at - 1].isspace():
        at -= 1
    if at > 0 and code[at - 1] == ">":
        depth = 0
        while at > 0:
            at -= 1
            depth += (code[at] == ">") - (code[at] == "<")
            if depth == 0:
                break
        while at > 0 and code[at - 1].isspace():
            at -= 1
    name = _NAME.search(code[:at])
    return name.start() if name else end


def _closing(code: str, at: int, mark: str) -> int:
    """Where `mark` is, outside of parentheses that open after `at`; -1 if nowhere."""
    expected: list[str] = []
    while at < len(code):
        if not expected and code.startswith(mark, at):
            return at
        if code[at] in _PAIRS:
            expected.append(_PAIRS[code[at]])
        elif expected and code[at] == expected[-1]:
            expected.pop()
        at += 1
    return -1
