#pragma once

namespace torch::comms {

/// Lets the server that PyTorch's debug server (torch.distributed.debug) has in each rank answer
///
/// - torchcomms_fr_trace_json: what FlightRecorderHooks that are not isolated remember, as JSON;
///   with onlyactive=true only what has not ended well;
/// - torchcomms_fr_dump_file: writes that to the file of this rank, and answers its path;
/// - torchcomms_health_check: whether all of their communicators can be used, and which cannot.
///
/// The answers need no interpreter: a rank that is stuck gives them too.
void registerDebugHandlers();

}  // namespace torch::comms
