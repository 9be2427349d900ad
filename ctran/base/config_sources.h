#pragma once

#include <string>
#include <utility>

#include "ctran/base/config.h"

namespace ctran {

/// The text of a variable, and where it stands; empty, and Default, where it stands nowhere.
std::pair<std::string, ConfigVariable::Source> configText(const char* name);

}  // namespace ctran
