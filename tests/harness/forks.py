"""Runs programs in forks of one interpreter that has imported torchcomms, which takes seconds.

The argument is a folder with jobs.json: for each name the programs that run at the same time, as
source, arguments and environment. A fork ends as any interpreter does: it runs to the end of this
file. What it writes is in files.
"""

from __future__ import annotations

import gc
import json
import os
import sys

import torch  # noqa: F401

import torchcomms  # noqa: F401

Program = tuple[str, list[str], dict[str, str]]


def program_of_fork(folder: str) -> Program | None:
    """What to run, in a fork; None in the interpreter itself, when all forks have ended."""
    with open(f"{folder}/jobs.json") as file:
        jobs: dict[str, list[Program]] = json.load(file)
    for number, (name, programs) in enumerate(jobs.items()):
        print(name, flush=True)  # so that the last line tells where it hangs
        pids = []
        for rank, program in enumerate(programs):
            pids.append(os.fork())
            if pids[-1] == 0:
                for descriptor, stream in ((1, "out"), (2, "err")):
                    path = f"{folder}/{number}.{rank}.{stream}"
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
                return program
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        with open(f"{folder}/{number}.codes", "w") as file:
            json.dump(codes, file)
    return None


# Collections in forks leave out what torch has made: to look at it takes longer than most programs.
gc.freeze()
found = program_of_fork(sys.argv[1])
if found is not None:
    source, sys.argv[1:], env = found
    os.environ.update(env)
    exec(compile(source, "program", "exec", dont_inherit=True), globals())
