from datetime import timedelta

# Set timeout for specific operation
comm.all_reduce(
    tensor,
    ReduceOp.SUM,
    async_op=False,
    timeout=timedelta(seconds=60)
)
