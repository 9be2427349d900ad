"""All-reduce of two ranks in packets: each reduces one half, and sends the result back."""

from mscclpp.language.channel import MemoryChannel
from mscclpp.language.collectives import AllReduce
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Buffer, Rank


def program(**settings):
    with CollectiveProgram(
        "all_reduce_packets", AllReduce(2, 1, True), 2, protocol="LL", **settings
    ) as result:
        scratch = [Buffer(rank, 3) for rank in range(2)]
        for me in range(2):
            peer = 1 - me
            to_peer = MemoryChannel(peer, me)
            data = Rank(me).get_input_buffer()
            to_peer.put_packets(scratch[peer][peer : peer + 1], data[peer : peer + 1], tb=0)
            Rank(me).reduce(data[me : me + 1], [scratch[me][me : me + 1]], tb=1, packet=True)
            to_peer.put_packets(scratch[peer][me : me + 1], data[me : me + 1], tb=1)
            Rank(me).unpack_packets(data[peer : peer + 1], scratch[me][peer : peer + 1], tb=2)
    return result
