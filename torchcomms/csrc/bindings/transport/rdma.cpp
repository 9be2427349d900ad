#include <comms/torchcomms/transport/RdmaTransport.h>
#include <pybind11/stl.h>
#include <sys/eventfd.h>

#include <comms/torchcomms/TorchWork.hpp>
#include <mutex>

#include "ctran/os/unique_fd.h"
#include "ctran/rdma/transport.h"
#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/errors.hpp"
#include "torchcomms/csrc/memory_life.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// Transfers that have ended, for a thread of Python's: those who end them never wait for the
/// interpreter's lock.
class Completions {
 public:
  Completions() : waker_(::eventfd(0, EFD_CLOEXEC)) {
    if (!waker_) throw ctran::systemError("eventfd", errno);
  }
  int fd() const { return waker_.get(); }
  void push(uint64_t id, ctran::RdmaOutcome outcome) {
    const std::lock_guard lock(mutex_);
    ended_.emplace_back(id, std::move(outcome));
    ::eventfd_write(waker_.get(), 1);
  }
  std::vector<std::pair<uint64_t, ctran::RdmaOutcome>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ended_, {});
  }

 private:
  ctran::UniqueFd waker_;
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, ctran::RdmaOutcome>> ended_;
};

struct BoundMemory {
  explicit BoundMemory(at::Tensor of) : tensor(std::move(of)) {
    if (!tensor.is_contiguous() || !(tensor.is_cpu() || tensor.is_cuda())) {
      throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                         "RdmaMemory takes a contiguous tensor on the CPU or a CUDA device");
    }
    const int gpu = tensor.is_cuda() ? tensor.get_device() : -1;
    // resize_() and set_() take the memory away from a tensor.
    auto kept = std::make_shared<at::Tensor>(tensor.detach());
    void* const data = const_cast<void*>(kept->const_data_ptr());
    const auto keeps = [held = kept.get(), data, life = lifeOfMemory(tensor)] {
      return held->const_data_ptr() == data && !life.expired();
    };
    const HostWait released;
    extent.emplace(data, tensor.nbytes(), gpu, ctran::RdmaOwner{kept, keeps}, true);
  }

  at::Tensor tensor;
  std::optional<ctran::RdmaExtent> extent;
};

struct View {
  std::shared_ptr<BoundMemory> memory;  // for its tensor
  ctran::RdmaSpan span;
};
struct MutableView : View {};

void checkInside(int64_t offset, int64_t length, size_t bytes, const char* what) {
  const auto all = static_cast<int64_t>(bytes);
  if (offset >= 0 && offset <= all && length >= 0 && length <= all - offset) return;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     std::to_string(length) + " bytes at offset " + std::to_string(offset) +
                         " do not lie in a " + what + " of " + std::to_string(bytes) + " bytes");
}

template <typename T>
T viewOf(const std::shared_ptr<BoundMemory>& memory, int64_t offset,
         std::optional<int64_t> length) {
  const ctran::RdmaExtent& extent = *memory->extent;
  if (!extent.registration()->isKept() || memory->tensor.const_data_ptr() != extent.address()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "the tensor has other memory than when it was registered (resize_ or set_)");
  }
  const auto bytes = static_cast<int64_t>(extent.bytes());
  const int64_t count = length.value_or(offset >= 0 && offset <= bytes ? bytes - offset : 0);
  checkInside(offset, count, extent.bytes(), "tensor");
  T view;
  view.memory = memory;
  view.span = {extent.registration(), static_cast<char*>(extent.address()) + offset,
               static_cast<size_t>(count)};
  return view;
}

bool contains(const BoundMemory& memory, uintptr_t address, size_t bytes) {
  return memory.extent->contains(reinterpret_cast<const void*>(address), bytes);
}

/// `offset` is one, or the address of something inside, which no offset is.
template <typename T>
T viewAt(const std::shared_ptr<BoundMemory>& memory, int64_t offset, int64_t length) {
  const auto begin = reinterpret_cast<intptr_t>(memory->extent->address());
  const bool isAddress = contains(*memory, static_cast<uintptr_t>(offset), 0);
  return viewOf<T>(memory, isAddress ? offset - begin : offset, length);
}

std::string remoteKeyOf(BoundMemory& memory) {
  const HostWait released;
  return memory.extent->key().text();
}

RdmaRemoteBuffer remoteBufferOf(const std::shared_ptr<BoundMemory>& memory) {
  viewOf<View>(memory, 0, std::nullopt);
  return {memory->extent->address(), memory->extent->bytes(), remoteKeyOf(*memory)};
}

