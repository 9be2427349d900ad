"""Rank 0's two chunks go to rank 1, the second one first: of no collective that promises a result.

`shows=False`: what is read was never written. `waits=False`: it is read too early."""

from mscclpp.language.channel import MemoryChannel
from mscclpp.language.collectives import SendRecv
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Buffer, Rank


def program(collective=None, shows=True, waits=True, **settings):
    collective = collective or SendRecv(2, 2, False)
    with CollectiveProgram("send_reversed", collective, 2, **settings) as result:
        sender, receiver = Rank(0), Rank(1)
        shown = Buffer(0, 2)
        forth, back = MemoryChannel(1, 0), MemoryChannel(0, 1)
        source = sender.get_input_buffer()
        target = receiver.get_input_buffer() if collective.inplace else receiver.get_output_buffer()
        for i in range(2 if shows else 0):
            sender.copy(shown[i : i + 1], source[i : i + 1], tb=0)
        forth.signal(tb=0)
        back.wait(tb=0 if waits else 1)
        for i in range(2):
            back.get(target[1 - i : 2 - i], shown[i : i + 1], tb=0)
        back.signal(tb=0)  # what is shown has been read
        forth.wait(tb=0)
    return result
