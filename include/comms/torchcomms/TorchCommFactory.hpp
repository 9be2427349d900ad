#pragma once

#include <c10/core/Allocator.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace torch::comms {

/// What `new_comm` has to know about a backend before it makes one.
struct BackendTraits {
  bool needsRendezvous = true;  ///< its ranks have to find each other
  bool canReconfigure = false;  ///< knows CommOptions::enable_reconfigure
};

/// The backends of this process, by name. All methods may be called from any thread.
class TorchCommFactory {
 public:
  /// Makes an object that has not been initialised.
  using BackendFactory = std::function<std::shared_ptr<TorchCommBackend>()>;
  using AllocatorFactory = std::function<std::shared_ptr<c10::Allocator>()>;

  static TorchCommFactory& get();

  /// Throws std::invalid_argument if there is a backend of that name.
  void register_backend(const std::string& backend, BackendFactory factory,
                        BackendTraits traits = {});
  bool is_backend_registered(const std::string& backend) const;
  /// Throws like create_backend for an unknown name.
  BackendTraits traits(const std::string& backend) const;
  /// Sorted.
  std::vector<std::string> registered_backends() const;

  /// A backend, initialised: collective over its ranks. Throws ctran::Error for an unknown
  /// name (the text lists the known ones) and whatever the backend throws.
  std::shared_ptr<TorchCommBackend> create_backend(const std::string& backend, at::Device device,
                                                   const std::string& name,
                                                   const CommOptions& options = {}) const;

  void register_allocator_factory(const std::string& backend, AllocatorFactory factory);
  /// The memory allocator of a backend, made once. Throws ctran::Error if it has none.
  std::shared_ptr<c10::Allocator> get_allocator(const std::string& backend);

 private:
  struct Entry {
    BackendFactory factory;
    BackendTraits traits;
  };

  TorchCommFactory() = default;
  Entry find(const std::string& backend) const;

  mutable std::mutex mutex_;
  std::map<std::string, Entry> backends_;
  std::map<std::string, AllocatorFactory> allocatorFactories_;
  std::map<std::string, std::shared_ptr<c10::Allocator>> allocators_;
};

/// A static object of this type registers a backend when its library is loaded.
struct BackendRegistration {
  BackendRegistration(const std::string& backend, TorchCommFactory::BackendFactory factory,
                      BackendTraits traits = {}) {
    TorchCommFactory::get().register_backend(backend, std::move(factory), traits);
  }
};

}  // namespace torch::comms
