#include "ctran/engine/live_settings.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "ctran/base/config_sources.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/peer_watcher.h"
#include "ctran/os/unique_fd.h"

namespace ctran {
namespace {

/// Takes one setting; why it was not taken, empty if it was.
std::string take(Communicator& communicator, const Recording::Asked& asked) {
  const bool isNew = configText(asked.name.c_str()).first != asked.value;
  try {
    setLive(asked.name, asked.value);
    if (asked.name == kTimeoutSeconds.name()) communicator.setTimeout(kTimeoutSeconds.get());
  } catch (const Error& error) {
    return error.what();
  }
  if (isNew) {  // else another communicator of this process has told it
    log(LogComponent::Config, LogLevel::Warn, "%s=%s from now on, says `torchcomms env set`",
        asked.name.c_str(), asked.value.c_str());
  }
  return {};
}

class Watch {
 public:
  void add(const std::shared_ptr<Communicator>& communicator) {
    const std::lock_guard lock(mutex_);
    if (!inotify_) open();
    if (!inotify_) return;
    // Threads that are ranks of one communicator share the memory, and then the watch.
    const std::string path = "/proc/self/fd/" + std::to_string(communicator->recordedAt());
    const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY);
    if (watch >= 0) members_[communicator.get()] = {communicator, watch};
  }

  void remove(Communicator* communicator) {
    const std::lock_guard lock(mutex_);
    const auto found = members_.find(communicator);
    if (found == members_.end()) return;
    const int watch = found->second.watch;
    members_.erase(found);
    for (const auto& [other, member] : members_) {
      if (member.watch == watch) return;
    }
    ::inotify_rm_watch(inotify_.get(), watch);
  }

 private:
  struct Member {
    std::weak_ptr<Communicator> communicator;
    int watch;
  };

  void open() {
    inotify_ = UniqueFd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!inotify_) return;
    id_ = PeerWatcher::watchReadable(inotify_.get(), [this] { look(); });
    PeerWatcher::arm(id_);
  }

  /// On the watcher's thread.
  void look() {
    std::vector<std::shared_ptr<Communicator>> members;
    {
      const std::lock_guard lock(mutex_);
      alignas(inotify_event) std::array<char, 4096> events;
      while (::read(inotify_.get(), events.data(), events.size()) > 0) {
      }
      for (const auto& [key, member] : members_) {
        if (auto alive = member.communicator.lock()) members.push_back(std::move(alive));
      }
    }
    for (const auto& member : members) {
      Recording* recording = member->core().recording;
      if (recording == nullptr) continue;
      if (const auto asked = recording->asked()) {
        recording->answer(asked->number, take(*member, *asked));
      }
    }
    PeerWatcher::arm(id_);
  }

  std::mutex mutex_;
  UniqueFd inotify_;
  uint64_t id_ = 0;
  std::map<Communicator*, Member> members_;
};

// Never destroyed: the watcher's thread runs until the process ends.
std::mutex gMutex;
Watch* gWatch = nullptr;

Watch& watch() {
  const std::lock_guard lock(gMutex);
  if (gWatch == nullptr) gWatch = new Watch;
  return *gWatch;
}

}  // namespace

void LiveSettings::start(const std::shared_ptr<Communicator>& communicator) {
  // One rank alone starts no thread.
  if (communicator->core().recording == nullptr || communicator->size() < 2) return;
  watch().add(communicator);
}

void LiveSettings::stop(Communicator& communicator) {
  const std::lock_guard lock(gMutex);
  if (gWatch != nullptr) gWatch->remove(&communicator);
}

void LiveSettings::forget() {
  new (&gMutex) std::mutex;  // another thread may have held it
  gWatch = nullptr;
}

}  // namespace ctran