class BoundTransport {
 public:
  BoundTransport(std::shared_ptr<Completions> completions, std::shared_ptr<ctran::RdmaLoop> loop,
                 const py::object& timeout, int gpu)
      : completions_(std::move(completions)) {
    const std::chrono::milliseconds limit = toTimeout(timeout);
    const HostWait released;
    transport_ =
        std::make_shared<ctran::RdmaTransport>(ctran::RdmaOptions{std::move(loop), limit, {}, gpu});
  }
  ~BoundTransport() { close(); }

  std::string bind() { return get()->bind(); }
  void connect(const std::string& url) {
    auto transport = get();
    const HostWait released;
    transport->connect(url);
    transport.reset();  // the last one must not wait with the lock
  }
  bool connected() {
    auto transport = transport_;
    const HostWait released;
    const bool connected = transport && transport->connected();
    transport.reset();
    return connected;
  }
  void write(const View& view, const RdmaRemoteBuffer& remote, bool notify, uint64_t id) {
    begin(id, [&](auto& transport) {
      return transport.write(view.span, remoteOf(remote, view.span.bytes), notify);
    });
  }
  void read(const MutableView& view, const RdmaRemoteBuffer& remote, uint64_t id) {
    begin(id, [&](auto& transport) {
      return transport.read(view.span, remoteOf(remote, view.span.bytes));
    });
  }
  void waitForWrite(uint64_t id) {
    begin(id, [](auto& transport) { return transport.waitForWrite(); });
  }
  void close() {
    auto last = std::exchange(transport_, nullptr);
    const HostWait released;
    last.reset();
  }

 private:
  static ctran::RdmaRemote remoteOf(const RdmaRemoteBuffer& buffer, size_t bytes) {
    // C++ has buffers of 0 bytes that reach as far as their key.
    if (buffer.len == 0 && bytes > 0) {
      throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                         std::to_string(bytes) + " bytes do not fit into a buffer of 0 bytes");
    }
    return {reinterpret_cast<uint64_t>(buffer.ptr), buffer.len, buffer.accessKey};
  }
  std::shared_ptr<ctran::RdmaTransport> get() const {
    if (transport_) return transport_;
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "this RDMA transport has been closed");
  }
  template <typename Call>
  void begin(uint64_t id, const Call& call) {
    auto transport = get();
    const HostWait released;
    call(*transport).onReady([id, completions = completions_](const ctran::RdmaOutcome& outcome) {
      completions->push(id, outcome);
    });
    transport.reset();
  }

  const std::shared_ptr<Completions> completions_;
  std::shared_ptr<ctran::RdmaTransport> transport_;  // guarded by the interpreter's lock
};

py::list takeAsPython(Completions& completions) {
  py::list ended;
  for (auto& [id, outcome] : completions.take()) {
    py::object error = py::none();
    if (outcome) error = toPythonException(std::make_exception_ptr(ctran::Error(*outcome)));
    ended.append(py::make_tuple(id, error));
  }
  return ended;
}

std::string textOf(const RdmaRemoteBuffer& buffer) {
  return "RdmaRemoteBuffer(ptr=" + std::to_string(reinterpret_cast<uintptr_t>(buffer.ptr)) +
         ", len=" + std::to_string(buffer.len) + ", access_key='" + buffer.accessKey + "')";
}

RdmaRemoteBuffer bufferOf(uintptr_t address, size_t bytes, const std::string& key) {
  static_cast<void>(ctran::RdmaKey::parse(key));
  return {reinterpret_cast<void*>(address), bytes, key};
}

