#include <pybind11/stl.h>

#include "ctran/base/config.h"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

void bindConfig(py::module_& module) {
  module.def(
      "_config_variables",
      [] {
        py::list rows;
        for (const ctran::ConfigVariable* variable : ctran::allConfig()) {
          rows.append(py::make_tuple(std::string(variable->name()), variable->type(),
                                     variable->defaultText(), variable->isSet(),
                                     std::string(variable->doc())));
        }
        return rows;
      },
      "The environment variables of the C++ part: name, type, default, whether it is set, "
      "meaning.");
}

}  // namespace torch::comms
