#include "ctran/window.h"

#include <fcntl.h>

#include <cerrno>

#include "ctran/engine/communicator.h"
#include "ctran/memory/shared_allocation.h"
#include "ctran/window/window.h"

namespace ctran::api {

std::shared_ptr<std::byte> allocateShared(size_t bytes) {
  const auto allocation = SharedAllocation::allocate(bytes);
  return {allocation, allocation->data()};
}

SharedFile sharedFileOf(const void* data, size_t bytes) {
  const auto allocation = SharedAllocation::find(data, bytes);
  if (!allocation) return {};
  return {allocation->fd().get(), allocation->size(),
          static_cast<size_t>(static_cast<const std::byte*>(data) - allocation->data())};
}

std::shared_ptr<std::byte> mapShared(int descriptor, size_t bytes) {
  const UniqueFd own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own) throw systemError("duplicating a descriptor", errno);
  const auto mapping = SharedMapping::map(own, bytes);
  return {mapping, mapping->data()};
}

std::unique_ptr<Window> Window::create(Communicator& parent, std::span<std::byte> memory,
                                       const WindowOptions& options, WaitHooks* hooks) {
  return std::make_unique<Window>(ctran::Window::create(
      *parent.engine(), memory, {options.signalWords, 0, options.name, options.timeout}, hooks));
}

Window::Window(std::unique_ptr<ctran::Window> engine) : engine_(std::move(engine)) {}
Window::~Window() = default;

int Window::rank() const { return engine_->rank(); }
int Window::size() const { return engine_->size(); }
size_t Window::bytes(int rank) const { return engine_->bytes(rank); }
std::shared_ptr<std::byte> Window::mapped(int rank) const { return engine_->mapped(rank); }

Window::WorkPtr Window::put(int target, size_t offset, std::span<const std::byte> source,
                            Timeout timeout) {
  return engine_->put(target, offset, source, timeout);
}
Window::WorkPtr Window::get(int target, size_t offset, std::span<std::byte> destination,
                            Timeout timeout) {
  return engine_->get(target, offset, destination, timeout);
}
Window::WorkPtr Window::flush(int target, Timeout timeout) {
  return engine_->flush(target, timeout);
}
Window::WorkPtr Window::signal(int target, Timeout timeout) {
  return engine_->signal(target, timeout);
}
Window::WorkPtr Window::waitSignal(int origin, Timeout timeout) {
  return engine_->waitSignal(origin, timeout);
}
Window::WorkPtr Window::setWord(int target, size_t word, uint64_t value, Timeout timeout) {
  return engine_->setWord(target, word, value, timeout);
}
Window::WorkPtr Window::waitWord(size_t word, Comparison comparison, uint64_t value,
                                 Timeout timeout) {
  return engine_->waitWord(word, static_cast<ctran::Comparison>(comparison), value, timeout);
}
void Window::finish(const WorkPtr& work, WaitHooks* hooks) { ctran::Window::finish(work, hooks); }
void Window::close(WaitHooks* hooks) { engine_->close(hooks); }
void Window::abort(const std::string& reason) { engine_->abort(reason); }

}  // namespace ctran::api
