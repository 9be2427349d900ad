#pragma once

namespace ctran {

/// Error: something failed that no exception reports. Warn: works, but not as the user would want.
/// Info: once per communicator or process. Debug: per operation. A failure that is thrown is not
/// logged as well.
enum class LogLevel { Error, Warn, Info, Debug };

/// Whether messages of this level are printed (CTRAN_LOG). Cheap; ask before preparing a message
/// that is not.
bool logs(LogLevel level);

/// Writes one line to stderr, in one system call, so lines of ranks that share a terminal do not
/// mix: "12:34:56.789012 ctran[pid] rank 3 warn: text". Any thread. Printf-style; a message longer
/// than about a kilobyte is cut.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);

/// The rank to print from now on: the one in the process' first communicator. Negative for none.
void setLogRank(int rank);

}  // namespace ctran
