"""All-gather in packets over a switch channel: each rank stores its own to all.

Two halves of scratch are used in turns, as in all_gather_ring.py.
"""

from mscclpp.language import AllGather, Buffer, CollectiveProgram, Rank, SwitchChannel
from mscclpp.language.types import BufferType


def program(ranks=2, **settings):
    with CollectiveProgram(
        "switch_packets",
        AllGather(ranks, 1, False),
        ranks,
        protocol="LL",
        use_double_scratch_buffer=True,
        **settings,
    ) as result:
        scratch = [Buffer(rank, ranks) for rank in range(ranks)]
        switch = SwitchChannel(rank_list=list(range(ranks)), buffer_type=BufferType.scratch)
        for me in range(ranks):
            rank = Rank(me)
            mine, output = rank.get_input_buffer()[0:1], rank.get_output_buffer()
            switch.at_rank(me).broadcast_packets(mine, buffer_offset=me, size=1, tb=0)
            for owner in range(ranks):
                at = slice(owner, owner + 1)
                rank.unpack_packets(output[at], scratch[me][at], tb=0)
    return result
