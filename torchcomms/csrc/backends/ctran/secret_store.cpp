#include "torchcomms/csrc/backends/ctran/secret_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <comms/torchcomms/TorchWork.hpp>
#include <cstdio>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ctran/base/error.h"
#include "ctran/os/private_file.h"
#include "ctran/os/process.h"

namespace torch::comms {

namespace {

constexpr std::chrono::milliseconds kPause{10};
constexpr size_t kNameBytes = 16;

std::string freshName() {
  std::array<std::byte, kNameBytes> random{};
  ctran::fillRandom(random.data(), random.size());
  std::string name;
  for (const std::byte byte : random) {
    std::array<char, 3> text{};
    std::snprintf(text.data(), text.size(), "%02x", std::to_integer<unsigned>(byte));
    name += text.data();
  }
  return name;
}

/// Returns where a store keeps its keys if it is a FileStore, under whatever prefixes.
std::string pathOf(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefixed->getUnderlyingNonPrefixStore();
  }
  const auto* file = dynamic_cast<const c10d::FileStore*>(store.get());
  return file == nullptr ? "" : file->getPath();
}

}  // namespace

SecretStore::SecretStore(const c10::intrusive_ptr<c10d::Store>& store)
    : keys_(store), path_(pathOf(store)) {}

std::string SecretStore::fileOf(const std::string& name) const {
  if (name.size() != 2 * kNameBytes ||
      name.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw ctran::Error(ctran::ErrorKind::System,
                       "The store " + path_ + " holds something else than was put there", {}, {},
                       "use a fresh file per run, and one version of torchcomms");
  }
  return path_ + "." + name;
}

void SecretStore::set(const std::string& key, const std::string& value) {
  if (path_.empty()) return keys_.set(key, value);
  removeFile(key);  // of a run that was killed
  const std::string name = freshName();
  ctran::writePrivateFile(fileOf(name), value);
  keys_.set(key, name);
}

std::string SecretStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  if (path_.empty()) return keys_.get(key, timeout);
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const std::string name = keys_.get(key, std::max(left, std::chrono::milliseconds(0)));
    if (auto value = ctran::readPrivateFile(fileOf(name))) return *value;
    // It is removed right now, or was by hand.
    if (left.count() <= 0) {
      throw ctran::Error(
          ctran::ErrorKind::Timeout,
          "The file " + fileOf(name) + " that the store names for '" + key + "' is not there");
    }
    const HostWait wait;
    HostWait::checkInterrupts();
    std::this_thread::sleep_for(kPause);
  }
}

void SecretStore::remove(const std::string& key) {
  if (!path_.empty()) removeFile(key);
  keys_.remove(key);
}

void SecretStore::removeFile(const std::string& key) {
  try {
    const std::string name = keys_.get(key, std::chrono::milliseconds(0));
    ::unlink(fileOf(name).c_str());
  } catch (const ctran::Error& error) {
    if (error.kind() != ctran::ErrorKind::Timeout) throw;  // there is none
  }
}

}  // namespace torch::comms
