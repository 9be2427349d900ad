// Plans for people.
#include "ctran/plan/plan.h"

namespace ctran::plan {
namespace {

std::string toText(const Place& place, int count, int rank) {
  std::string text = std::string(nameOf(place.buffer)) + "[" + std::to_string(place.index);
  if (count > 1) text += ":" + std::to_string(place.index + count);
  text += "]";
  if (place.rank != rank) text += "@" + std::to_string(place.rank);
  return text;
}

template <class List, class Text>
std::string join(const List& list, const char* separator, Text text) {
  std::string all;
  for (const auto& item : list) all += (all.empty() ? "" : separator) + text(item);
  return all;
}

}  // namespace

std::string toText(const LaneId& lane, int step) {
  return "rank " + std::to_string(lane.rank) + ", lane " + std::to_string(lane.lane) + ", step " +
         std::to_string(step);
}

std::string toText(const Plan& plan, const Step& step, int rank) {
  std::vector<std::string> parts;
  if (!step.waits.empty()) {
    parts.push_back("wait " + join(step.waits, ", ", [&](const Wait& wait) {
                      const LaneId from = plan.channels[wait.channel].from;
                      return "c" + std::to_string(wait.channel) + " from " +
                             std::to_string(from.rank) +
                             (wait.count > 1 ? " x" + std::to_string(wait.count) : "");
                    }));
  }
  if (step.moves()) {
    const auto place = [&](const Place& p) { return toText(p, step.count, rank); };
    const std::string from = join(step.from, ", ", place);
    parts.push_back(join(step.to, ", ", place) + " = " +
                    (step.from.size() > 1 ? "reduce(" + from + ")" : from) +
                    (step.packet ? " as packets" : "") + (step.store ? " by stores" : ""));
  }
  if (!step.signals.empty()) {
    parts.push_back("signal " + join(step.signals, ", ", [&](int channel) {
                      return "c" + std::to_string(channel) + " to " +
                             std::to_string(plan.channels[channel].to.rank);
                    }));
  }
  return join(parts, "; ", [](const std::string& part) { return part; });
}

std::string toText(const Plan& plan) {
  std::string text = "plan " + plan.name + ": " + std::string(nameOf(plan.kind)) + " over " +
                     std::to_string(plan.ranks) + " ranks";
  if (plan.kind == CollectiveKind::Broadcast) text += ", root " + std::to_string(plan.root);
  text += ", blocks in " + std::to_string(plan.chunks) + (plan.chunks == 1 ? " part" : " parts") +
          ", scratch of " + std::to_string(plan.scratch) +
          (plan.scratch == 1 ? " chunk" : " chunks");
  if (plan.depth > 1) text += " x" + std::to_string(plan.depth);
  if (plan.inPlace) text += ", in place";
  if (plan.open) {
    text += ", without a promise, from " + std::to_string(plan.open->inputs) + " blocks to " +
            std::to_string(plan.open->outputs);
  }
  text += "\n";
  for (size_t i = 0; i < plan.channels.size(); ++i) {
    const Channel& c = plan.channels[i];
    text += "  channel c" + std::to_string(static_cast<int>(i)) + ": " +
            std::to_string(c.from.rank) + "." + std::to_string(c.from.lane) + " -> " +
            std::to_string(c.to.rank) + "." + std::to_string(c.to.lane);
    if (c.credits > 0) text += ", " + std::to_string(c.credits) + " credits";
    text += "\n";
  }
  for (int r = 0; r < plan.ranks; ++r) {
    for (size_t l = 0; l < plan.programs[r].size(); ++l) {
      text +=
          "  rank " + std::to_string(r) + ", lane " + std::to_string(static_cast<int>(l)) + "\n";
      const Lane& lane = plan.programs[r][l];
      for (size_t s = 0; s < lane.size(); ++s) {
        std::string index = std::to_string(static_cast<int>(s));
        if (index.size() < 4) index.insert(0, 4 - index.size(), ' ');
        text += "  " + index + "  " + toText(plan, lane[s], r) + "\n";
      }
    }
  }
  return text;
}

}  // namespace ctran::plan
