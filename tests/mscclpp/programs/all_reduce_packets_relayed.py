"""All-reduce in two steps by packets, which lie in scratch beside data: copies, and sums."""

from mscclpp.language import AllReduce, Buffer, CollectiveProgram, MemoryChannel, Rank


def program(ranks=2, unpacks=True, **settings):
    with CollectiveProgram(
        "relayed", AllReduce(ranks, 1, True), ranks, protocol="LL", **settings
    ) as result:
        # Packets of others' parts, and of their sums; data: one of the parts, and the own sum.
        scratch = [Buffer(rank, 2 * ranks + 2) for rank in range(ranks)]
        data = [Rank(rank).get_input_buffer() for rank in range(ranks)]
        pairs = [(peer, me) for me in range(ranks) for peer in range(ranks) if peer != me]
        for peer, me in pairs:
            to_peer = MemoryChannel(peer, me)
            to_peer.put_packets(scratch[peer][me : me + 1], data[me][peer : peer + 1], tb=0)
        for me in range(ranks):
            rank, mine = Rank(me), data[me][me : me + 1]
            part, total = (scratch[me][2 * ranks + i : 2 * ranks + i + 1] for i in range(2))
            first, *others = (peer for peer in range(ranks) if peer != me)
            rank.unpack_packets(part, scratch[me][first : first + 1], tb=0)
            if not unpacks:
                rank.copy(part, scratch[me][first : first + 1], tb=0)
            rank.reduce(mine, [part], dst_chunk=total, tb=0)
            if others:
                packets = [scratch[me][peer : peer + 1] for peer in others]
                rank.reduce(total, packets, tb=0, packet=True)
            rank.copy(mine, total, tb=0)
            for peer in (first, *others):
                slot = scratch[peer][ranks + me : ranks + me + 1]
                MemoryChannel(peer, me).put_packets(slot, total, tb=0)
        for peer, me in pairs:
            slot = scratch[me][ranks + peer : ranks + peer + 1]
            Rank(me).unpack_packets(data[me][peer : peer + 1], slot, tb=0)
    return result
