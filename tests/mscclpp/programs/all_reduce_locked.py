"""All-reduce of which one thread block for each peer adds that one's part, whoever comes first."""

from mscclpp.language import AllReduce, CollectiveProgram, MemoryChannel, Rank, Semaphore


def program(ranks=3, lock=True, **settings):
    with CollectiveProgram("locked", AllReduce(ranks, 1, True), ranks, **settings) as result:
        pairs = [(peer, me) for me in range(ranks) for peer in range(ranks) if peer != me]
        channels = {pair: MemoryChannel(*pair) for pair in pairs}
        parts = [Rank(rank).get_input_buffer() for rank in range(ranks)]

        def exchange():
            for channel in channels.values():
                channel.signal(tb=0)
            for channel in channels.values():
                channel.wait(tb=0)

        exchange()
        for me in range(ranks):
            blocks = range(1, ranks)
            mine, turn = parts[me][me : me + 1], Semaphore(me, initial_value=1)
            Rank(me).barrier([0, *blocks])
            for block in blocks:
                peer = (me + block) % ranks
                if lock:
                    turn.acquire(tb=block)
                channels[peer, me].reduce(mine, [parts[peer][me : me + 1]], tb=block)
                if lock:
                    turn.release(tb=block)
            Rank(me).barrier([0, *blocks])
            for peer in range(ranks):
                if peer != me:
                    channels[peer, me].put(parts[peer][me : me + 1], mine, tb=0)
        exchange()
    return result
