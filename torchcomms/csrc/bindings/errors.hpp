#pragma once

#include <torch/csrc/utils/pybind.h>

#include <exception>

namespace torch::comms {

/// Sets the Python error for any C++ exception. Needs the interpreter lock. An engine's error that
/// does not say in which operation it happened gets `operation`, if that is given.
///
///     ctran::Error            torchcomms.CommError, or its descendant for that kind
///     py::error_already_set   itself
///     std::invalid_argument   ValueError
///     anything else           RuntimeError
void setPythonError(const std::exception_ptr& error, const char* operation = "") noexcept;

/// The Python exception object for a C++ exception.
pybind11::object toPythonException(const std::exception_ptr& error);

/// So that functions bound with pybind11 raise the same.
void registerErrorTranslation();

}  // namespace torch::comms
