#include "torchcomms/csrc/bindings/arguments.hpp"

#include <datetime.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <climits>

#include "ctran/base/error.h"
#include "torchcomms/csrc/longest_timeout.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

PyTypeObject* reduceOpClass = nullptr;

std::string typeName(PyObject* object) { return Py_TYPE(object)->tp_name; }

std::string textOf(const Integer& value) { return py::str(value.number).cast<std::string>(); }

[[noreturn]] void outOfRange(const char* what, const std::string& end, const Integer& value,
                             const char* operation) {
  throw ctran::Error(
      ctran::ErrorKind::InvalidArgument,
      std::string(what) + " must be in range [0, " + end + "), but got " + textOf(value), {},
      operation);
}

}  // namespace

std::optional<int> Integer::small() const {
  int overflow = 0;
  const long result = PyLong_AsLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || result > INT_MAX || result < INT_MIN) return std::nullopt;
  return static_cast<int>(result);
}

int Integer::rank(const char* what, int size, const char* operation) const {
  const std::optional<int> rank = small();
  if (!rank) outOfRange(what, std::to_string(size), *this, operation);
  return *rank;
}

int Integer::tag() const {
  if (const auto fits = small()) return *fits;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "tag must fit into 32 bits, but is " + textOf(*this));
}

uint64_t Integer::unsigned64(const char* what, const char* operation) const {
  const auto result = PyLong_AsUnsignedLongLong(number.ptr());
  if (result == ~0ULL && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    outOfRange(what, "2**64", *this, operation);
  }
  return result;
}

void prepareArguments() {
  PyDateTime_IMPORT;
  if (PyDateTimeAPI == nullptr) throw py::error_already_set();
  reduceOpClass = reinterpret_cast<PyTypeObject*>(py::type::of<ReduceOp>().ptr());
}

PyTypeObject* addMethods(py::handle boundClass, std::span<PyMethodDef> methods) {
  auto* const type = reinterpret_cast<PyTypeObject*>(boundClass.ptr());
  for (PyMethodDef& method : methods) {
    const auto made = py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &method));
    if (!made) throw py::error_already_set();
    boundClass.attr(method.ml_name) = made;
  }
  return type;
}

Signature::Signature(const char* function, std::initializer_list<Parameter> parameters)
    : function_(function) {
  const auto add = [this](const Parameter& p) {
    parameters_.at(count_) = p;
    names_.at(count_) = PyUnicode_InternFromString(p.name);
    if (p.otherName != nullptr) otherNames_.at(count_) = PyUnicode_InternFromString(p.otherName);
    ++count_;
  };
  for (const Parameter& p : parameters) add(p);
  add({"async_op"});
  required_ = count_;
  for (const char* name : {"hints", "timeout", "options"}) add({name});
}

int Signature::indexOf(PyObject* keyword) const {
  // Names in code are interned, so nearly always the pointers tell.
  for (int i = 0; i < count_; ++i) {
    if (names_[i] == keyword) return i;
  }
  for (int i = 0; i < count_; ++i) {
    if (PyUnicode_Compare(names_[i], keyword) == 0 ||
        (otherNames_[i] != nullptr && PyUnicode_Compare(otherNames_[i], keyword) == 0)) {
      return i;
    }
  }
  throw py::type_error(std::string(function_) + "() got an unexpected keyword argument '" +
                       py::str(keyword).cast<std::string>() + "'");
}

Signature::Values Signature::parse(PyObject* const* args, Py_ssize_t positional,
                                   PyObject* keywordNames) const {
  Values values{};
  const int mostPositional = count_ - 1;  // `options` by keyword alone
  if (positional > mostPositional) [[unlikely]] {
    throw py::type_error(std::string(function_) + "() takes at most " +
                         std::to_string(mostPositional) + " positional arguments (" +
                         std::to_string(positional) + " given)");
  }
  for (Py_ssize_t i = 0; i < positional; ++i) values[i] = args[i];
  const Py_ssize_t keywords = keywordNames == nullptr ? 0 : PyTuple_GET_SIZE(keywordNames);
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    const int index = indexOf(PyTuple_GET_ITEM(keywordNames, k));
    if (values[index] != nullptr) {
      throw py::type_error(std::string(function_) + "() got multiple values for argument '" +
                           parameters_[index].name + "'");
    }
    values[index] = args[positional + k];
  }
  for (int i = 0; i < required_; ++i) {
    if (values[i] == nullptr && !parameters_[i].isOptional) [[unlikely]] {
      throw py::type_error(std::string(function_) + "() missing required argument '" +
                           parameters_[i].name + "'");
    }
  }
  return values;
}

void CallArguments::wrongType(int index, const char* expected) const {
  throw py::type_error(std::string(signature_.function()) + "(): argument '" +
                       signature_.nameOf(index) + "' must be " + expected + ", not " +
                       typeName(values_[index]));
}

py::object CallArguments::sequence(int index, const char* expected) const {
  PyObject* value = values_[index];
  // A tensor or a string can be iterated over too, but is not meant.
  if (!PySequence_Check(value) || THPVariable_Check(value) || PyUnicode_Check(value)) {
    wrongType(index, expected);
  }
  auto list = py::reinterpret_steal<py::object>(PySequence_Fast(value, expected));
  if (!list) throw py::error_already_set();
  return list;
}

