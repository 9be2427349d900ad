#pragma once

/// What runs, and why, for programs that are not C++: see capi/plan.h for the form.
///
///   host                                            -> what this machine is made of
///   explain  collective, bytes, ranks               -> {"algorithm", "why", "alternatives": [{
///            or communicator, rank instead of ranks     "algorithm", "predicted_us",
///            "measured_us",
///                                                       "why_not"}, ...]}
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
