#include "ctran/engine/named.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "ctran/base/error.h"

namespace ctran {
namespace {

struct Named {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Communicator>> communicators;
  std::map<uint64_t, std::weak_ptr<Explainer>> explainers;
};

Named& named() {
  static Named* const named = new Named;  // communicators may outlive static destructors
  return *named;
}

}  // namespace

void announce(const std::shared_ptr<Communicator>& communicator) {
  std::lock_guard lock(named().mutex);
  std::erase_if(named().communicators, [](const auto& entry) { return entry.second.expired(); });
  named().communicators[communicator->token()] = communicator;
}

std::shared_ptr<Communicator> findCommunicator(uint64_t token) {
  std::lock_guard lock(named().mutex);
  const auto entry = named().communicators.find(token);
  return entry == named().communicators.end() ? nullptr : entry->second.lock();
}

std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank) {
  std::vector<std::shared_ptr<Communicator>> all;  // let go of after the lock
  std::lock_guard lock(named().mutex);
  for (auto entry = named().communicators.rbegin(); entry != named().communicators.rend();
       ++entry) {
    all.push_back(entry->second.lock());
    if (all.back() && all.back()->name() == name && all.back()->rank() == rank) return all.back();
  }
  return nullptr;
}

uint64_t newToken() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

void Explainer::prepareCall(CollectiveKind, size_t, DataType, ReduceKind,
                            std::shared_ptr<const CallHints>) {
  throw Error(ErrorKind::InvalidArgument, "the communicator has no kernels of its own");
}

void Explainer::force(const std::string&) {
  throw Error(ErrorKind::Unsupported, "nothing is measured of this communicator");
}

TuningTable Explainer::use(TuningTable table) {
  force({});
  return table;
}

void announceExplainer(uint64_t token, std::weak_ptr<Explainer> explainer) {
  std::lock_guard lock(named().mutex);
  std::erase_if(named().explainers, [](const auto& entry) { return entry.second.expired(); });
  named().explainers[token] = std::move(explainer);
}

std::shared_ptr<Explainer> findExplainer(uint64_t token) {
  std::lock_guard lock(named().mutex);
  const auto entry = named().explainers.find(token);
  return entry == named().explainers.end() ? nullptr : entry->second.lock();
}

}  // namespace ctran
