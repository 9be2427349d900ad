"""All-reduce that reads from all, and writes to all: straight from and to the input."""
# ruff: noqa: F403, F405

from mscclpp.language.channel import *
from mscclpp.language.collectives import *
from mscclpp.language.general import *
from mscclpp.language.program import *
from mscclpp.language.rank import *


def program(ranks=4, **settings):
    with CollectiveProgram("two_shot", AllReduce(ranks, 1, True), ranks, **settings) as result:
        channels = {
            (peer, me): MemoryChannel(peer, me)
            for me in range(ranks)
            for peer in range(ranks)
            if peer != me
        }
        for me in range(ranks):
            peers = [peer for peer in range(ranks) if peer != me]
            mine = Rank(me).get_input_buffer()[me : me + 1]
            theirs = {peer: Rank(peer).get_input_buffer()[me : me + 1] for peer in peers}
            for peer in peers:
                channels[peer, me].signal(tb=0, relaxed=True)
            for peer in peers:
                channels[peer, me].wait(tb=0, relaxed=True, data_sync=SyncType.after)
            for peer in peers:
                channels[peer, me].reduce(mine, [theirs[peer]], tb=0)
            for peer in peers:
                channels[peer, me].put(theirs[peer], mine, tb=0)
            for peer in peers:
                channels[peer, me].signal(tb=0, data_sync=SyncType.before)
            for peer in peers:
                channels[peer, me].wait(tb=0, data_sync=SyncType.after)
    return result
