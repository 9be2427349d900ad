"""Rank 0 sends to rank 1, which reads it from rank 0's scratch."""

from mscclpp.language.channel import MemoryChannel
from mscclpp.language.collectives import SendRecv
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Buffer, Rank


def program(**settings):
    with CollectiveProgram("send", SendRecv(2, 1, False), 2, **settings) as result:
        sender, receiver = Rank(0), Rank(1)
        shown = Buffer(0, 1)
        forth, back = MemoryChannel(1, 0), MemoryChannel(0, 1)
        sender.copy(shown[0:1], sender.get_input_buffer()[0:1], tb=0)
        forth.signal(tb=0)
        back.wait(tb=0)
        back.get(receiver.get_output_buffer()[0:1], shown[0:1], tb=0)
    return result
