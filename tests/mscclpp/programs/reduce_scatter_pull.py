"""Reduce-scatter that reads each rank's part from the inputs of all; in place, into that part."""

from mscclpp.language import CollectiveProgram, MemoryChannel, Rank, ReduceScatter


def program(ranks=3, chunks=2, in_place=False, **settings):
    with CollectiveProgram(
        "pull_in_place" if in_place else "pull",
        ReduceScatter(ranks, chunks, in_place),
        ranks,
        **settings,
    ) as result:
        pairs = [(peer, me) for me in range(ranks) for peer in range(ranks) if peer != me]
        channels = {pair: MemoryChannel(*pair) for pair in pairs}
        for pair in pairs:
            channels[pair].signal(tb=0)
        for pair in pairs:
            channels[pair].wait(tb=0)
        for me in range(ranks):
            part = slice(me * chunks, (me + 1) * chunks)
            sum_so_far = Rank(me).get_input_buffer()[part]
            total = sum_so_far if in_place else Rank(me).get_output_buffer()[0:chunks]
            for peer in (*range(me + 1, ranks), *range(me)):
                theirs = Rank(peer).get_input_buffer()[part]
                channels[peer, me].reduce(sum_so_far, [theirs], tb=0, local_dst_chunk=total)
                sum_so_far = total
        for pair in pairs:
            channels[pair].signal(tb=0)
        for pair in pairs:
            channels[pair].wait(tb=0)
    return result
