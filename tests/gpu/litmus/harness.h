#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

/// Runs groups of checks in processes of their own, so that a crash, a hang or a broken CUDA
/// context ends one group and not the run.
namespace litmus {

/// One line of results: printed as text, kept as a JSON object.
class Row {
 public:
  Row(std::string_view group, std::string_view test);
  Row& add(std::string_view key, std::string_view text);
  Row& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Row& add(std::string_view key, T value) {
    return addNumber(key, static_cast<double>(value));
  }

  /// Sends the row to the process that collects them.
  void emit() const;

 private:
  Row& addNumber(std::string_view key, double value);

  std::string json_;
};

struct Group {
  std::string name;
  int limitSeconds;
  std::function<void()> body;
};

/// Runs every group whose name is in `only` (all when empty); rows go to stdout and to `jsonPath`.
/// Returns the number of groups that did not end by themselves.
int runGroups(const std::vector<Group>& groups, const std::string& jsonPath,
              const std::vector<std::string>& only);

}  // namespace litmus
