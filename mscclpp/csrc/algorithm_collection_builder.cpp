#include "mscclpp/ext/collectives/algorithm_collection_builder.hpp"

#include <mutex>

#include "default_algorithms.h"

namespace mscclpp::collective {

class AlgorithmCollectionBuilder::Impl {
 public:
  std::vector<std::shared_ptr<AlgorithmBuilder>> builders;
  AlgoSelectFunc selector;
  AlgoSelectFunc fallback;
};

namespace {

std::mutex gMutex;
std::shared_ptr<AlgorithmCollectionBuilder>& instance() {
  static auto& one = *new std::shared_ptr<AlgorithmCollectionBuilder>;
  return one;
}

}  // namespace

std::shared_ptr<AlgorithmCollectionBuilder> AlgorithmCollectionBuilder::getInstance() {
  const std::lock_guard lock(gMutex);
  if (!instance()) instance() = std::make_shared<AlgorithmCollectionBuilder>();
  return instance();
}

void AlgorithmCollectionBuilder::reset() {
  const std::lock_guard lock(gMutex);
  instance() = nullptr;
}

AlgorithmCollectionBuilder::AlgorithmCollectionBuilder() : impl_(std::make_unique<Impl>()) {}
AlgorithmCollectionBuilder::~AlgorithmCollectionBuilder() = default;

void AlgorithmCollectionBuilder::addAlgorithmBuilder(std::shared_ptr<AlgorithmBuilder> builder) {
  if (!builder) throw Error("there is no algorithm builder", ErrorCode::InvalidUsage);
  impl_->builders.push_back(std::move(builder));
}
void AlgorithmCollectionBuilder::setAlgorithmSelector(AlgoSelectFunc selector) {
  impl_->selector = std::move(selector);
}
void AlgorithmCollectionBuilder::setFallbackAlgorithmSelector(AlgoSelectFunc selector) {
  impl_->fallback = std::move(selector);
}

AlgorithmCollection AlgorithmCollectionBuilder::build() {
  AlgorithmCollection collection;
  for (const auto& builder : impl_->builders) {
    const std::shared_ptr<Algorithm> algorithm = builder->build();
    collection.registerAlgorithm(algorithm->collective(), algorithm->name(), algorithm);
  }
  collection.setSelectors(impl_->selector, impl_->fallback);
  return collection;
}

AlgorithmCollection AlgorithmCollectionBuilder::buildDefaultAlgorithms(uintptr_t, size_t, uintptr_t,
                                                                       size_t, int) {
  AlgorithmCollection collection;
  for (const auto& algorithm : defaultAlgorithms()) {
    collection.registerAlgorithm(algorithm->collective(), algorithm->name(), algorithm);
  }
  collection.setSelectors(impl_->selector, impl_->fallback);
  return collection;
}

}  // namespace mscclpp::collective
