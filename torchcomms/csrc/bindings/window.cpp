#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

using OptionalHints = std::optional<Hints>;
using OptionalTimeout = std::optional<py::object>;

template <typename Options>
Options optionsOf(OptionalHints hints, const OptionalTimeout& timeout) {
  Options options;
  if (hints) options.hints = std::move(*hints);
  if (timeout) options.timeout = toTimeout(*timeout);
  return options;
}

py::object wrap(const c10::intrusive_ptr<TorchWork>& work) {
  PyObject* const object = wrapWork(work);
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

at::ScalarType scalarType(const py::object& dtype) {
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("dtype must be a torch.dtype");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

int rankOf(const TorchCommWindow& window, const Integer& rank) {
  return rank.rank("[TorchCommWindow]: rank", window.getSize(), "window");
}

uint64_t signalOf(const Integer& value) {
  return value.unsigned64("[TorchCommWindow]: signal_val", "window");
}

void bindOperations(py::class_<TorchCommWindow, std::shared_ptr<TorchCommWindow>>& window) {
  const auto hints = py::arg("hints") = py::none();
  const auto timeout = py::arg("timeout") = py::none();
  const auto put = [](TorchCommWindow& self, const py::object& tensor, const Integer& dst,
                      int64_t offset, bool asyncOp, OptionalHints given,
                      const OptionalTimeout& limit) {
    return wrap(self.put(toTensor("put", "tensor", tensor), rankOf(self, dst), offset, asyncOp,
                         optionsOf<PutOptions>(std::move(given), limit)));
  };
  const auto signal = [](TorchCommWindow& self, const Integer& dst, bool asyncOp,
                         OptionalHints given, const OptionalTimeout& limit) {
    return wrap(
        self.signal(rankOf(self, dst), asyncOp, optionsOf<SignalOptions>(std::move(given), limit)));
  };
  window
      .def("put", put, py::arg("tensor"), py::arg("dst_rank"), py::arg("target_offset_nelems"),
           py::arg("async_op"), hints, timeout,
           "Writes a contiguous tensor into the memory of rank `dst_rank`, at element "
           "`target_offset_nelems`, counted in elements of `tensor`.")
      .def("put", put, py::arg("tensor"), py::arg("dst_rank"), py::arg("target_disp"),
           py::arg("async_op"), hints, timeout, "The same; `target_disp` counts elements.")
      .def("put", put, py::arg("tensor"), py::arg("dst_rank"), py::arg("offset"),
           py::arg("async_op"), hints, timeout, "The same; `offset` counts elements.")
      .def(
          "get",
          [](TorchCommWindow& self, const py::object& tensor, const Integer& src, int64_t offset,
             bool asyncOp, OptionalHints given, const OptionalTimeout& limit) {
            at::Tensor output = toTensor("get", "tensor", tensor);
            return wrap(self.get(output, rankOf(self, src), offset, asyncOp,
                                 optionsOf<GetOptions>(std::move(given), limit)));
          },
          py::arg("tensor"), py::arg("src_rank"), py::arg("source_offset_nelems"),
          py::arg("async_op"), hints, timeout,
          "Reads a contiguous tensor from the memory of rank `src_rank`, from element "
          "`source_offset_nelems`, counted in elements of `tensor`.")
      .def(
          "flush",
          [](TorchCommWindow& self, const Integer& dst, bool asyncOp, OptionalHints given,
             const OptionalTimeout& limit) {
            return wrap(self.flush(rankOf(self, dst), asyncOp,
                                   optionsOf<FlushOptions>(std::move(given), limit)));
          },
          py::arg("dst_rank"), py::arg("async_op"), hints, timeout,
          "Ends when everything that was put to rank `dst_rank` before is visible there.")
      .def("signal", signal, py::arg("peer_rank"), py::arg("async_op"), hints, timeout,
           "Counts one signal of this rank at rank `peer_rank`, whose wait_signal() takes it.")
      .def("signal", signal, py::arg("dst_rank"), py::arg("async_op"), hints, timeout, "The same.")
      .def(
          "signal",
          [](TorchCommWindow& self, int64_t index, const Integer& value, const Integer& dst,
             bool asyncOp, OptionalHints given, const OptionalTimeout& limit) {
            return wrap(self.signal(index, signalOf(value), rankOf(self, dst), asyncOp,
                                    optionsOf<SignalOptions>(std::move(given), limit)));
          },
          py::arg("signal_disp"), py::arg("signal_val"), py::arg("dst_rank"), py::arg("async_op"),
          hints, timeout, "Sets signal number `signal_disp` of rank `dst_rank` to `signal_val`.")
      .def(
          "wait_signal",
          [](TorchCommWindow& self, const Integer& peer, bool asyncOp, OptionalHints given,
             const OptionalTimeout& limit) {
            return wrap(self.wait_signal(rankOf(self, peer), asyncOp,
                                         optionsOf<WaitSignalOptions>(std::move(given), limit)));
          },
          py::arg("peer_rank"), py::arg("async_op"), hints, timeout,
          "Waits for one more signal of rank `peer_rank` than was waited for before.")
      .def(
          "wait_signal",
          [](TorchCommWindow& self, int64_t index, const Integer& value, SignalCmpOp op,
             bool asyncOp, OptionalHints given, const OptionalTimeout& limit) {
            return wrap(self.wait_signal(index, signalOf(value), op, asyncOp,
                                         optionsOf<WaitSignalOptions>(std::move(given), limit)));
          },
          py::arg("signal_disp"), py::arg("signal_val"), py::arg("cmp_op"), py::arg("async_op"),
          hints, timeout,
          "Waits until signal number `signal_disp` of this rank compares so with `signal_val`.");
}

}  // namespace

void bindWindow(py::module_& module) {
  py::enum_<SignalCmpOp>(module, "SignalCmpOp", "How wait_signal() compares: signal <op> value.")
      .value("EQ", SignalCmpOp::EQ)
      .value("NE", SignalCmpOp::NE)
      .value("LT", SignalCmpOp::LT)
      .value("LE", SignalCmpOp::LE)
      .value("GT", SignalCmpOp::GT)
      .value("GE", SignalCmpOp::GE);
  py::enum_<TorchCommWinAccessType>(module, "TorchCommWinAccessType",
                                    "Whether a rank's memory can be mapped (UNIFIED), or only "
                                    "reached by operations (SEPARATE).")
      .value("WIN_ACCESS_TYPE_UNIFIED", TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED)
      .value("WIN_ACCESS_TYPE_SEPARATE", TorchCommWinAccessType::WIN_ACCESS_TYPE_SEPARATE);
  py::class_<TorchCommWindowAttr>(module, "TorchCommWindowAttr", "What get_attr() returns.")
      .def_readonly("access_type", &TorchCommWindowAttr::accessType, "A TorchCommWinAccessType.");

  py::class_<TorchCommWindow, std::shared_ptr<TorchCommWindow>> window(
      module, "TorchCommWindow",
      "Memory that every rank of a communicator exposes to the others, who read and write it "
      "without its owner taking part, and signals with which they tell each other that they "
      "did.\n\n"
      "Operations to one rank take effect there in the order of the calls: whoever has waited for "
      "a "
      "signal sees everything that its sender put there before. Offsets count elements of the "
      "tensor that is moved, and are checked against the target's memory at the call.");
  bindOperations(window);
  window
      .def(
          "tensor_register",
          [](TorchCommWindow& self, const py::object& tensor, bool owning) {
            self.tensor_register(toTensor("tensor_register", "tensor", tensor), owning);
          },
          py::arg("tensor"), py::arg("owning") = true,
          "Exposes a contiguous tensor: collective; the tensors of the ranks may differ. `owning`: "
          "the window holds the tensor, otherwise the caller does until tensor_deregister().")
      .def("tensor_deregister", &TorchCommWindow::tensor_deregister,
           "Collective: afterwards nobody touches the tensor.")
      .def(
          "map_remote_tensor",
          [](TorchCommWindow& self, const Integer& rank) {
            return self.map_remote_tensor(rankOf(self, rank));
          },
          py::arg("rank"),
          "The registered tensor of that rank, without a copy. Raises where get_attr() says "
          "SEPARATE.")
      .def(
          "get_tensor",
          [](TorchCommWindow& self, const std::optional<Integer>& rank,
             const std::optional<std::vector<int64_t>>& sizes,
             const std::optional<py::object>& dtype, int64_t offset) -> std::optional<at::Tensor> {
            if (!rank) {
              if (!sizes && !dtype && offset == 0) return self.get_tensor();
              throw py::value_error(
                  "get_tensor: sizes, dtype and offset are of a rank's memory; name the rank");
            }
            const at::ScalarType type = dtype ? scalarType(*dtype) : self.dtype();
            if (sizes) return self.get_tensor(rankOf(self, *rank), *sizes, type, offset);
            const at::Tensor whole = self.map_remote_tensor(rankOf(self, *rank));
            if (!dtype && offset == 0) return whole;
            const at::Tensor flat = whole.reshape({-1}).view(type);
            if (offset < 0 || offset > flat.numel()) {
              throw py::value_error("get_tensor: there is no element " + std::to_string(offset) +
                                    " of " + std::to_string(flat.numel()));
            }
            return flat.slice(0, offset);
          },
          py::arg("rank") = py::none(), py::arg("sizes") = py::none(),
          py::arg("dtype") = py::none(), py::arg("offset") = 0,
          "A view of the memory of `rank`, without a copy, from element `offset` of `dtype`; its "
          "strides are those of a contiguous tensor. Without `sizes`: all that follows. Without a "
          "rank: the registered tensor, None if the window does not hold it.")
      .def("get_device_window", &TorchCommWindow::get_device_window, py::arg("signal_count") = -1,
           py::arg("counter_count") = -1, py::arg("barrier_count") = 1,
           "The address of the window for CUDA kernels, a TorchCommDeviceWindow, with so many "
           "signals, counters and barriers; -1: as many as ranks. Collective, the same on all "
           "ranks.")
      .def(
          "register_local_buffer",
          [](TorchCommWindow& self, const py::object& tensor) {
            return self.register_local_buffer(toTensor("register_local_buffer", "tensor", tensor));
          },
          py::arg("tensor"),
          "The address of a RegisteredBuffer of a contiguous tensor, for puts of CUDA kernels.")
      .def("deregister_local_buffer", &TorchCommWindow::deregister_local_buffer, py::arg("handle"),
           "Lets go of the tensor; kernels that use the handle have to have ended.")
      .def(
          "get_nvlink_address",
          [](TorchCommWindow& self, const Integer& peer) {
            return self.get_nvlink_address(rankOf(self, peer));
          },
          py::arg("peer"), "The address at which this rank's GPU reaches that rank's memory.")
      .def("get_multimem_address", &TorchCommWindow::get_multimem_address,
           "Raises CommError: NVLink multicast is not used.")
      // A copy is the same window: there is no other memory behind it.
      .def("__copy__", [](const py::object& self) { return self; })
      .def(
          "__deepcopy__",
          [](const py::object& self, const py::dict& memo) {
            memo[py::int_(reinterpret_cast<uintptr_t>(self.ptr()))] = self;
            return self;
          },
          py::arg("memo"))
      .def(
          "get_attr",
          [](const TorchCommWindow& self, const Integer& rank) {
            return self.get_attr(rankOf(self, rank));
          },
          py::arg("peer_rank"), "How the memory of that rank is reached.")
      .def("get_size", &TorchCommWindow::get_size, "Bytes that this rank exposes.")
      .def("get_device", &TorchCommWindow::get_device, "The torch.device of the memory.")
      .def_property_readonly("device", &TorchCommWindow::get_device, "get_device().")
      .def_property_readonly(
          "dtype",
          [](const TorchCommWindow& self) {
            return py::reinterpret_borrow<py::object>(
                reinterpret_cast<PyObject*>(torch::getTHPDtype(self.dtype())));
          },
          "Of the registered tensor.")
      .def_property_readonly(
          "shape",
          [](const TorchCommWindow& self) {
            return py::module_::import("torch").attr("Size")(self.shape().vec());
          },
          "Of the registered tensor.");
}

}  // namespace torch::comms
