#include "torchcomms/csrc/backends/ctran/window.hpp"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <comms/torchcomms/TorchCommFactory.hpp>
#include <cstring>

#include "ctran/memory/shared_allocation.h"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/held.hpp"
#include "torchcomms/csrc/memory_life.hpp"

namespace torch::comms {

namespace {

/// Copies that take longer than this are made without the interpreter's lock.
constexpr size_t kLongCopy = 32 << 10;

std::byte* dataOf(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

}  // namespace

ctran::Comparison engineComparison(SignalCmpOp op) {
  switch (op) {
    case SignalCmpOp::EQ:
      return ctran::Comparison::Equal;
    case SignalCmpOp::NE:
      return ctran::Comparison::NotEqual;
    case SignalCmpOp::LT:
      return ctran::Comparison::Less;
    case SignalCmpOp::LE:
      return ctran::Comparison::LessEqual;
    case SignalCmpOp::GT:
      return ctran::Comparison::Greater;
    case SignalCmpOp::GE:
      break;
  }
  return ctran::Comparison::GreaterEqual;
}

at::Tensor sharedBytes(int64_t bytes) {
  const auto memory = ctran::SharedAllocation::allocate(static_cast<size_t>(bytes));
  return at::from_blob(
      memory->data(), {bytes}, [memory](void*) {}, at::TensorOptions(at::kCPU).dtype(at::kByte));
}

CtranWindow::CtranWindow(std::shared_ptr<ctran::Communicator> comm,
                         std::shared_ptr<ErrorMonitor> monitor, at::Device device)
    : TorchCommWindow(comm->rank(), comm->size(), device),
      comm_(std::move(comm)),
      monitor_(std::move(monitor)) {}

CtranWindow::~CtranWindow() {
  const HostWait wait;
  window_.reset();
}

void CtranWindow::moveToShared(const at::Tensor& tensor) {
  // Memory that torch allocated, and that nobody else points to: not that of a NumPy array.
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const bool isOrdinary = storage->allocator() == c10::GetCPUAllocator() && storage->resizable() &&
                          isOfCpuAllocator(*storage);
  if (comm_->size() == 1 || !isOrdinary || storage->nbytes() == 0) return;
  at::DataPtr shared = TorchCommFactory::get().get_allocator("ctran")->allocate(storage->nbytes());
  std::memcpy(shared.get(), storage->data(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(shared));
}

void CtranWindow::open(const at::Tensor& memory, int64_t signals) {
  ctran::WindowOptions options;
  options.signalWords = static_cast<size_t>(signals);
  options.tag = static_cast<uint32_t>(exposedType());
  const HostWait wait;
  EngineWaitHooks hooks;
  window_ = ctran::Window::create(*comm_, {dataOf(memory), static_cast<size_t>(memory.numel())},
                                  options, &hooks);
}

void CtranWindow::close() {
  const HostWait wait;
  EngineWaitHooks hooks;
  window_->close(&hooks);
  window_.reset();
}

at::Tensor CtranWindow::newMemory(int64_t bytes) { return sharedBytes(bytes); }

int64_t CtranWindow::bytesOf(int rank) const { return static_cast<int64_t>(window_->bytes(rank)); }

int64_t CtranWindow::signalsOf(int rank) const {
  return static_cast<int64_t>(window_->signalWords(rank));
}

std::optional<at::ScalarType> CtranWindow::typeOf(int rank) const {
  return static_cast<at::ScalarType>(window_->tag(rank));
}

TorchCommWinAccessType CtranWindow::accessOf(int rank) const {
  return window_->access(rank) == ctran::WindowAccess::Unified
             ? TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED
             : TorchCommWinAccessType::WIN_ACCESS_TYPE_SEPARATE;
}

std::shared_ptr<void> CtranWindow::mapped(int rank) const { return window_->mapped(rank); }

template <typename Call>
TorchCommWindow::WorkPtr CtranWindow::visibly(OpName op, bool async_op, Call call) {
  EngineWaitHooks hooks(*monitor_);
  auto work = torch::comms::visibly(*monitor_, [&] {
    auto started = call();
    if (!async_op) ctran::Window::finish(started, &hooks);
    return started;
  });
  if (!async_op || !work) return TorchWorkCompleted::shared();
  return CtranWork::make(op, std::move(work), monitor_);
}

TorchCommWindow::WorkPtr CtranWindow::putBytes(const at::Tensor& source, int dst, int64_t offset,
                                               bool async_op, const OpOptions& options) {
  return visibly(OpName::put, async_op, [&] {
    std::optional<HostWait> wait;
    if (source.nbytes() > kLongCopy) wait.emplace();
    return window_->put(dst, static_cast<size_t>(offset), {dataOf(source), source.nbytes()},
                        options.timeout, held(source));
  });
}

TorchCommWindow::WorkPtr CtranWindow::getBytes(at::Tensor& destination, int src, int64_t offset,
                                               bool async_op, const OpOptions& options) {
  return visibly(OpName::get, async_op, [&] {
    std::optional<HostWait> wait;
    if (destination.nbytes() > kLongCopy) wait.emplace();
    return window_->get(src, static_cast<size_t>(offset),
                        {dataOf(destination), destination.nbytes()}, options.timeout,
                        held(destination));
  });
}

TorchCommWindow::WorkPtr CtranWindow::flushPuts(int dst, bool async_op, const OpOptions& options) {
  return visibly(OpName::flush, async_op, [&] { return window_->flush(dst, options.timeout); });
}

TorchCommWindow::WorkPtr CtranWindow::addSignal(int dst, bool async_op, const OpOptions& options) {
  return visibly(OpName::signal, async_op, [&] { return window_->signal(dst, options.timeout); });
}

TorchCommWindow::WorkPtr CtranWindow::awaitSignal(int src, bool async_op,
                                                  const OpOptions& options) {
  return visibly(OpName::wait_signal, async_op,
                 [&] { return window_->waitSignal(src, options.timeout); });
}

TorchCommWindow::WorkPtr CtranWindow::setSignal(int64_t index, uint64_t value, int dst,
                                                bool async_op, const OpOptions& options) {
  return visibly(OpName::signal, async_op, [&] {
    return window_->setWord(dst, static_cast<size_t>(index), value, options.timeout);
  });
}

TorchCommWindow::WorkPtr CtranWindow::compareSignal(int64_t index, uint64_t value, SignalCmpOp op,
                                                    bool async_op, const OpOptions& options) {
  return visibly(OpName::wait_signal, async_op, [&] {
    return window_->waitWord(static_cast<size_t>(index), engineComparison(op), value,
                             options.timeout);
  });
}

}  // namespace torch::comms
