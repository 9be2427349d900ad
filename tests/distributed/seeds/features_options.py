from torchcomms import CommOptions
from datetime import timedelta

options = CommOptions()
options.abort_process_on_timeout_or_error = False
options.timeout = timedelta(seconds=30)
options.name = "my_comm"
options.hints = {"key": "value"}

# Or pass directly to new_comm
comm = new_comm(
    "ncclx",
    device,
    abort_process_on_timeout_or_error=False,
    timeout=timedelta(seconds=30),
    name="my_comm",
    hints={"key": "value"}
)
