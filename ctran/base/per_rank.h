#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace ctran {

/// Objects for some of very many ranks: a tree of sixteen ways, which takes memory only for those
/// ranks. Looking takes no lock. An object stays until all are cleared.
template <class T>
class PerRank {
 public:
  explicit PerRank(int size) {
    for (size_t room = kWays; room < static_cast<size_t>(size); room *= kWays) ++levels_;
  }
  ~PerRank() { clear(); }
  PerRank(const PerRank&) = delete;
  PerRank& operator=(const PerRank&) = delete;

  /// Returns null if the rank has no object yet.
  T* find(int rank) const {
    const Node* node = &root_;
    for (int level = levels_; level > 0; --level) {
      node = static_cast<const Node*>(load((*node)[wayOf(rank, level)]));
      if (node == nullptr) return nullptr;
    }
    return static_cast<T*>(load((*node)[wayOf(rank, 0)]));
  }

  /// Returns the rank's object; if there is none, `make` makes it, a unique_ptr. There is one
  /// object per rank, however many threads call this.
  template <class Make>
  T& get(int rank, Make make) {
    if (T* const known = find(rank)) return *known;
    const std::lock_guard lock(mutex_);
    Node* node = &root_;
    for (int level = levels_; level > 0; --level) {
      std::atomic<void*>& next = (*node)[wayOf(rank, level)];
      if (load(next) == nullptr) next.store(new Node{}, std::memory_order_release);
      node = static_cast<Node*>(load(next));
    }
    std::atomic<void*>& there = (*node)[wayOf(rank, 0)];
    if (load(there) == nullptr) {
      std::unique_ptr<T> made = make();
      there.store(made.release(), std::memory_order_release);
    }
    return *static_cast<T*>(load(there));
  }
  T& get(int rank) {
    return get(rank, [] { return std::make_unique<T>(); });
  }

  /// Destroys all objects. No thread may look meanwhile.
  void clear() { release(root_, levels_); }

  /// Visits the objects in the order of ranks: `visit(rank, T&)`.
  template <class Visit>
  void forEach(Visit visit) const {
    walk(root_, levels_, 0, visit);
  }

 private:
  static constexpr int kBits = 4;
  static constexpr size_t kWays = size_t{1} << kBits;
  using Node = std::array<std::atomic<void*>, kWays>;  // pointers to nodes; on the last level to T

  static void* load(const std::atomic<void*>& way) { return way.load(std::memory_order_acquire); }
  static size_t wayOf(int rank, int level) {
    return static_cast<size_t>(rank) >> (kBits * level) & (kWays - 1);
  }

  template <class Visit>
  static void walk(const Node& node, int level, int first, Visit& visit) {
    for (size_t way = 0; way < kWays; ++way) {
      void* const next = load(node[way]);
      if (next == nullptr) continue;
      const int rank = first + static_cast<int>(way << (kBits * level));
      if (level == 0) {
        visit(rank, *static_cast<T*>(next));
      } else {
        walk(*static_cast<const Node*>(next), level - 1, rank, visit);
      }
    }
  }

  static void release(Node& node, int level) {
    for (std::atomic<void*>& way : node) {
      void* const next = way.exchange(nullptr, std::memory_order_acq_rel);
      if (next == nullptr) continue;
      if (level > 0) {
        release(*static_cast<Node*>(next), level - 1);
        delete static_cast<Node*>(next);
      } else {
        delete static_cast<T*>(next);
      }
    }
  }

  Node root_{};
  int levels_ = 0;  // below the root
  std::mutex mutex_;
};

}  // namespace ctran
