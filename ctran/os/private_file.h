#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ctran {

/// Makes a file that only this user reads and writes, whatever the umask. Throws Error(System),
/// also if there is one of that name.
void writePrivateFile(const std::string& path, std::string_view bytes);

/// What the file holds; nothing if there is none. Throws Error(System), also if it belongs to
/// another user than this one or root, or if others may read or write it.
std::optional<std::string> readPrivateFile(const std::string& path);

}  // namespace ctran
