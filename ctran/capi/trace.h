#pragma once

/// What ranks record, for programs that are not C++: see capi/plan.h for the form.
///
///   read  fd: of a file like those to which /proc/PID/fd leads -> null if it is no communicator's
///         memory, or {"now", "group", "ranks": [{"rank", "size", "name", "operations", ...}]}
///
///   ask   fd, open for writing; "name", "value" of a variable -> a number: asks all ranks there
///   answers  fd, "asked": that number -> [{"rank", "answer": null before it has answered, "" if
///   the
///         rank has taken the value, else why not}]
///
/// Times are nanoseconds of the host's CLOCK_MONOTONIC. docs/troubleshooting.md has all fields.
extern "C" {
__attribute__((visibility("default"))) char* ctran_trace_call(const char* request);
__attribute__((visibility("default"))) void ctran_trace_free(char* answer);
}
