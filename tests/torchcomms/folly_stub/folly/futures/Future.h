// The names of folly that RdmaTransportFolly.h uses, with as much behind them as its test needs.
#pragma once

#include <future>
#include <utility>
#include <vector>

namespace folly {

template <typename T>
class Try {
 public:
  explicit Try(T value) : value_(std::move(value)) {}
  const T& value() const { return value_; }

 private:
  T value_;
};

template <typename T>
class SemiFuture {
 public:
  explicit SemiFuture(std::future<T> future) : future_(std::move(future)) {}
  T get() && { return future_.get(); }

 private:
  std::future<T> future_;  // which cannot be copied, as folly's
};

template <typename T>
class Promise {
 public:
  SemiFuture<T> getSemiFuture() { return SemiFuture<T>(promise_.get_future()); }
  void setValue(T value) { promise_.set_value(std::move(value)); }

 private:
  std::promise<T> promise_;
};

/// Folly's is ready when all are; this one is asked for its value at once.
template <typename T>
SemiFuture<std::vector<Try<T>>> collectAll(std::vector<SemiFuture<T>> futures) {
  std::promise<std::vector<Try<T>>> promise;
  std::vector<Try<T>> results;
  for (SemiFuture<T>& each : futures) results.emplace_back(std::move(each).get());
  promise.set_value(std::move(results));
  return SemiFuture<std::vector<Try<T>>>(promise.get_future());
}

}  // namespace folly
