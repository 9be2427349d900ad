# Get rank and size
rank = comm.get_rank()          # My rank
size = comm.get_size()          # World size
name = comm.get_name()          # Communicator name
backend = comm.get_backend()    # Backend name (e.g., "ncclx")
device = comm.get_device()      # Device (e.g., cuda:0)
options = comm.get_options()    # CommOptions object

# Cleanup
comm.finalize()
