#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>

#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/errors.hpp"
#include "torchcomms/csrc/data_type.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

py::object factorOf(const ReduceOp& op) {
  if (const auto* number = std::get_if<double>(&op.factor())) return py::cast(*number);
  if (const auto* tensor = std::get_if<at::Tensor>(&op.factor())) return py::cast(*tensor);
  return py::none();
}

bool sameFactor(const ReduceOp& a, const ReduceOp& b) {
  const auto* x = std::get_if<at::Tensor>(&a.factor());
  const auto* y = std::get_if<at::Tensor>(&b.factor());
  if (x != nullptr && y != nullptr) return x->is_same(*y);
  const auto* u = std::get_if<double>(&a.factor());
  const auto* v = std::get_if<double>(&b.factor());
  if (u != nullptr && v != nullptr) return *u == *v;
  return a.factor().index() == b.factor().index();
}

ReduceOp premulSum(const py::object& factor) {
  py::detail::make_caster<at::Tensor> tensor;
  if (tensor.load(factor, false)) {
    return ReduceOp::PREMUL_SUM(py::detail::cast_op<at::Tensor>(std::move(tensor)));
  }
  if (!PyNumber_Check(factor.ptr()) || PyComplex_Check(factor.ptr())) {
    throw py::type_error("The factor of PREMUL_SUM must be a number or a Tensor");
  }
  return ReduceOp::PREMUL_SUM(py::float_(factor).cast<double>());
}

std::string printed(const ReduceOp& op) {
  std::string text = "ReduceOp." + std::string(toString(op.type()));
  if (op.hasFactor()) text += "(" + py::repr(factorOf(op)).cast<std::string>() + ")";
  return text;
}

constexpr RedOpType kPlainTypes[] = {RedOpType::SUM,  RedOpType::PRODUCT, RedOpType::MIN,
                                     RedOpType::MAX,  RedOpType::BAND,    RedOpType::BOR,
                                     RedOpType::BXOR, RedOpType::AVG};

}  // namespace

void bindTypes(py::module_& module) {
  py::enum_<RedOpType> types(module, "RedOpType", "The kind of a reduction.");
  for (const RedOpType type : kPlainTypes) types.value(std::string(toString(type)).c_str(), type);
  types.value("PREMUL_SUM", RedOpType::PREMUL_SUM);

  py::enum_<OpName> names(module, "OpName", "The operations of a communicator.");
  for (int i = 0; i <= static_cast<int>(OpName::wait_signal); ++i) {
    const auto name = static_cast<OpName>(i);
    names.value(std::string(toString(name)).c_str(), name);
  }

  py::class_<ReduceOp> op(module, "ReduceOp",
                          "A reduction: one of SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG, or "
                          "PREMUL_SUM(factor).");
  op.def(py::init<RedOpType>(), py::arg("type"))
      .def_property_readonly(
          "type", [](const ReduceOp& self) { return self.type(); }, "The kind of the reduction.")
      .def_property_readonly("factor", &factorOf, "Of PREMUL_SUM, else None.")
      .def(py::pickle(  // copies are made this way, too
          [](const ReduceOp& self) { return std::pair(self.type(), factorOf(self)); },
          [](const std::pair<RedOpType, py::object>& state) {
            return state.second.is_none() ? ReduceOp(state.first) : premulSum(state.second);
          }))
      .def("__eq__",
           [](const ReduceOp& self, const py::object& other) {
             if (!py::isinstance<ReduceOp>(other)) return false;
             const auto& right = other.cast<const ReduceOp&>();
             return self.type() == right.type() && sameFactor(self, right);
           })
      .def("__hash__", [](const ReduceOp& self) { return static_cast<int>(self.type()); })
      .def("__repr__", &printed)
      .def_static("PREMUL_SUM", &premulSum, py::arg("factor"),
                  "A sum in which every rank first multiplies its own contribution by its own "
                  "factor: a number or a tensor of one element.");
  for (const RedOpType type : kPlainTypes) {
    op.attr(std::string(toString(type)).c_str()) = py::cast(ReduceOp(type));
  }
  module.def(
      "_check_reducible",
      [](const py::object& dtype, const std::string& op) {
        try {
          if (THPDtype_Check(dtype.ptr())) {
            reducibleType(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
          }
        } catch (...) {
          setPythonError(std::current_exception(), op.c_str());
          throw py::error_already_set();
        }
      },
      py::arg("dtype"), py::arg("op"),
      "Raises what the operation `op` raises if no reduction takes `dtype`.");
}

}  // namespace torch::comms
