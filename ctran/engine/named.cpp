#include "ctran/engine/named.h"

#include <map>
#include <mutex>
#include <utility>

#include "ctran/base/error.h"

namespace ctran {
namespace {

struct Named {
  std::mutex mutex;
  std::map<std::pair<std::string, int>, std::weak_ptr<Communicator>> byName;
  std::map<std::pair<std::string, int>, std::weak_ptr<Explainer>> explainers;
};

Named& named() {
  static Named* const named = new Named;  // communicators may outlive static destructors
  return *named;
}

}  // namespace

void announce(const std::shared_ptr<Communicator>& communicator) {
  std::lock_guard lock(named().mutex);
  std::erase_if(named().byName, [](const auto& entry) { return entry.second.expired(); });
  named().byName[{communicator->name(), communicator->rank()}] = communicator;
}

std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank) {
  std::shared_ptr<Communicator> found;  // let go of after the lock
  std::lock_guard lock(named().mutex);
  const auto entry = named().byName.find({name, rank});
  if (entry != named().byName.end()) found = entry->second.lock();
  return found;
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

void announceExplainer(const std::string& name, int rank, std::weak_ptr<Explainer> explainer) {
  std::lock_guard lock(named().mutex);
  std::erase_if(named().explainers, [](const auto& entry) { return entry.second.expired(); });
  named().explainers[{name, rank}] = std::move(explainer);
}

std::shared_ptr<Explainer> findExplainer(const std::string& name, int rank) {
  std::shared_ptr<Explainer> found;  // let go of after the lock
  std::lock_guard lock(named().mutex);
  const auto entry = named().explainers.find({name, rank});
  if (entry != named().explainers.end()) found = entry->second.lock();
  return found;
}

}  // namespace ctran
