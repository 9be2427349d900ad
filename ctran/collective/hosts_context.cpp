#include "ctran/collective/hosts_context.h"

#include "ctran/collective/alone.h"
#include "ctran/collective/registry.h"

namespace ctran {
namespace {

constexpr uint32_t kBuffersPerStep = 1 << 20;

}  // namespace

HostsContext::HostsContext(HostsCall& call, const HostMap& map, Arena* arena)
    : call(call), map(map), all(call, map) {
  if (arena == nullptr) return;
  shm_ = std::make_unique<ShmContext>(*arena);
  if (onRail()) rail_ = std::make_unique<NetContext>(call, map, map.local()[map.index()]);
}

Task HostsContext::local(const Collective& step) {
  shm_->beginStep(call.board, call.record());
  const int size = shm_->size;
  const AlgorithmQuery query{step.kind, size == 1 ? 0 : contributionBytes(step, size), size};
  const Algorithm& algorithm =
      size == 1 ? aloneAlgorithm() : cheapestAlgorithm(AlgorithmPlace::SharedMemory, query);
  return std::get<ShmAlgorithm>(algorithm.run)(*shm_, step);
}

RowPaths& HostsContext::beginRows() {
  all.prepare(all.size);
  if (!rows_) rows_ = std::make_unique<RowPaths>(map, &all, shm_.get());
  if (shm_) shm_->beginStep(call.board, call.record());
  return *rows_;
}

int HostsContext::delegate(int host, int root) const { return delegateOf(map, host, root); }

NetContext& HostsContext::around(int root) {
  std::unique_ptr<NetContext>& context = around_[root];
  if (!context) context = std::make_unique<NetContext>(call, map, root);
  return *context;
}

Task HostsContext::between(NetContext& net, const Collective& step, uint32_t number) {
  net.prepare(all.size, number * kBuffersPerStep);
  AlgorithmQuery query{step.kind, contributionBytes(step, net.size), net.size};
  query.partialSums = toleratesPartialSums(step);
  const Algorithm& algorithm = cheapestAlgorithm(AlgorithmPlace::Network, query);
  return std::get<NetAlgorithm>(algorithm.run)(net, step);
}

Task HostsContext::betweenFirst(std::string_view name, const Collective& step, uint32_t number) {
  NetContext& net = isShared() ? rail() : all;
  net.prepare(all.size, number * kBuffersPerStep);
  const Algorithm* const algorithm = findAlgorithm(AlgorithmPlace::Network, step.kind, name);
  return std::get<NetAlgorithm>(algorithm->run)(net, step);
}

Task HostsContext::startOnRails(const Collective& c) {
  if (!isShared()) return between(all, c);
  return onRail() ? between(*rail_, c) : doNothing(all);
}

Task HostsContext::start(const Algorithm& algorithm, const Collective& c) {
  if (const auto* run = std::get_if<HostsAlgorithm>(&algorithm.run)) return (*run)(*this, c);
  all.prepare(all.size);
  return std::get<NetAlgorithm>(algorithm.run)(all, c);
}

std::byte* HostsContext::scratch(size_t bytes) {
  if (scratch_.size() < bytes || scratch_.size() > kKeptScratch) {
    scratch_ = std::vector<std::byte>(bytes);
  }
  return scratch_.data();
}

}  // namespace ctran
