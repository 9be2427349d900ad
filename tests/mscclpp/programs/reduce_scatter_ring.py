"""Reduce-scatter in place, in a ring: sums grow in the inputs, as the parts go around."""

from mscclpp.language import CollectiveProgram, MemoryChannel, Rank, ReduceScatter


def program(ranks=3, blocks=1, left_out="", **settings):
    """`left_out`: where the ranks do not wait for each other."""
    with CollectiveProgram("ring", ReduceScatter(ranks, blocks, True), ranks, **settings) as result:
        after = {rank: (rank + 1) % ranks for rank in range(ranks)}
        before = {rank: other for other, rank in after.items()}
        channels = {
            (to, rank, tb): MemoryChannel(to, rank)
            for rank in range(ranks)
            for to in {after[rank], before[rank]}
            for tb in range(blocks)
        }
        inputs = [Rank(rank).get_input_buffer() for rank in range(ranks)]

        here = [(rank, tb) for rank in range(ranks) for tb in range(blocks)]

        def pass_on(to, source, when):
            if when == left_out:
                return
            for rank, tb in here:
                channels[to[rank], rank, tb].signal(tb=tb)
            for rank, tb in here:
                channels[source[rank], rank, tb].wait(tb=tb)

        pass_on(after, before, "begin")
        for step in range(1, ranks):
            for me, tb in here:
                chunk = (me - 1 - step) % ranks * blocks + tb
                part, grown = (inputs[rank][chunk : chunk + 1] for rank in (me, before[me]))
                channels[before[me], me, tb].reduce(part, [grown], tb=tb)
            if step < ranks - 1:
                pass_on(after, before, "middle")
        pass_on(before, after, "end")
    return result
