"""All-reduce in packets: everybody sends all to everybody, and adds in the order of the ranks.

Nobody says that it has read. So packets of one execution may come while those of the one before are
being read, which is right with two halves of scratch that are used in turns, and only then.
"""

from mscclpp.language import AllReduce, Buffer, CollectiveProgram, MemoryChannel, Rank


def program(ranks=2, double=True, **settings):
    with CollectiveProgram(
        "one_shot",
        AllReduce(ranks, 1, False),
        ranks,
        protocol="LL",
        use_double_scratch_buffer=double,
        **settings,
    ) as result:
        scratch = [Buffer(rank, ranks * ranks) for rank in range(ranks)]
        for me in range(ranks):
            rank, own = Rank(me), slice(me * ranks, (me + 1) * ranks)
            source = rank.get_input_buffer()[0:ranks]
            rank.copy_packets(scratch[me][own], source, tb=0)
            for peer in range(ranks):
                if peer != me:
                    MemoryChannel(peer, me).put_packets(scratch[peer][own], source, tb=0)
            first, *others = (scratch[me][r * ranks : (r + 1) * ranks] for r in range(ranks))
            result_chunk = rank.get_output_buffer()[0:ranks]
            rank.unpack_packets(result_chunk, first, tb=0)
            rank.reduce(result_chunk, others, tb=0, packet=True)
    return result
