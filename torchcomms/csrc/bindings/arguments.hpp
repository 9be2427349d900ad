#pragma once

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <comms/torchcomms/TorchCommOptions.hpp>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace torch::comms {

/// An int of Python, of any size.
struct Integer {
  pybind11::object number;

  /// None if it does not fit.
  std::optional<int> small() const;
  /// Throws ctran::Error(InvalidArgument) that names `what` if it does not fit.
  uint64_t unsigned64(const char* what, const char* operation) const;
  /// A rank below `size`: what does not fit an int is out of range like any other that is too
  /// large, which is not checked here.
  int rank(const char* what, int size, const char* operation) const;
  /// A tag; throws as unsigned64 does.
  int tag() const;
};

/// A parameter of a method; the second name is another spelling of the first.
struct Parameter {
  const char* name;
  const char* otherName = nullptr;
  bool isOptional = false;
};

/// The parameters of a method that is called with vectorcall. All are required up to `async_op`,
/// those apart that say otherwise; `hints`, `timeout` and `options` follow.
class Signature {
 public:
  static constexpr int kMost = 11;
  using Values = std::array<PyObject*, kMost>;

  Signature(const char* function, std::initializer_list<Parameter> parameters);

  /// Borrowed references in the order of the parameters, null where nothing was passed. Throws
  /// py::type_error.
  Values parse(PyObject* const* args, Py_ssize_t positional, PyObject* keywordNames) const;

  const char* function() const { return function_; }
  int asyncOp() const { return required_ - 1; }  ///< index of `async_op`
  const char* nameOf(int index) const { return parameters_[index].name; }

 private:
  int indexOf(PyObject* keyword) const;

  const char* function_;
  std::array<Parameter, kMost> parameters_{};
  std::array<PyObject*, kMost> names_{};       ///< interned
  std::array<PyObject*, kMost> otherNames_{};  ///< interned, or null
  int count_ = 0;
  int required_ = 0;
};

/// The arguments of one call, converted on demand. Conversions throw py::type_error that names the
/// function and the argument.
class CallArguments {
 public:
  CallArguments(const Signature& signature, PyObject* const* args, Py_ssize_t positional,
                PyObject* keywordNames)
      : signature_(signature), values_(signature.parse(args, positional, keywordNames)) {}

  at::Tensor& tensor(int index) const;
  /// As `tensor`; None, or nothing, is an undefined one.
  at::Tensor tensorOrNone(int index) const {
    return isGiven(values_[index]) ? tensor(index) : at::Tensor();
  }
  std::vector<at::Tensor> tensors(int index) const;
  /// As `tensors`; None is an empty list.
  std::vector<at::Tensor> tensorsOrNone(int index) const;
  int64_t integer(int index) const;
  /// See Integer.
  int rank(int index, int size) const;
  std::vector<uint64_t> sizes(int index) const;
  const ReduceOp& reduceOp(int index) const;
  bool asyncOp() const;

  /// From `hints`, `timeout` and `options`, in rising order of precedence the last first.
  template <typename Options>
  Options options() const {
    Options result;
    const int first = signature_.asyncOp() + 1;
    PyObject* given = values_[first + 2];
    if (isGiven(given)) [[unlikely]] {
      if (!pybind11::isinstance<Options>(given)) wrongType(first + 2, "the options of this method");
      result = pybind11::cast<Options>(pybind11::handle(given));
    }
    overrideWith(values_[first], values_[first + 1], result);
    return result;
  }

 private:
  static bool isGiven(PyObject* value) { return value != nullptr && value != Py_None; }
  void overrideWith(PyObject* hints, PyObject* timeout, OpOptions& options) const;
  /// Something that PySequence_Fast_GET_ITEM takes, kept alive.
  pybind11::object sequence(int index, const char* expected) const;
  Integer number(int index) const;
  [[noreturn]] void wrongType(int index, const char* expected) const;

  const Signature& signature_;
  Signature::Values values_;
};

/// A datetime.timedelta, rounded up to a millisecond. Throws py::type_error, and
/// std::invalid_argument if it is negative.
std::chrono::milliseconds toTimeout(pybind11::handle value);

/// A Tensor. Throws py::type_error that names the function and the argument.
at::Tensor toTensor(const char* function, const char* argument, pybind11::handle value);

/// What can be called. Throws py::type_error that names the function and the argument.
pybind11::function toFunction(const char* function, const char* argument, pybind11::handle value);

/// The C++ object of a Python object of exactly that bound class, without a lookup; null if it is
/// of another.
template <typename T>
T* exactly(PyObject* object, PyTypeObject* boundClass) {
  if (Py_TYPE(object) != boundClass) return nullptr;
  auto* instance = reinterpret_cast<pybind11::detail::instance*>(object);
  return instance->simple_layout ? static_cast<T*>(instance->simple_value_holder[0]) : nullptr;
}

/// Adds methods that CPython calls directly to a bound class, which is returned: pybind11's
/// dispatch costs more than what they do. `methods` lasts as long as the class.
PyTypeObject* addMethods(pybind11::handle boundClass, std::span<PyMethodDef> methods);

/// Keeps what `CallArguments` needs of the bound classes. Called once, when they exist.
void prepareArguments();

}  // namespace torch::comms

namespace pybind11::detail {

template <>
struct type_caster<torch::comms::Integer> {
  PYBIND11_TYPE_CASTER(torch::comms::Integer, const_name("int"));

  bool load(handle source, bool /*convert*/) {
    if (PyIndex_Check(source.ptr()) == 0) return false;
    value.number = reinterpret_steal<object>(PyNumber_Index(source.ptr()));
    if (!value.number) throw error_already_set();
    return true;
  }
};

/// As of any other map, but what is none is an error that says so.
template <>
class type_caster<torch::comms::Hints>
    : public map_caster<torch::comms::Hints, std::string, std::string> {
 public:
  bool load(handle source, bool convert) {
    if (map_caster::load(source, convert)) return true;
    const auto typeOf = [](handle object) { return std::string(Py_TYPE(object.ptr())->tp_name); };
    if (PyDict_Check(source.ptr()) == 0) {
      throw type_error("hints must be a dict of str to str, not " + typeOf(source));
    }
    for (const auto& [name, text] : reinterpret_borrow<dict>(source)) {
      if (!isinstance<str>(name))
        throw type_error("hints must have keys of str, not " + typeOf(name));
      if (!isinstance<str>(text)) {
        throw type_error("hint " + std::string(str(name)) + " must be a str, not " + typeOf(text));
      }
    }
    throw type_error("hints must be a dict of str to str");
  }
};

}  // namespace pybind11::detail
