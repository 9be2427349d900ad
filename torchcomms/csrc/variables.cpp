// The variables that Python reads, so that there is one list of all of them.
#include "ctran/base/config.h"

namespace torch::comms {
namespace {

const ctran::ConfigInt kRank{
    "TORCHCOMM_RANK", -1,
    "The rank of this process, with TORCHCOMM_SIZE; asked first. -1: other "
    "variables say it.",
    -1};
const ctran::ConfigInt kSize{"TORCHCOMM_SIZE", 0,
                             "The number of ranks. 0: other variables say it."};
const ctran::ConfigChoice kMethod{"TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD",
                                  "auto|torchcomm|torchrun|mpi|pals|slurm", "auto",
                                  "Whose variables say rank and size (docs/launching.md)."};
const ctran::ConfigString kMaster{"MASTER_ADDR", "",
                                  "Host of the store, where the program passes none."};
const ctran::ConfigInt kPort{"MASTER_PORT", 0, "Port of the store. 0: none.", 0, 65535};
const ctran::ConfigString kLibraries{"TORCHCOMMS_BACKEND_LIB_PATH_<NAME>", "",
                                     "The library with backend <name> (docs/backends/your_own.md).",
                                     "path"};
const ctran::ConfigBool kPatch{
    "TORCHCOMMS_PATCH_FOR_COMPILE", true,
    "Whether calls on communicators can be compiled by torch.compile; else they break graphs. Set "
    "to 1, methods record gradients outside compiled code too (docs/compile.md)."};
const ctran::ConfigChoice kSerialization{
    "TORCHCOMMS_SERIALIZATION", "torch.save|pickle", "torch.save",
    "How torchcomms.objcol writes objects; with pickle, receivers trust their senders."};
const ctran::ConfigBool kWorker{
    "TORCHCOMMS_WORKER", false,
    "Set by `torchcomms tune` and `bench` for the ranks that they start; nothing to set by hand."};

}  // namespace
}  // namespace torch::comms
