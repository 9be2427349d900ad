"""The instruction set: what each operation's name means for the data that it touches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Form(Enum):
    """In which form an operation reads its sources, or writes its destinations.

    Packets carry their own flags: who reads one waits until it is there. Data does not.
    """

    data = auto()
    packets = auto()
    first_data = auto()  # the first is data, the others are packets


@dataclass(frozen=True)
class Instruction:
    reads: Form = Form.data
    writes: Form = Form.data
    reduces: bool = False
    signals: bool = False
    waits: bool = False
    pairs: bool = False  # the first source goes to the first destination, and so on


_D, _P, _F = Form.data, Form.packets, Form.first_data

INSTRUCTIONS = {
    # Among the threads of a block, the blocks of a rank, and ranks.
    "nop": Instruction(),
    "barrier": Instruction(),
    "sem_acquire": Instruction(),
    "sem_release": Instruction(),
    "signal": Instruction(signals=True),
    "rlxsignal": Instruction(signals=True),
    "wait": Instruction(waits=True),
    "rlxwait": Instruction(waits=True),
    "flush": Instruction(),
    # Copies: within a rank, to another rank, from another rank.
    "copy": Instruction(pairs=True),
    "cpkt": Instruction(_D, _P, pairs=True),
    "upkt": Instruction(_P, _D, pairs=True),
    "put": Instruction(pairs=True),
    "pws": Instruction(pairs=True, signals=True),
    "pwsf": Instruction(pairs=True, signals=True),
    "ppkt": Instruction(_D, _P, pairs=True),
    "rppkt": Instruction(_P, _P),
    "get": Instruction(pairs=True),
    # Reductions: of a rank's own chunks; +s sends the result on, +c copies it as packets.
    "re": Instruction(reduces=True),
    "res": Instruction(reduces=True),
    "repkt": Instruction(_F, _D, reduces=True),
    "recpkt": Instruction(_F, _F, reduces=True),
    "respkt": Instruction(_F, _F, reduces=True),
    "recspkt": Instruction(_F, _F, reduces=True),
    # Reductions of chunks of other ranks.
    "rre": Instruction(reduces=True),
    "rres": Instruction(reduces=True),
    # The same chunks of all ranks of a switch channel: reduced, reduced and stored, stored.
    "glre": Instruction(reduces=True),
    "glres": Instruction(reduces=True),
    "gstore": Instruction(),
    "gstorepkt": Instruction(_D, _P),
    "pipeline": Instruction(),
}
