#pragma once

#include <string>

#include "ctran/base/error.h"

namespace ctran {

/// An error as it travels to other ranks: at most kFailureBytes, longer texts are cut.
std::string serializeFailure(const Error& error, int reporter);

/// Of any bytes that a rank of a world of `size` sends: what makes no sense becomes an error that
/// says so, ranks that are none are left out, and where it names nobody it is about the sender. Its
/// text says who has sent it.
Error parseFailure(const std::string& text, int sender, int size);

}  // namespace ctran
