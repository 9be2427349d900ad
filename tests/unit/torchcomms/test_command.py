"""The command `torchcomms` as a whole: its help, its exit codes, and what shells complete."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from harness.programs import COMMAND, finish, python_path, start

import torchcomms
from torchcomms import _local_port, cli
from torchcomms.cli import completion
from torchcomms.cli.records import processes


def _parsers(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _parsers(below, (*path, name))


PARSERS = dict(_parsers(cli.parser()))
COMMANDS = [path for path in PARSERS if path]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_a_description_an_example_and_exit_codes(path: tuple[str, ...]) -> None:
    text = PARSERS[path].format_help()
    assert PARSERS[path].description
    assert "\nexample:\n" in text
    assert "\nexit code: 0" in text


def test_data_is_printed_wherever_something_is_found_out() -> None:
    without = {" ".join(path) for path in COMMANDS if "--json" not in PARSERS[path].format_help()}
    scripts_and_files = {"completion", "plan", "plan show", "plan json", "plan draw"}
    assert without == scripts_and_files


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_example_can_be_parsed(path: tuple[str, ...]) -> None:
    examples = (PARSERS[path].epilog or "").partition("example:\n")[2]
    lines = [line for line in examples.splitlines() if re.match(r"  (\S.*)?torchcomms ", line)]
    assert lines
    for line in lines:
        words = line.partition("torchcomms ")[2].partition(" > ")[0].rstrip(")").split()
        if words[0] in PARSERS[()].format_help():
            cli.parser().parse_args(words)


@pytest.mark.parametrize("path", PARSERS, ids=lambda path: " ".join(path) or "torchcomms")
def test_every_option_says_what_it_is(path: tuple[str, ...]) -> None:
    for action in PARSERS[path]._actions:
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help or action.metavar or action.choices, action


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["analyze", "--after", "soon"], "'soon' is not a number of seconds"),
        (["top", "--interval", "-1"], "'-1' is not a number of seconds"),
        (["top", "--interval", "1e300"], "'1e300' is not a number of seconds"),
        (["doctor", "--seconds", "1e10"], "'1e10' is not a number of seconds"),
        (["analyze", "--serve", "--save", "x.json"], "--save keeps one look"),
        (["analyze", "--serve", "--json"], "--json prints one look"),
        (["analyze", "--token", "mine"], "--token is for --serve"),
        (["analyze", "--serve", "9100"], "'9100' is not ADDRESS:PORT"),
        (
            ["trace", "--format", "flight_recorder", "-o", "x", "--last", "1s"],
            "--last is for --format perfetto",
        ),
        (["trace", "-o", "-", "--json"], "--json says what was written to a file"),
        (["top", "--times", "-1"], "'-1' is not a number, 0 or more"),
        (["doctor", "--ranks", "0"], "'0' is not a number, 1 or more"),
        (["tune", "--ranks", "1"], "'1' is not a number, 2 or more"),
        (["explain", "all_reduce", "much"], "'much' is not a size"),
        (["env", "set", "A", "B", "--job", "mine"], "'mine' is not a number"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_explain_says_the_refusal_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    comm = torchcomms.new_comm("ctran", "cpu", name="refuses")
    for op, call in (
        ("all_reduce", lambda t: comm.all_reduce(t, torchcomms.ReduceOp.SUM, False)),
        ("reduce", lambda t: comm.reduce(t, 0, torchcomms.ReduceOp.SUM, False)),
    ):
        with pytest.raises(torchcomms.CommError, match="ComplexHalf") as refusal:
            call(torch.zeros(2, dtype=torch.complex32))
        assert cli.main(["explain", op, "8", "--dtype", "complex32"]) == 2
        assert str(refusal.value) in capsys.readouterr().err
        with pytest.raises(torchcomms.CommError) as explained:
            comm.explain(op, 8, torch.complex32)
        assert str(explained.value) == str(refusal.value)
    comm.finalize()
    # Moving is served.
    assert cli.main(["explain", "broadcast", "8", "--dtype", "complex32"]) == 0


def test_a_full_disk_is_told_with_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    comm = torchcomms.new_comm("ctran", "cpu", name="written")
    comm.barrier(async_op=False)
    for command, option in (("trace", "-o"), ("analyze", "--save")):
        assert cli.main([command, str(os.getpid()), option, "/dev/full"]) == 2
        assert capsys.readouterr().err == (
            f"torchcomms {command}: /dev/full: No space left on device\n"
        )
    comm.finalize()


def test_explain_of_what_is_no_collective_names_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    comm = torchcomms.new_comm("ctran", "cpu", name="no collective")
    for wrong in ("allreduce", "send", "put", "signal"):
        assert cli.main(["explain", wrong, "8"]) == 2
        with pytest.raises(ValueError, match=f"'{wrong}' is no collective") as refusal:
            comm.explain(wrong, 8)
        assert str(refusal.value) in capsys.readouterr().err
        names = str(refusal.value).rpartition("hint: there are ")[2].split(", ")
        assert names[0] == "barrier"
        for name in names:
            comm.explain(name, 8)
    comm.finalize()


def _command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "torchcomms doctor"),
        (["plan", "verify", "all_reduce.ring:4"], "sums in rank order: no"),
        (["analyze", "1"], "process 1 has no communicator"),
    ],
)
def test_what_needs_no_torch_does_without(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('there is no torch here')")
    environ = {"PYTHONPATH": python_path(tmp_path)}
    ended = finish(start([COMMAND, *arguments], tmp_path, environ))
    assert said in ended.out + ended.err


def test_what_a_terminal_cannot_show_is_replaced(tmp_path: Path) -> None:
    command = [COMMAND, "plan", "draw", "all_reduce.ring:2"]
    ended = finish(start(command, tmp_path, {"PYTHONIOENCODING": "ascii"}))
    assert (ended.code, ended.err) == (0, "")
    assert " ?s" in ended.out, "µs"


def test_names_of_processes_are_any_bytes() -> None:
    name, me = Path("/proc/self/comm"), os.getpid()
    before = name.read_bytes()
    name.write_bytes(b"caf\xc3")  # cut in the middle of a character
    try:
        assert processes.inner_pid(me) == me
        assert "computes" in processes.where(me, stacks=False)
        process = _local_port._Process.read(me)
        assert process is not None
        assert process.parent == os.getppid()
    finally:
        name.write_bytes(before)


def test_a_reader_that_has_enough_is_no_error() -> None:
    with _command("env") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # as `| head -0`
        assert process.wait(timeout=100) == 141
        assert process.stderr.read() == ""


def test_ctrl_c_ends_it_without_a_traceback() -> None:
    # The ranks that it starts are told by the terminal; here, as they end with it.
    with _command("bench", "all_reduce", "-b", "8", "-n", "1000000000", "--no-check") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "torchcomms" in process.stdout.readline(), "it runs"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=100) == 130
        assert "Traceback" not in process.stderr.read()


def test_ranks_of_which_one_is_killed_say_so() -> None:
    with _command("bench", "all_reduce", "-b", "8", "-n", "1000000000", "--no-check") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "torchcomms" in process.stdout.readline(), "it runs"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        _, second = map(int, children.split())
        os.kill(second, signal.SIGKILL)
        assert process.wait(timeout=100) in (2, 128 + signal.SIGKILL)
        said = process.stderr.read()
        assert "torchcomms bench: " in said
        assert f"rank 1 (pid {second}) of communicator 'bench-ctran' died" in said
        assert "Traceback" not in said


BASH = """\
source "$1"; shift
COMP_WORDS=(torchcomms "$@"); COMP_CWORD=$#
_torchcomms
printf '%s\\n' "${COMPREPLY[@]}"
"""


def _completed(script: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", str(script), *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=script.parent,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "host0.json").touch()
    file = tmp_path / "completion.bash"
    file.write_text(completion.script("bash", cli.parser()))
    return file


def test_bash_completes_commands_options_and_values(script: Path) -> None:
    assert {"analyze", "bench", "completion", "doctor", "env", "top"} <= set(_completed(script, ""))
    assert _completed(script, "an") == ["analyze"]
    assert _completed(script, "plan", "si") == ["simulate"]
    assert _completed(script, "bench", "--dev") == ["--device"]
    assert _completed(script, "bench", "--device", "") == ["cpu", "cuda"]
    assert _completed(script, "bench", "all_re") == ["all_reduce"]
    assert _completed(script, "env", "set", "--jo") == ["--job"]
    assert _completed(script, "env", "set", "CTRAN_GPU_TI") == ["CTRAN_GPU_TIMES"]
    assert _completed(script, "env", "set", "CTRAN_SPIN") == [], "it is not live"
    assert _completed(script, "plan", "draw", "x", "--mach") == ["--machine"]
    assert _completed(script, "analyze", "--save", "host") == ["host0.json"]
    assert _completed(script, "analyze", "--after", "") == [], "a number is one's own"
    assert _completed(script, "analyze", "host") == [], "bash then completes files"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_theirs(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / f"completion.{shell}"
    script.write_text(completion.script(shell, cli.parser()))
    clean = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    if shell == "zsh":
        subprocess.run([program, "-n", str(script)], check=True, env=clean)
        return
    for typed, found in (
        ("torchcomms an", "analyze"),
        ("torchcomms bench --device cu", "cuda"),
        ("torchcomms plan si", "simulate"),
        ("torchcomms plan draw --mach", "--machine"),
        ("torchcomms trace --for", "--format"),
        ("torchcomms trace --format per", "perfetto"),
    ):
        done = subprocess.run(
            [program, "-c", f"source {script}; complete -C '{typed}'"],
            capture_output=True,
            text=True,
            check=True,
            env=clean,
        )
        assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [found], typed
        assert ("\t" in done.stdout) is (found not in ("cuda", "perfetto")), "of what is described"
