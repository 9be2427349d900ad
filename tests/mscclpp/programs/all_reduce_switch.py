"""All-reduce over a switch channel: each rank reduces its part, and stores it to all."""

from mscclpp.language.channel import BufferType, MemoryChannel, SwitchChannel, SyncType
from mscclpp.language.collectives import AllReduce
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank


def program(spec=None, ranks=2, **settings):
    with (
        CollectiveProgram("switch", AllReduce(ranks, 1, True), ranks, **settings)
        if spec is None
        else CollectiveProgram.from_spec(spec)
    ) as result:
        ranks = result.num_ranks
        switch = SwitchChannel(rank_list=list(range(ranks)), buffer_type=BufferType.input)
        pairs = [(peer, me) for me in range(ranks) for peer in range(ranks) if peer != me]
        channels = {pair: MemoryChannel(*pair) for pair in pairs}
        for pair in pairs:
            channels[pair].signal(tb=0, relaxed=True)
        for pair in pairs:
            channels[pair].wait(tb=0, relaxed=True, data_sync=SyncType.after)
        for me in range(ranks):
            mine = Rank(me).get_input_buffer()[me : me + 1]
            view = switch.at_rank(me)
            view.reduce(buffer_offset=me, size=1, dst_chunk=mine, tb=0)
            view.broadcast(src_chunk=mine, buffer_offset=me, size=1, tb=0)
        for pair in pairs:
            channels[pair].signal(tb=0, relaxed=True, data_sync=SyncType.before)
        for pair in pairs:
            channels[pair].wait(tb=0, relaxed=True)
    return result
