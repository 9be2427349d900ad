#pragma once

/// What runs, and why, for programs that are not C++: see capi/plan.h for the form.
///
///   host                                            -> what this machine is made of
///   explain  collective, bytes, and                 -> {"algorithm", "why", "alternatives": [{
///            communicator, rank                         "algorithm", "predicted_us",
///            or ranks of a host (and hosts);            "measured_us", "why_not"}, ...]}
///            type, if it matters; hints                  "sizes"
///   prepare  collective, bytes, type, reduction,    -> {}, of GPUs
///            communicator, rank; hints
///   tune     communicator, rank, seconds            -> {"path": of the table, "measured": [...]}
///   force    communicator, rank, algorithm          -> {}, for measurements; "" for no more
///   use      communicator, rank, measured, save     -> {"path": where it is, or would be, kept}
///
/// `bytes` are what a rank contributes. `tune` is collective, takes about that long and calls
/// `progress`, if it is not null, with how much is done, from 0 to 1, and what is next.
extern "C" {
__attribute__((visibility("default"))) char* ctran_select_call(const char* request,
                                                               void (*progress)(double,
                                                                                const char*));
__attribute__((visibility("default"))) void ctran_select_free(char* answer);
}
