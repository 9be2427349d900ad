"""All-reduce in packets, in one hop: everybody sends all to everybody, and adds its own in place.

Nobody says that it has read: packets of one execution may come while those of the one before are
being read, which is right with two halves of scratch that are used in turns.
"""

from mscclpp.language import AllReduce, Buffer, CollectiveProgram, MemoryChannel, Rank


def program(ranks=2, **settings):
    with CollectiveProgram(
        "exchange",
        AllReduce(ranks, 1, True),
        ranks,
        protocol="LL",
        use_double_scratch_buffer=True,
        **settings,
    ) as result:
        scratch = [Buffer(rank, ranks * ranks) for rank in range(ranks)]
        for me in range(ranks):
            data = Rank(me).get_input_buffer()[0:ranks]
            others = [peer for peer in range(ranks) if peer != me]
            for peer in others:
                slot = scratch[peer][me * ranks : (me + 1) * ranks]
                MemoryChannel(peer, me).put_packets(slot, data, tb=0)
            slots = [scratch[me][peer * ranks : (peer + 1) * ranks] for peer in others]
            Rank(me).reduce(data, slots, tb=0, packet=True)
    return result
