#include "ctran/base/config.h"

#include <pybind11/stl.h>

#include "ctran/base/config_sources.h"
#include "ctran/base/error.h"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {
namespace {

using Source = ctran::ConfigVariable::Source;

std::string nameOf(Source source) {
  switch (source) {
    case Source::Default:
      return "default";
    case Source::File:
      return "file";
    case Source::Environment:
      return "environment";
    case Source::Live:
      return "live";
  }
  return "?";
}

/// Why `text` is no value of the variable; empty if it is one.
std::string faultOf(const std::string& name, const std::string& text) {
  const ctran::ConfigVariable* variable = ctran::findConfig(name);
  if (variable == nullptr) return "";
  try {
    variable->check(text);
  } catch (const ctran::Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

void bindConfig(py::module_& module) {
  module.def(
      "_config_variables",
      [] {
        py::list rows;
        for (const ctran::ConfigVariable* variable : ctran::allConfig()) {
          const std::string name(variable->name());
          const auto [text, source] = ctran::configText(name.c_str());
          rows.append(py::make_tuple(name, variable->type(), variable->defaultText(), text,
                                     nameOf(source), variable->isLive(),
                                     std::string(variable->doc())));
        }
        return rows;
      },
      "The environment variables: name, type, default, the text that is set, where, whether it can "
      "be changed while a program runs, meaning.");
  module.def(
      "_config_text", [](const std::string& name) { return ctran::configText(name.c_str()).first; },
      py::arg("name"), "What a variable is set to, here or in the file; empty where it is not.");
  module.def(
      "_config_file",
      [] {
        const ctran::ConfigFile file = ctran::configFile();
        return py::make_tuple(file.path, file.error, file.values);
      },
      "The file that TORCHCOMM_CONFIG names, if one is named: its path, why it cannot be used, and "
      "its variables.");
  module.def("_config_fault", &faultOf, py::arg("name"), py::arg("text"),
             "Why the variable cannot have that value; empty if it can.");
  module.def(
      "_config_unknown",
      [](const std::vector<std::string>& names) {
        py::list rows;
        for (const auto& unknown : ctran::unknownConfig(names, ctran::kConfigPrefixes)) {
          rows.append(py::make_tuple(unknown.name, unknown.near));
        }
        return rows;
      },
      py::arg("names"),
      "Of names of variables, those that should mean something here and do not, with what may be "
      "meant.");
}

}  // namespace torch::comms
