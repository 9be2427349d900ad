#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ctran {

/// Which ranks share a host, and so shared memory. The same on all ranks, which may share its
/// memory, too: copies are cheap.
class HostMap {
 public:
  /// `hosts[r]`: the host of rank r. At most `most` ranks are put together: of a host with more,
  /// the first so many are one, the next so many another.
  HostMap(const std::vector<std::string>& hosts, int rank, int most);
  /// The same, of hosts that have numbers.
  HostMap(std::span<const int> hosts, int rank, int most);

  /// As one that another rank has made for `size` ranks, of whose `image` `memory` is a copy and
  /// the owner. Throws Error(System) if it is none.
  HostMap(std::shared_ptr<const int[]> memory, size_t count, int rank, int size);
  std::span<const int> image() const { return {image_.get(), count_}; }

  int size() const { return image_[kSize]; }  ///< ranks of all hosts
  int hosts() const { return image_[kHosts]; }
  /// The ranks of a host, in order. Hosts are in the order of their first ranks.
  std::span<const int> ranks(int host) const {
    return {order() + first()[host], order() + first()[host + 1]};
  }
  int hostOf(int rank) const { return image_[kHead + rank]; }
  /// A rank's place among those of its host.
  int indexOf(int rank) const { return image_[kHead + size() + rank]; }

  int host() const { return hostOf(rank_); }  ///< of this rank
  int index() const { return indexOf(rank_); }
  const std::vector<int>& local() const { return local_; }

  /// The order in which the ranks of a host are together: who is at a place, and where a rank is.
  int at(int place) const { return order()[place]; }
  int placeOf(int rank) const { return first()[hostOf(rank)] + indexOf(rank); }
  /// That order is the one of their numbers.
  bool isInOrder() const { return image_[kIsInOrder] != 0; }

  /// The size of the smallest host: so many times one rank can be taken from each host, the first
  /// of each, the second of each and so on.
  int rails() const { return image_[kRails]; }
  /// All hosts are of that size.
  bool isEven() const { return static_cast<int64_t>(rails()) * hosts() == size(); }
  /// Some ranks share a host.
  bool isShared() const { return hosts() < size(); }
  /// "2x4": two hosts of four ranks; "1x2+2x4": of different sizes, in order of these.
  std::string shape() const;

 private:
  bool isSound(int size) const;

  // The image: these numbers; per rank its host; per rank its index; per host where its ranks begin
  // in what follows, and the end of that; all ranks, host by host.
  enum Number : size_t { kSize, kHosts, kRails, kIsInOrder, kHead };
  const int* first() const { return &image_[kHead + 2 * static_cast<size_t>(size())]; }
  const int* order() const { return first() + hosts() + 1; }

  const int rank_;
  std::shared_ptr<const int[]> image_;
  size_t count_;
  std::vector<int> local_;
};

}  // namespace ctran
