"""All-gather of which one thread block copies for each peer; one tells all ranks when all have."""

from mscclpp.language import (
    AllGather,
    Buffer,
    CollectiveProgram,
    MemoryChannel,
    Rank,
    Semaphore,
    SyncType,
)


def program(ranks=3, **settings):
    with CollectiveProgram("semaphores", AllGather(ranks, 1, False), ranks, **settings) as result:
        shown = [Buffer(rank, 1) for rank in range(ranks)]
        for me in range(ranks):
            rank = Rank(me)
            source, own = rank.get_input_buffer()[0:1], rank.get_output_buffer()
            channels = [MemoryChannel(peer, me) for peer in range(ranks) if peer != me]
            ready = Semaphore(me, initial_value=0)  # released for each block that reads
            done = Semaphore(me, initial_value=0)  # released by each block that has read
            rank.copy(own[me : me + 1], source, tb=0)
            rank.copy(shown[me][0:1], source, tb=0)
            for channel in channels:
                channel.signal(tb=0, data_sync=SyncType.before)
            for channel in channels:
                channel.wait(tb=0, data_sync=SyncType.after)
            for _ in channels:
                ready.release(tb=0)
            for block, channel in enumerate(channels, 1):
                ready.acquire(tb=block)
                peer = channel.dst_rank
                channel.get(own[peer : peer + 1], shown[peer][0:1], tb=block)
                done.release(tb=block)
            for _ in channels:
                done.acquire(tb=0)
            for channel in channels:
                channel.signal(tb=0)
            for channel in channels:
                channel.wait(tb=0)
    return result
