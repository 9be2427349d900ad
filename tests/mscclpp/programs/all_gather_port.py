"""All-gather through ports, from scratch, in a loop; a semaphore joins the two thread blocks.

`at_once=True`: each put signals and flushes, too."""

from mscclpp.language import (
    AllGather,
    Buffer,
    CollectiveProgram,
    LoopIterationContext,
    PortChannel,
    Rank,
    Semaphore,
    SyncType,
)


def program(ranks=3, at_once=False, **settings):
    with CollectiveProgram("port", AllGather(ranks, 1, False), ranks, **settings) as result:
        scratch = [Buffer(rank, 1) for rank in range(ranks)]
        for me in range(ranks):
            rank = Rank(me)
            copied = Semaphore(me, initial_value=0)
            output = rank.get_output_buffer()
            ports = [PortChannel(peer, me) for peer in range(ranks) if peer != me]
            for port in ports:
                port.signal(tb=1)
            for port in ports:
                port.wait(tb=1)
            with LoopIterationContext(unit=2**20, num_chunks=1):
                rank.copy(scratch[me][0:1], rank.get_input_buffer()[0:1], tb=0)
                copied.release(tb=0, data_sync=SyncType.before)
                copied.acquire(tb=1, data_sync=SyncType.after)
                for port in ports:
                    there = Rank(port.dst_rank).get_output_buffer()
                    put = port.put_with_signal_and_flush if at_once else port.put_with_signal
                    put(there[me : me + 1], scratch[me][0:1], tb=1)
                rank.copy(output[me : me + 1], scratch[me][0:1], tb=0)
                for port in ports if not at_once else ():
                    port.flush(tb=1, data_sync=SyncType.none)
                for port in ports:
                    port.wait(tb=1, data_sync=SyncType.after)
    return result
