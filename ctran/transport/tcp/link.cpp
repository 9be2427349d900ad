#include "ctran/transport/tcp/link.h"
#include "ctran/os/traffic.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace ctran {
namespace {

constexpr size_t kStagingBytes = 64 << 10;
constexpr size_t kReadAtOnce = 4 << 20;
constexpr size_t kPicked = 16;  // frames in one system call

}  // namespace

bool Link::write(Frames& bulk, size_t enough, const std::function<void(void*, size_t)>& written) {
  if (isBroken_) return false;
  size_t waiting = 0;
  for (const Outgoing& frame : picked_) waiting += frame.header.bytes;
  while (picked_.size() < kPicked && waiting < enough) {
    Frames& from = urgent_.empty() ? bulk : urgent_;
    if (from.empty()) break;
    waiting += from.front().header.bytes;
    picked_.push_back(std::move(from.front()));
    from.pop_front();
  }
  if (picked_.empty()) return false;

  iovec parts[2 * kPicked];
  size_t count = 0, total = 0, skip = sent_;
  const auto add = [&](const void* data, size_t bytes) {
    if (skip >= bytes) {
      skip -= bytes;
      return;
    }
    parts[count++] = {static_cast<char*>(const_cast<void*>(data)) + skip, bytes - skip};
    total += bytes - skip;
    skip = 0;
  };
  for (const Outgoing& frame : picked_) {
    add(&frame.header, sizeof frame.header);
    add(frame.owned.empty() ? frame.data : frame.owned.data(), frame.header.bytes);
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  countSent(n);
  if (n < 0) {
    isBroken_ = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    return false;
  }
  sent_ += static_cast<size_t>(n);
  while (!picked_.empty() && sent_ >= sizeof(FrameHeader) + picked_.front().header.bytes) {
    const Outgoing frame = std::move(picked_.front());
    picked_.pop_front();
    sent_ -= sizeof(FrameHeader) + frame.header.bytes;
    if (frame.owner != nullptr) written(frame.owner, frame.header.bytes);
  }
  return static_cast<size_t>(n) == total;
}

void Link::forget(void* owner) {
  const auto owned = [owner](const Outgoing& frame) { return frame.owner == owner; };
  std::erase_if(urgent_, owned);
  for (Outgoing& frame : picked_) {
    if (frame.owner != owner) continue;
    frame.owned.assign(frame.data, frame.data + frame.header.bytes);
    frame.owner = nullptr;
  }
}

std::string Link::read(Reader& reader) {
  alignas(64) static thread_local std::byte staging[kStagingBytes];
  for (size_t total = 0; total < kReadAtOnce;) {
    iovec parts[2];
    int count = 0;
    const size_t direct = into_ != nullptr ? remaining_ : 0;
    // Behind a large payload there is room for a header only: the next payload goes into place too.
    const size_t behind = direct > kStagingBytes ? sizeof frame_ : kStagingBytes;
    if (direct > 0) parts[count++] = {into_, direct};
    parts[count++] = {staging, behind};
    const ssize_t n = ::readv(socket_.get(), parts, count);
    if (n == 0) return "it closed the connection";
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
      return std::generic_category().message(errno);
    }
    const auto bytes = static_cast<size_t>(n);
    hasHeard_ = true;
    try {
      const size_t placed = std::min(bytes, direct);
      if (placed > 0) {
        into_ += placed;
        remaining_ -= placed;
        if (remaining_ == 0) {
          into_ = nullptr;
          reader.end(frame_);
        }
      }
      parse(reader, std::span<const std::byte>(staging, bytes - placed));
    } catch (const std::string& why) {
      return why;
    }
    if (bytes < direct + behind) return {};  // that was all
    total += bytes;
  }
  return {};
}

void Link::parse(Reader& reader, std::span<const std::byte> data) {
  while (!data.empty()) {
    if (remaining_ > 0) {
      const size_t n = std::min(remaining_, data.size());
      if (into_ != nullptr) {
        std::memcpy(into_, data.data(), n);
        into_ += n;
      }
      remaining_ -= n;
      data = data.subspan(n);
      if (remaining_ == 0) {
        into_ = nullptr;
        reader.end(frame_);
      }
      continue;
    }
    const size_t n = std::min(sizeof frame_ - headBytes_, data.size());
    std::memcpy(reinterpret_cast<std::byte*>(&frame_) + headBytes_, data.data(), n);
    headBytes_ += n;
    data = data.subspan(n);
    if (headBytes_ < sizeof frame_) continue;
    headBytes_ = 0;
    if (const char* why = whyInvalid(frame_)) throw std::string("it sent ") + why;
    into_ = reader.begin(frame_);
    remaining_ = frame_.bytes;
    if (remaining_ == 0) reader.end(frame_);
  }
}

}  // namespace ctran
