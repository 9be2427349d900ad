#pragma once

#include <map>
#include <string>
#include <utility>

#include "ctran/base/config.h"

namespace ctran {

/// The text of a variable, and where it stands; empty, and Default, where it stands nowhere.
std::pair<std::string, ConfigVariable::Source> configText(const char* name);

/// The file that TORCHCOMM_CONFIG names; an empty path: none.
struct ConfigFile {
  std::string path;
  std::map<std::string, std::string, std::less<>> values;
  std::string error;  ///< why it cannot be used
};
ConfigFile configFile();

}  // namespace ctran
