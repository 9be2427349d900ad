"""All-to-all of which thread blocks share every put; barriers tell when all may, and have put."""

from mscclpp.language.channel import MemoryChannel, SyncType
from mscclpp.language.collectives import AllToAll
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank
from mscclpp.language.thread_block_group import ThreadBlockGroup


def program(ranks=2, blocks=2, **settings):
    with CollectiveProgram("groups", AllToAll(ranks, 1, False), ranks, **settings) as result:
        group = ThreadBlockGroup(tb_list=list(range(blocks)))
        for me in range(ranks):
            rank = Rank(me)
            source, own = rank.get_input_buffer(), rank.get_output_buffer()
            channels = [MemoryChannel(peer, me) for peer in range(ranks) if peer != me]
            rank.copy(own[me : me + 1], source[me : me + 1], tb_group=group)
            for channel in channels:
                channel.signal(tb=0, relaxed=True)
            for channel in channels:
                channel.wait(tb=0, relaxed=True, data_sync=SyncType.after)
            rank.barrier(tb_list=list(range(blocks)))
            for channel in channels:
                peer = channel.dst_rank
                there = Rank(peer).get_output_buffer()[me : me + 1]
                channel.put(there, source[peer : peer + 1], tb_group=group)
            rank.barrier(tb_list=list(range(blocks)))
            for channel in channels:
                channel.signal(tb=0, data_sync=SyncType.none)
            for channel in channels:
                channel.wait(tb=0, data_sync=SyncType.none)
    return result