void bindMemoryAndViews(py::module_& module) {
  py::class_<View>(module, "RdmaMemoryView", "A part of registered memory that can be sent.")
      .def_property_readonly(
          "ptr", [](const View& self) { return reinterpret_cast<uintptr_t>(self.span.data); },
          "Its address.")
      .def_property_readonly(
          "size", [](const View& self) { return self.span.bytes; }, "Its bytes.")
      .def("__len__", [](const View& self) { return self.span.bytes; });
  py::class_<MutableView, View>(module, "RdmaMutableMemoryView",
                                "A part of registered memory that can be received into.");

  py::class_<RdmaRemoteBuffer>(
      module, "RdmaRemoteBuffer",
      "Memory of the peer's: where it is, how much, and the key to it. It can be pickled.")
      .def(py::init(&bufferOf), py::arg("ptr"), py::arg("len"), py::arg("access_key"))
      .def_property_readonly(
          "ptr", [](const RdmaRemoteBuffer& self) { return reinterpret_cast<uintptr_t>(self.ptr); },
          "Its address in the peer.")
      .def_property_readonly(
          "len", [](const RdmaRemoteBuffer& self) { return self.len; }, "Its bytes.")
      .def_property_readonly(
          "access_key", [](const RdmaRemoteBuffer& self) { return self.accessKey; },
          "What lets a connected peer reach it.")
      .def(
          "slice",
          [](const RdmaRemoteBuffer& self, int64_t offset, int64_t length) {
            checkInside(offset, length, self.len, "buffer");
            return RdmaRemoteBuffer{static_cast<char*>(self.ptr) + offset,
                                    static_cast<size_t>(length), self.accessKey};
          },
          py::arg("offset"), py::arg("length"), "A part of it.")
      .def("__repr__", &textOf)
      // Not py::pickle, which ends the process with the protocols 0 and 1.
      .def("__reduce__", [](const py::object& self) {
        const auto& buffer = self.cast<const RdmaRemoteBuffer&>();
        return py::make_tuple(
            py::type::of<RdmaRemoteBuffer>(),
            py::make_tuple(reinterpret_cast<uintptr_t>(buffer.ptr), buffer.len, buffer.accessKey));
      });

  py::class_<BoundMemory, std::shared_ptr<BoundMemory>>(
      module, "RdmaMemory",
      "The memory of a contiguous tensor, registered for RDMA as long as this, a view of it or a "
      "transfer lives; they keep the tensor's memory.")
      .def(py::init([](const py::object& tensor) {
             return std::make_shared<BoundMemory>(toTensor("RdmaMemory", "tensor", tensor));
           }),
           py::arg("tensor"))
      .def("to_view", &viewOf<View>, py::arg("offset") = 0, py::arg("length") = py::none(),
           "The tensor, or `length` bytes from `offset`, to be sent.")
      .def("to_mutable_view", &viewOf<MutableView>, py::arg("offset") = 0,
           py::arg("length") = py::none(),
           "The tensor, or `length` bytes from `offset`, to be received into.")
      .def("to_remote_buffer", &remoteBufferOf, "What the peer needs to reach it.")
      .def("create_view", &viewAt<View>, py::arg("offset"), py::arg("length"),
           "`length` bytes from an offset, or from an address inside, to be sent.")
      .def("create_mutable_view", &viewAt<MutableView>, py::arg("offset"), py::arg("length"),
           "`length` bytes from an offset, or from an address inside, to be received into.")
      .def("contains", &contains, py::arg("ptr"), py::arg("length"),
           "Whether `length` bytes at an address lie inside.")
      .def_property_readonly(
          "local_key",
          [](const BoundMemory& self) {
            return reinterpret_cast<uintptr_t>(self.extent->registration().get());
          },
          "Tells one registration of this process from another.")
      .def_property_readonly("remote_key", &remoteKeyOf, "What lets a connected peer reach it.")
      .def("createView", &viewAt<View>, py::arg("offset"), py::arg("length"), "create_view().")
      .def("createMutableView", &viewAt<MutableView>, py::arg("offset"), py::arg("length"),
           "create_mutable_view().")
      .def(
          "localKey",
          [](const BoundMemory& self) {
            return reinterpret_cast<uintptr_t>(self.extent->registration().get());
          },
          "local_key.")
      .def("remoteKey", &remoteKeyOf, "remote_key.")
      .def_property_readonly(
          "reused_registration", [](const BoundMemory& self) { return self.extent->isReused(); },
          "Whether a registration that there was covers it.");
}

}  // namespace

void bindTransport(py::module_& module) {
  bindMemoryAndViews(module);

  py::class_<Completions, std::shared_ptr<Completions>>(module, "_RdmaCompletions",
                                                        "Transfers that have ended.")
      .def(py::init<>())
      .def("fd", &Completions::fd, "An eventfd, which is written for each.")
      .def("take", &takeAsPython, "(number, None or the exception) of each since the last call.");

  py::class_<ctran::RdmaLoop, std::shared_ptr<ctran::RdmaLoop>>(
      module, "RdmaEventLoop", "A thread that drives the transports which are given it.")
      .def(py::init<>());

  py::class_<BoundTransport>(module, "_RdmaTransport",
                             "torchcomms.transport.RdmaTransport, with numbers for futures.")
      .def(py::init<std::shared_ptr<Completions>, std::shared_ptr<ctran::RdmaLoop>,
                    const py::object&, int>(),
           py::arg("completions"), py::arg("event_loop"), py::arg("timeout"), py::arg("gpu"))
      .def("bind", &BoundTransport::bind)
      .def("connect", &BoundTransport::connect, py::arg("url"))
      .def("connected", &BoundTransport::connected)
      .def("write", &BoundTransport::write, py::arg("view"), py::arg("remote"), py::arg("notify"),
           py::arg("id"))
      .def("read", &BoundTransport::read, py::arg("view"), py::arg("remote"), py::arg("id"))
      .def("wait_for_write", &BoundTransport::waitForWrite, py::arg("id"))
      .def("close", &BoundTransport::close);

  module.def(
      "_rdma_why_unsupported",
      []() -> std::optional<std::string> {
        std::string why;
        const HostWait released;
        if (ctran::RdmaTransport::supported(&why)) return std::nullopt;
        return why;
      },
      "None where there is a device that can be used, else the reason.");
}

}  // namespace torch::comms
