#include "ctran/engine/live_settings.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
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
std::string takeSetting(Communicator& communicator, const Recording::Asked& asked) {
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

/// How often a rank looks for what is asked of it.
constexpr itimerspec kEvery{{0, 500'000'000}, {0, 500'000'000}};

/// A timer, rather than inotify on the memory: a process that is killed would end only when the
/// system has flushed all that it has to tell of files, which can take a minute on a busy machine,
/// and the other ranks would not hear of its end before.
class Watch {
 public:
  void add(const std::shared_ptr<Communicator>& communicator) {
    const std::lock_guard lock(mutex_);
    if (!timer_) open();
    if (!timer_) return;
    if (members_.empty()) ::timerfd_settime(timer_.get(), 0, &kEvery, nullptr);
    members_[communicator.get()] = communicator;
  }

  void remove(Communicator* communicator) {
    const std::lock_guard lock(mutex_);
    if (members_.erase(communicator) == 0 || !members_.empty()) return;
    constexpr itimerspec kNever{};
    ::timerfd_settime(timer_.get(), 0, &kNever, nullptr);
  }

 private:
  void open() {
    UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer) return;
    id_ = PeerWatcher::watchReadable(timer.get(), [this] { look(); });
    timer_ = std::move(timer);
    PeerWatcher::arm(id_);
  }

  /// On the watcher's thread.
  void look() {
    std::vector<std::shared_ptr<Communicator>> members;
    {
      const std::lock_guard lock(mutex_);
      uint64_t expirations;
      while (::read(timer_.get(), &expirations, sizeof expirations) > 0) {
      }
      for (const auto& [key, member] : members_) {
        if (auto alive = member.lock()) members.push_back(std::move(alive));
      }
    }
    for (const auto& member : members) {
      Recording* recording = member->core().recording;
      if (recording == nullptr) continue;
      if (const auto asked = recording->asked()) {
        recording->answer(asked->number, takeSetting(*member, *asked));
      }
    }
    PeerWatcher::arm(id_);
  }

  std::mutex mutex_;
  UniqueFd timer_;
  uint64_t id_ = 0;
  std::map<Communicator*, std::weak_ptr<Communicator>> members_;
};

// Never destroyed: the watcher's thread runs until the process ends.
std::mutex gWatchMutex;
Watch* gWatch = nullptr;

Watch& watch() {
  const std::lock_guard lock(gWatchMutex);
  if (gWatch == nullptr) gWatch = new Watch;
  return *gWatch;
}

}  // namespace

void LiveSettings::start(const std::shared_ptr<Communicator>& communicator) {
  Recording* recording = communicator->core().recording;
  if (recording == nullptr) return;
  if (communicator->size() < 2) return recording->refuseSettings();  // it starts no thread
  watch().add(communicator);
}

void LiveSettings::stop(Communicator& communicator) {
  const std::lock_guard lock(gWatchMutex);
  if (gWatch != nullptr) gWatch->remove(&communicator);
}

void LiveSettings::forget() {
  new (&gWatchMutex) std::mutex;  // another thread may have held it
  gWatch = nullptr;
}

}  // namespace ctran
