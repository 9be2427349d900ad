#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ctran {

/// Tells which ranks share a host, and so shared memory. It is the same on all ranks, which may
/// also share the memory it is stored in; copies are cheap.
class HostMap {
 public:
  /// `hosts[r]` is the host of rank r. At most `most` ranks count as one host: of a host with more,
  /// the first `most` are one host, the next `most` another, and so on.
  HostMap(const std::vector<std::string>& hosts, int rank, int most);
  /// Makes a map of hosts that are named by numbers.
  HostMap(std::span<const int> hosts, int rank, int most);

  /// Makes a map that another rank has made for `size` ranks: `memory` is a copy of its `image`,
  /// and owns it. Throws Error(System) if it is no such image.
  HostMap(std::shared_ptr<const int[]> memory, size_t count, int rank, int size);
  std::span<const int> image() const { return {image_.get(), count_}; }

  int size() const { return image_[kSize]; }  ///< ranks of all hosts
  int hosts() const { return image_[kHosts]; }
  /// Returns the ranks of a host, in order. Hosts are in the order of their first ranks.
  std::span<const int> ranks(int host) const {
    return {order() + first()[host], order() + first()[host + 1]};
  }
  int hostOf(int rank) const { return image_[kHead + rank]; }
  /// Returns a rank's place among those of its host.
  int indexOf(int rank) const { return image_[kHead + size() + rank]; }

  int host() const { return hostOf(rank_); }  ///< that of this rank
  int index() const { return indexOf(rank_); }
  const std::vector<int>& local() const { return local_; }

  /// The order in which the ranks of a host stand together. `at` returns the rank at a place,
  /// `placeOf` the place of a rank.
  int at(int place) const { return order()[place]; }
  int placeOf(int rank) const { return first()[hostOf(rank)] + indexOf(rank); }
  /// Returns whether that order is the order of the ranks' numbers.
  bool isInOrder() const { return image_[kIsInOrder] != 0; }

  /// Returns the number of rails, which is the size of the smallest host. A rail is one rank of
  /// each host: the first of each, the second of each, and so on.
  int rails() const { return image_[kRails]; }
  /// Returns whether all hosts have the same number of ranks.
  bool isEven() const { return static_cast<int64_t>(rails()) * hosts() == size(); }
  /// Returns whether some ranks share a host.
  bool isShared() const { return hosts() < size(); }
  /// Describes the map: "2x4" is two hosts of four ranks; "1x2+2x4" are hosts of different sizes,
  /// in the order of the sizes.
  std::string shape() const;

 private:
  bool isSound(int size) const;

  // The image is a sequence of numbers: those of `Number`; per rank its host; per rank its index;
  // per host the start of its ranks in the last part, and the end of that; all ranks, host by host.
  enum Number : size_t { kSize, kHosts, kRails, kIsInOrder, kHead };
  const int* first() const { return &image_[kHead + 2 * static_cast<size_t>(size())]; }
  const int* order() const { return first() + hosts() + 1; }

  const int rank_;
  std::shared_ptr<const int[]> image_;
  size_t count_;
  std::vector<int> local_;
};

}  // namespace ctran
