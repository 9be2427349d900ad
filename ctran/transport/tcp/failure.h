#pragma once

#include <string>

#include "ctran/base/error.h"

namespace ctran {

/// An error as it travels to other ranks: at most kFailureBytes, longer texts are cut.
std::string serializeFailure(const Error& error, int reporter);

/// Of any bytes: what makes no sense becomes an error that says so.
Error parseFailure(const std::string& text, int sender);

}  // namespace ctran
