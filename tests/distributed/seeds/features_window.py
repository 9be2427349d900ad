# Allocate a window
window = comm.window_allocate(
    window_size=1024*1024,    # Size in bytes
    cpu_buf=False,             # GPU memory
    signal_size=64             # Signal buffer size
)

# Get window properties
size = window.get_size()
device = window.get_device()

# Put operation (write to remote rank)
work = window.put(
    tensor=my_tensor,
    dst_rank=1,
    target_disp=0,             # Displacement in window
    async_op=True
)

# Get tensor view from window
remote_tensor = window.get_tensor(
    rank=0,
    sizes=[1024],
    dtype=torch.float32,
    offset=0
)

# Signal/Wait primitives
# Send signal to remote rank
window.signal(
    signal_disp=0,
    signal_val=1,
    dst_rank=1,
    async_op=False
)

# Wait for signal
window.wait_signal(
    signal_disp=0,
    signal_val=1,
    cmp_op=SignalCmpOp.GE,    # Greater or Equal
    async_op=False
)
