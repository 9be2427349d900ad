#pragma once

#include <map>
#include <string>
#include <utility>

#include "ctran/base/config.h"

namespace ctran {

/// Returns the text of a variable, and where it is set; an empty text, and Default, if it is not
/// set.
std::pair<std::string, ConfigVariable::Source> configText(const char* name);

/// The file that TORCHCOMM_CONFIG names; the path is empty if there is none.
struct ConfigFile {
  std::string path;
  std::map<std::string, std::string, std::less<>> values;
  std::string error;  ///< why it cannot be used
};
ConfigFile configFile();

}  // namespace ctran
