# NCCLX high-priority stream
hints = {
    "torchcomm::ncclx::high_priority_stream": "true"
}

comm.all_reduce(
    tensor, 
    ReduceOp.SUM, 
    async_op=False,
    hints=hints
)
