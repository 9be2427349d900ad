// A device of torch's own kind (PrivateUse1) in host memory, for backends that take tensors of any
// device: streams with a thread each, events, copies that wait for their turn on the current
// stream. Everything else torch does on the CPU, with a copy there and back.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr auto kType = c10::DeviceType::PrivateUse1;
const Device kDevice(kType, 0);

class Queue {
 public:
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty(); });
  }

  bool isIdle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const auto task = tasks_.front();
      lock.unlock();
      task();
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_{[this] { serve(); }};
};

/// Stream 0 is the default one, the others are the pool. Never destroyed.
constexpr size_t kStreams = 5;
Queue& queueOf(c10::StreamId id) {
  static auto& queues = *new std::array<Queue, kStreams>;
  return queues.at(static_cast<size_t>(id));
}

thread_local c10::StreamId currentId = 0;

/// One record of an event; whoever waits for it keeps it.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;

  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    changed.notify_all();
  }
  bool isReached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
};
using Event = std::shared_ptr<Record>;

Event& eventOf(void* event) { return *static_cast<Event*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device) const override { return kDevice; }
  Device getDevice() const override { return kDevice; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }

  static Stream streamOf(c10::StreamId id) { return Stream(Stream::UNSAFE, kDevice, id); }
  Stream getStream(Device) const override { return streamOf(currentId); }
  Stream getDefaultStream(Device) const override { return streamOf(0); }
  Stream getStreamFromGlobalPool(Device, bool) const override {
    static std::atomic<size_t> taken{0};
    return streamOf(static_cast<c10::StreamId>(1 + taken++ % (kStreams - 1)));
  }
  Stream exchangeStream(Stream stream) const override {
    return streamOf(std::exchange(currentId, stream.id()));
  }
  bool queryStream(const Stream& stream) const override { return queueOf(stream.id()).isIdle(); }
  void synchronizeStream(const Stream& stream) const override { queueOf(stream.id()).drain(); }

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    eventOf(*event) = std::make_shared<Record>();
    queueOf(stream.id()).push([now = eventOf(*event)] { now->reach(); });
  }
  void block(void* event, const Stream& stream) const override {
    queueOf(stream.id()).push([now = eventOf(event)] { now->wait(); });
  }
  bool queryEvent(void* event) const override { return eventOf(event)->isReached(); }
  void synchronizeEvent(void* event) const override { eventOf(event)->wait(); }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

/// Memory that has been freed stays for as long as streams may use it: for ever.
struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    return {std::calloc(std::max<size_t>(bytes, 1), 1), kDevice};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

Memory memory;
const bool kRegistered = (c10::SetAllocator(kType, &memory), true);
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, kKeys, c10::dtype_or_default(type), format);
}

at::Tensor emptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, kKeys,
                                           c10::dtype_or_default(type));
}

/// The same memory as a tensor of the CPU.
at::Tensor inHost(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {},
      tensor.options().device(at::kCPU));
}

/// Between host and device, and on the device. Of the host's memory, what is read has been read on
/// return, and what is written is there, unless that need not be.
at::Tensor copyFrom(const at::Tensor& from, const at::Tensor& to, bool nonBlocking) {
  Queue& queue = queueOf(currentId);
  if (from.is_cpu()) {
    queue.push([source = from.clone(), to] { inHost(to).copy_(source); });
    if (!nonBlocking) queue.drain();
  } else if (to.is_cpu()) {
    queue.drain();
    to.copy_(inHost(from));
  } else {
    queue.push([from, to] { inHost(to).copy_(inHost(from)); });
  }
  return to;
}

at::Tensor copyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  TORCH_CHECK(from.sizes() == to.sizes(), "the stand-in does not resize");
  return copyFrom(from, to, false);
}

void onHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &emptyStrided);
  m.impl("_copy_from", &copyFrom);
  m.impl("_copy_from_and_resize", &copyFromAndResize);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("view_as_real", &at::native::view_as_real);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&onHost>());
}

/// Keeps stream 0 busy until release.
namespace {
Event& gate() {
  static Event& one = *new Event;
  return one;
}
}  // namespace

extern "C" __attribute__((visibility("default"))) void standInDeviceHold() {
  gate() = std::make_shared<Record>();
  queueOf(0).push([now = gate()] { now->wait(); });
}

extern "C" __attribute__((visibility("default"))) void standInDeviceRelease() { gate()->reach(); }

/// For libraries that put work of their own on a stream.
extern "C" __attribute__((visibility("default"))) void standInDevicePush(
    c10::StreamId stream, const std::function<void()>* task) {
  queueOf(stream).push(*task);
}
