#pragma once

#include <string>

#include "ctran/base/error.h"

namespace ctran {

/// Serializes an error to be sent to other ranks. It takes at most kFailureBytes; longer texts are
/// cut.
std::string serializeFailure(const Error& error, int reporter);

/// Parses any bytes that a rank of a world of `size` sends. Bytes that are no error become an error
/// that says so. Numbers that are no ranks are left out. An error that names no rank names the
/// sender. The text says who has sent it.
Error parseFailure(const std::string& text, int sender, int size);

}  // namespace ctran
