#include "ctran/topology/host_map.h"

#include <algorithm>
#include <map>

namespace ctran {

HostMap::HostMap(const std::vector<std::string>& hosts, int rank, int most) : rank_(rank) {
  std::map<std::string, int> open;  // the group that takes the next rank of a host
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    const auto found = open.find(hosts[r]);
    if (found == open.end() || static_cast<int>(groups_[found->second].size()) == most) {
      open[hosts[r]] = static_cast<int>(groups_.size());
      groups_.emplace_back();
    }
    const int group = open[hosts[r]];
    hostOf_.push_back(group);
    indexOf_.push_back(static_cast<int>(groups_[group].size()));
    groups_[group].push_back(r);
  }
  const auto smallest =
      std::min_element(groups_.begin(), groups_.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  rails_ = static_cast<int>(smallest->size());
}

std::vector<int> HostMap::rail(int index) const {
  std::vector<int> ranks;
  for (const auto& group : groups_) ranks.push_back(group[index]);
  return ranks;
}

std::string HostMap::shape() const {
  std::map<size_t, int> hostsOf;  // so many ranks
  for (const auto& group : groups_) ++hostsOf[group.size()];
  std::string text;
  for (const auto& [ranks, hosts] : hostsOf) {
    text += (text.empty() ? "" : "+") + std::to_string(hosts) + "x" + std::to_string(ranks);
  }
  return text;
}

}  // namespace ctran
