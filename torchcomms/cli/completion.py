"""`torchcomms completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SHELLS = ("bash", "zsh", "fish")

_DESCRIPTION = """\
Prints a script with which a shell completes the commands and options of torchcomms, at the Tab
key. It knows those of this version: make it anew after an update.
"""
_END = """\
example:
  source <(torchcomms completion bash)
      in ~/.bashrc; or write it once to ~/.local/share/bash-completion/completions/torchcomms
  source <(torchcomms completion zsh)
      in ~/.zshrc, behind compinit
  torchcomms completion fish > ~/.config/fish/completions/torchcomms.fish

exit code: 0
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in a shell",
        description=_DESCRIPTION,
        epilog=_END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)


@dataclass(frozen=True)
class _Option:
    names: tuple[str, ...]
    help: str
    takes_value: bool
    is_file: bool
    choices: tuple[str, ...]


@dataclass
class _Command:
    """What may follow `torchcomms PATH`."""

    path: tuple[str, ...]
    options: list[_Option] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)  # subcommands and choices, what they are


def _plain(text: str | None) -> str:
    """The first sentence or so, for a line of a menu."""
    first = re.split(r" ?\(default|; |, or ", (text or "").replace("%(default)s", ""))[0]
    return re.sub(r"\s+", " ", first).strip()


def _commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[_Command]:
    command = _Command(path)
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            told = {one.dest: _plain(one.help) for one in action._choices_actions}
            command.words |= {name: told.get(name, "") for name in below}
        elif action.option_strings:
            names = tuple(action.option_strings)
            takes = action.nargs != 0
            command.options.append(
                _Option(names, _plain(action.help), takes, action.type is Path, choices)
            )
        else:
            named = getattr(action, "completes", tuple)  # a function
            command.words |= dict.fromkeys((*choices, *named()), "")
    yield command
    for name, one in below.items():
        yield from _commands(one, (*path, name))


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """To be sourced by that shell."""
    commands = list(_commands(parser))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _paths(commands: list[_Command]) -> str:
    return "|".join(f"'{''.join(f' {word}' for word in c.path)}'" for c in commands if c.path)


def _values(commands: list[_Command]) -> Iterator[tuple[str, _Option]]:
    """A pattern for the words before the value of an option, and the option."""
    for command in commands:
        path = "".join(f" {word}" for word in command.path)
        for option in command.options:
            if option.takes_value:
                yield "|".join(f"'{path} {name}'" for name in option.names), option


def _bash(commands: list[_Command]) -> str:
    values, words = [], []
    for pattern, option in _values(commands):
        what = f"words='{' '.join(option.choices)}'" if option.choices else "return"
        values.append(f"    {pattern}) {'' if option.is_file else what} ;;")
        if option.is_file:
            values[-1] = f'    {pattern}) COMPREPLY=($(compgen -f -- "$word")); return ;;'
    for command in commands:
        path = "".join(f" {word}" for word in command.path)
        options = " ".join(name for option in command.options for name in option.names)
        words.append(f"      '{path}') options='{options}' words='{' '.join(command.words)}' ;;")
    lines = "\n".join
    return f"""\
# bash completion of torchcomms
_torchcomms() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" path="" words="" options="" i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {_paths(commands)}) path+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path ${{COMP_WORDS[COMP_CWORD-1]}}" in
{lines(values)}
    *) case "$path" in
{lines(words)}
    esac ;;
  esac
  [[ $word == -* ]] && words=$options
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _torchcomms torchcomms
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh(commands: list[_Command]) -> str:
    def row(word: str, help: str) -> str:
        return _quoted(word.replace(":", "\\:") + (f":{help}" if help else ""))

    values, words = [], []
    for pattern, option in _values(commands):
        rows = " ".join(map(_quoted, option.choices))
        what = f"rows=({rows})" if rows else "_files; return" if option.is_file else "return"
        values.append(f"    {pattern}) {what} ;;")
    for command in commands:
        path = "".join(f" {word}" for word in command.path)
        rows = " ".join(row(word, help) for word, help in command.words.items())
        options = " ".join(row(n, o.help) for o in command.options for n in o.names)
        words.append(f"      '{path}') rows=({rows}) options=({options}) ;;")
    lines = "\n".join
    return f"""\
#compdef torchcomms
# zsh completion of torchcomms
_torchcomms() {{
  local at="" i
  local -a rows options
  for ((i = 2; i < CURRENT; ++i)); do
    case "$at $words[i]" in
      ({_paths(commands)}) at+=" $words[i]" ;;
    esac
  done
  case "$at $words[CURRENT-1]" in
{lines(values)}
    *) case "$at" in
{lines(words)}
    esac ;;
  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe -o option options
  elif (( $#rows )); then
    _describe word rows
  else
    _files
  fi
}}
if [[ $funcstack[1] == _torchcomms ]]; then
  _torchcomms "$@"
else
  compdef _torchcomms torchcomms
fi
"""


def _fish(commands: list[_Command]) -> str:
    lines = ["# fish completion of torchcomms", "complete -c torchcomms -e"]
    below = {command.path: command for command in commands}
    for command in commands:
        conditions = [f"__fish_seen_subcommand_from {word}" for word in command.path]
        subcommands = [word for word in command.words if (*command.path, word) in below]
        options = [*conditions]
        if subcommands:
            options.append(f"not __fish_seen_subcommand_from {' '.join(subcommands)}")
        when = f"-n {_quoted('; and '.join(options))} " if options else ""
        for word, help in command.words.items():
            told = f" -d {_quoted(help)}" if help else ""
            lines.append(f"complete -c torchcomms {when}-f -a {_quoted(word)}{told}")
        for option in command.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = ""
            if option.choices:  # a line of their own, as the description is the option's; the last
                values = f" -x -a {_quoted(' '.join(option.choices))}"
                lines.append(f"complete -c torchcomms {when}{names}{values}")
            if option.takes_value:
                value = " -r -F" if option.is_file else " -x"
            told = f" -d {_quoted(option.help)}" if option.help else ""
            lines.append(f"complete -c torchcomms {when}{names}{value}{told}")
    return "\n".join(lines) + "\n"
