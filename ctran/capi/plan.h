#pragma once

/// Plans for programs that are not C++: requests and answers are JSON, so that this one function is
/// the whole interface, and no interpreter's headers are needed to build it. `torchcomms.plan`
/// calls it through ctypes.
///
/// A request is {"do": NAME, ...}; the answer {"ok": ...}, or {"error": MESSAGE, "kind": NUMBER},
/// with the numbers of ctran::ErrorKind.
///
///   library                                  -> [{"name", "collective", "summary"}, ...]
///   make      name, ranks, and as in Recipe  -> the plan
///   lower     program, of MSCCL++            -> the plan
///   prove     program, of MSCCL++            -> {"plan", "origins": [rank][lane][step] ->
///                                                [operation, operation of a pipeline] or -1,
///                                                "factor": chunks of the plan in one of the
///                                                program, "report": as of verify, and findings as
///                                                data}, or {"refused": {"why", "wrong", "rank",
///                                                "lane", "origin"}}
///   lower_unproved program, of MSCCL++       -> {"plan"}, which may be wrong, or {"refused": ...}
///   stage     plan                           -> the plan that reaches nobody else's buffers
///   text      plan                           -> the plan for people
///   verify    plan                           -> {"findings": [{"kind", "message", "rank", "lane",
///                                                "step", "trace"}], "properties": {...}, "text"}
///   simulate  plan, machine, bytes, units    -> the timeline
///   estimate  name, ranks, machine, bytes    -> seconds
///   register  plan, communicator, min_bytes, max_bytes, prefer, stage, proved -> its number
///   remove    number                         -> whether it was there
///
/// The answer is to be given back to ctran_plan_free. Any thread.
extern "C" {
__attribute__((visibility("default"))) char* ctran_plan_call(const char* request);
__attribute__((visibility("default"))) void ctran_plan_free(char* answer);
}
