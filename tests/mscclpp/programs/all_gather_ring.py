"""All-gather in packets around a ring: what comes from one neighbour goes on to the other.

Through memory, or through ports, which send packets only as they are: the first ones are made in
scratch. Two halves of scratch are used in turns: who has got all packets of an execution knows that
all ranks have begun it, and so that they are through with the one before.
"""

from mscclpp.language import (
    AllGather,
    Buffer,
    CollectiveProgram,
    MemoryChannel,
    PortChannel,
    Rank,
)


def program(ranks=3, port=False, **settings):
    with CollectiveProgram(
        "ring_by_port" if port else "ring",
        AllGather(ranks, 1, False),
        ranks,
        protocol="LL",
        use_double_scratch_buffer=True,
        **settings,
    ) as result:
        scratch = [Buffer(rank, ranks) for rank in range(ranks)]
        for me in range(ranks):
            rank, following = Rank(me), (me + 1) % ranks
            mine, output = rank.get_input_buffer()[0:1], rank.get_output_buffer()
            on = (PortChannel if port else MemoryChannel)(following, me)

            def slot(where, owner):
                return scratch[where][owner : owner + 1]

            rank.copy(output[me : me + 1], mine, tb=0)
            if port:
                rank.copy_packets(slot(me, me), mine, tb=0)
                on.put_packets(slot(following, me), slot(me, me), tb=0)
            else:
                on.put_packets(slot(following, me), mine, tb=0)
            for hop in range(1, ranks - 1):
                owner = (me - hop) % ranks
                on.read_put_packets(slot(following, owner), slot(me, owner), tb=0)
            for hop in range(1, ranks):
                owner = (me - hop) % ranks
                rank.unpack_packets(output[owner : owner + 1], slot(me, owner), tb=0)
            if port:
                on.flush(tb=0)
    return result