at::Tensor& CallArguments::tensor(int index) const {
  PyObject* value = values_[index];
  if (!THPVariable_Check(value)) [[unlikely]]
    wrongType(index, "Tensor");
  return const_cast<at::Tensor&>(THPVariable_Unpack(value));
}

std::vector<at::Tensor> CallArguments::tensors(int index) const {
  const py::object list = sequence(index, "a list of Tensors");
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(list.ptr());
  std::vector<at::Tensor> result;
  result.reserve(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list.ptr(), i);
    if (!THPVariable_Check(item)) {
      throw py::type_error(std::string(signature_.function()) + "(): argument '" +
                           signature_.nameOf(index) + "' must be a list of Tensors, but has a " +
                           typeName(item));
    }
    result.push_back(THPVariable_Unpack(item));
  }
  return result;
}

std::vector<at::Tensor> CallArguments::tensorsOrNone(int index) const {
  return values_[index] == Py_None ? std::vector<at::Tensor>() : tensors(index);
}

int64_t CallArguments::integer(int index) const {
  const Integer value = number(index);
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(value.number.ptr(), &overflow);
  if (overflow != 0) {
    throw std::invalid_argument(std::string(signature_.function()) + "(): argument '" +
                                signature_.nameOf(index) +
                                "' does not fit 64 bits: " + textOf(value));
  }
  return result;
}

int CallArguments::rank(int index, int size) const {
  return number(index).rank(signature_.nameOf(index), size, signature_.function());
}

Integer CallArguments::number(int index) const {
  PyObject* value = values_[index];
  if (!PyIndex_Check(value) || THPVariable_Check(value)) wrongType(index, "int");
  auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value));
  if (!number) throw py::error_already_set();
  return {std::move(number)};
}

std::vector<uint64_t> CallArguments::sizes(int index) const {
  const py::object list = sequence(index, "a list of ints");
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(list.ptr());
  std::vector<uint64_t> result;
  result.reserve(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list.ptr(), i);
    if (!PyIndex_Check(item)) {
      throw py::type_error(std::string(signature_.function()) + "(): argument '" +
                           signature_.nameOf(index) + "' must be a list of ints, but has a " +
                           typeName(item));
    }
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(item));
    if (!number) throw py::error_already_set();
    int overflow = 0;
    const long long size = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow > 0) {
      throw std::invalid_argument(std::string(signature_.function()) + "(): argument '" +
                                  signature_.nameOf(index) + "' has a size beyond 64 bits");
    }
    if (size < 0) {
      throw std::invalid_argument(std::string(signature_.function()) + "(): argument '" +
                                  signature_.nameOf(index) + "' has a negative size");
    }
    result.push_back(static_cast<uint64_t>(size));
  }
  return result;
}

const ReduceOp& CallArguments::reduceOp(int index) const {
  PyObject* value = values_[index];
  if (const auto* op = exactly<ReduceOp>(value, reduceOpClass)) [[likely]]
    return *op;
  if (!py::isinstance<ReduceOp>(value)) wrongType(index, "ReduceOp");
  return *py::cast<const ReduceOp*>(py::handle(value));
}

bool CallArguments::asyncOp() const {
  PyObject* value = values_[signature_.asyncOp()];
  if (value == Py_False) return false;
  if (value == Py_True) return true;
  const int truth = PyObject_IsTrue(value);
  if (truth < 0) throw py::error_already_set();
  return truth != 0;
}

void CallArguments::overrideWith(PyObject* hints, PyObject* timeout, OpOptions& options) const {
  if (isGiven(hints)) [[unlikely]] {
    py::detail::map_caster<Hints, std::string, std::string> caster;
    if (!caster.load(hints, /*convert=*/true)) {
      wrongType(signature_.asyncOp() + 1, "a dict of str to str");
    }
    options.hints = std::move(static_cast<Hints&>(caster));
  }
  if (isGiven(timeout)) [[unlikely]]
    options.timeout = toTimeout(timeout);
}

at::Tensor toTensor(const char* function, const char* argument, py::handle value) {
  if (!THPVariable_Check(value.ptr())) {
    throw py::type_error(std::string(function) + "(): argument '" + argument +
                         "' must be Tensor, not " + typeName(value.ptr()));
  }
  return THPVariable_Unpack(value.ptr());
}

py::function toFunction(const char* function, const char* argument, py::handle value) {
  if (PyCallable_Check(value.ptr()) == 0) {
    throw py::type_error(std::string(function) + "(): argument '" + argument +
                         "' must be callable, not " + typeName(value.ptr()));
  }
  return py::reinterpret_borrow<py::function>(value);
}

std::chrono::milliseconds toTimeout(py::handle value) {
  if (!PyDelta_Check(value.ptr())) {
    throw py::type_error("timeout must be datetime.timedelta, not " + typeName(value.ptr()));
  }
  const int64_t seconds = int64_t{PyDateTime_DELTA_GET_DAYS(value.ptr())} * 86400 +
                          PyDateTime_DELTA_GET_SECONDS(value.ptr());
  const int64_t micros = PyDateTime_DELTA_GET_MICROSECONDS(value.ptr());
  if (seconds < 0) throw std::invalid_argument("timeout must not be negative");
  return std::min(std::chrono::milliseconds(seconds * 1000 + (micros + 999) / 1000),
                  kLongestTimeout);
}

}  // namespace torch::comms
