#pragma once

#include <string>
#include <vector>

namespace ctran {

/// Which ranks share a host, and so shared memory. The same on all ranks.
class HostMap {
 public:
  /// `hosts[r]`: the host of rank r. At most `most` ranks are put together: of a host with more,
  /// the first so many are one, the next so many another.
  HostMap(const std::vector<std::string>& hosts, int rank, int most);

  int size() const { return static_cast<int>(hostOf_.size()); }  ///< ranks of all hosts
  int hosts() const { return static_cast<int>(groups_.size()); }
  /// The ranks of a host, in order. Hosts are in the order of their first ranks.
  const std::vector<int>& ranks(int host) const { return groups_[host]; }
  int hostOf(int rank) const { return hostOf_[rank]; }
  /// A rank's place among those of its host.
  int indexOf(int rank) const { return indexOf_[rank]; }

  int host() const { return hostOf_[rank_]; }  ///< of this rank
  int index() const { return indexOf_[rank_]; }
  const std::vector<int>& local() const { return groups_[host()]; }

  /// The size of the smallest host: so many times one rank can be taken from each host, the first
  /// of each, the second of each and so on.
  int rails() const { return rails_; }
  /// All hosts are of that size.
  bool isEven() const { return rails_ * groups_.size() == hostOf_.size(); }
  /// Some ranks share a host.
  bool isShared() const { return groups_.size() < hostOf_.size(); }
  /// The ranks of place `index` in each host.
  std::vector<int> rail(int index) const;
  /// "2x4": two hosts of four ranks; "1x2+2x4": of different sizes, in order of these.
  std::string shape() const;

 private:
  const int rank_;
  std::vector<std::vector<int>> groups_;
  std::vector<int> hostOf_, indexOf_;
  int rails_;
};

}  // namespace ctran
