#pragma once

#include <chrono>
#include <string>

#include "ctran/base/export.h"

namespace ctran {

/// The key-value store through which ranks first find each other. The torch glue wraps any
/// c10d::Store; C++ programs use one of the stores of `local_store.h`.
class CTRAN_API Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;

  /// Returns the value, after waiting until the key exists. Throws Error(Timeout).
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;

  /// Does nothing if there is no such key.
  virtual void remove(const std::string& key) = 0;
};

}  // namespace ctran
