#include <array>
#include <charconv>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <comms/torchcomms/TorchCommPlugin.hpp>
#include <stdexcept>

#include "ctran/base/config_sources.h"
#include "ctran/base/error.h"

namespace torch::comms {

namespace {

struct Place {
  int rank;
  int size;
};

std::optional<int> numberFromEnvironment(const char* variable) {
  const std::string text = ctran::configText(variable).first;
  if (text.empty()) return std::nullopt;
  const char* end = text.data() + text.size();
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       std::string(variable) + " must be a number, but is '" + text + "'");
  }
  return value;
}

/// What brings a backend that is not here.
std::string remedyFor(const std::string& backend) {
  static constexpr std::array<std::array<const char*, 2>, 6> kSwitches{{{"gloo", "USE_GLOO"},
                                                                        {"nccl", "USE_NCCL"},
                                                                        {"ncclx", "USE_NCCLX"},
                                                                        {"rccl", "USE_RCCL"},
                                                                        {"rcclx", "USE_RCCLX"},
                                                                        {"xccl", "USE_XCCL"}}};
  for (const auto& [name, variable] : kSwitches) {
    if (backend == name) return "install torchcomms again with " + std::string(variable) + "=1";
  }
  return "a plug-in is found by " + pluginVariable(backend);
}

Place placeFromEnvironment() {
  static constexpr std::array<std::array<const char*, 2>, 2> kVariables{
      {{"TORCHCOMM_RANK", "TORCHCOMM_SIZE"}, {"RANK", "WORLD_SIZE"}}};
  for (const auto& [rankVariable, sizeVariable] : kVariables) {
    const std::optional<int> rank = numberFromEnvironment(rankVariable);
    const std::optional<int> size = numberFromEnvironment(sizeVariable);
    if (rank && size) return {*rank, *size};
  }
  return {0, 1};
}

CommOptions withPlace(CommOptions options) {
  if (!options.rank && !options.size) {
    const Place place = placeFromEnvironment();
    options.rank = place.rank;
    options.size = place.size;
  }
  if (!options.rank || !options.size) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "CommOptions.rank and CommOptions.size must be given together");
  }
  if (*options.size < 1 || *options.rank < 0 || *options.rank >= *options.size) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "rank must be in range [0, " + std::to_string(*options.size) +
                           "), but got " + std::to_string(*options.rank));
  }
  return options;
}

}  // namespace

TorchCommFactory& TorchCommFactory::get() {
  static TorchCommFactory factory;
  return factory;
}

void TorchCommFactory::register_backend(const std::string& backend, BackendFactory factory,
                                        BackendTraits traits) {
  const std::lock_guard lock(mutex_);
  if (!backends_.try_emplace(backend, Entry{std::move(factory), traits}).second) {
    throw std::invalid_argument("A backend named '" + backend + "' is registered already");
  }
}

bool TorchCommFactory::is_backend_registered(const std::string& backend) const {
  const std::lock_guard lock(mutex_);
  return backends_.count(backend) != 0;
}

BackendTraits TorchCommFactory::traits(const std::string& backend) const {
  return find(backend).traits;
}

std::vector<std::string> TorchCommFactory::registered_backends() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : backends_) names.push_back(name);
  return names;
}

TorchCommFactory::Entry TorchCommFactory::find(const std::string& backend) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = backends_.find(backend);
    if (found != backends_.end()) return found->second;
  }
  if (loadPlugin(backend)) return find(backend);
  std::string known;
  for (const std::string& name : registered_backends()) known += (known.empty() ? "" : ", ") + name;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "Unknown backend '" + backend + "'; this build has: " + known, {}, {},
                     remedyFor(backend));
}

std::shared_ptr<TorchCommBackend> TorchCommFactory::create_backend(
    const std::string& backend, at::Device device, const std::string& name,
    const CommOptions& options) const {
  const Entry entry = find(backend);
  if (options.enable_reconfigure && !entry.traits.canReconfigure) {
    throw ctran::Error(
        ctran::ErrorKind::Unsupported,
        "[TorchComm]: enable_reconfigure=true is not supported by backend: " + backend);
  }
  std::shared_ptr<TorchCommBackend> made = entry.factory();
  made->init(device, name, withPlace(options));
  return made;
}

void TorchCommFactory::register_allocator_factory(const std::string& backend,
                                                  AllocatorFactory factory) {
  const std::lock_guard lock(mutex_);
  if (!allocatorFactories_.try_emplace(backend, std::move(factory)).second) {
    throw std::invalid_argument("Backend '" + backend + "' has an allocator already");
  }
}

std::shared_ptr<c10::Allocator> TorchCommFactory::get_allocator(const std::string& backend) {
  const std::lock_guard lock(mutex_);
  const auto factory = allocatorFactories_.find(backend);
  if (factory == allocatorFactories_.end()) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "No allocator factory registered for backend: " + backend);
  }
  std::shared_ptr<c10::Allocator>& allocator = allocators_[backend];
  if (!allocator) allocator = factory->second();
  return allocator;
}

}  // namespace torch::comms
