#include "ctran/plan/mscclpp/cursor.h"

#include <algorithm>

#include "ctran/base/error.h"

namespace ctran::plan::mscclpp {

void Cursor::fail(const std::string& why, ErrorKind kind) const {
  std::string where = "program '" + program_.name + "'";
  if (op_ != nullptr) {
    where += ", rank " + std::to_string(at_.rank) + ", thread block " +
             std::to_string(program_.gpus[at_.rank].threadblocks[at_.lane].id) + ", '" + op_->name +
             "'";
  }
  const char* cannot = kind == ErrorKind::Unsupported ? ": a plan cannot express " : ": ";
  throw Refusal(kind, where + cannot + why, why, at_, op_ == nullptr ? Origin{} : origin_);
}

/// An iteration takes the next piece of all chunks that are written in the operation, side by
/// side, so these must be as many as the loop says, which goes on until that many are through.
void Cursor::checkIteration(const Operation& pipeline) const {
  if (op_->name == "pipeline") failAsWrong("a loop within a loop");
  for (const auto* chunks : {&op_->src, &op_->dst}) {
    for (const Chunk& chunk : *chunks) {
      if (chunk.size == pipeline.iterationChunks) continue;
      failAsWrong("an operation on chunks of size " + std::to_string(chunk.size) +
                  " in a loop of num_chunks=" + std::to_string(pipeline.iterationChunks) +
                  ": a loop goes through that many chunks, so each of its operations has as many; "
                  "give the loop num_chunks=" +
                  std::to_string(chunk.size) + ", or other chunks a loop of their own");
    }
  }
}

int Cursor::lookUp(const std::vector<ByType>& lists, const std::string& type, int index) const {
  for (const ByType& list : lists) {
    if (list.type != type) continue;
    if (index >= 0 && index < static_cast<int>(list.numbers.size())) return list.numbers[index];
  }
  failAsWrong("there is no " + type + " channel or buffer " + std::to_string(index));
}

std::vector<End> Cursor::endsOf(const Operation& op) const {
  std::vector<End> ends;
  for (const int id : op.channelIds) {
    ends.push_back({at_.rank, op.channelType, lookUp(block().channels, op.channelType, id)});
  }
  return ends;
}

End Cursor::otherEnd(const End& end) const {
  const auto connected = [&](int rank) -> const std::vector<int>& {
    static const std::vector<int> kNone;
    if (rank < 0 || rank >= static_cast<int>(program_.gpus.size())) return kNone;
    for (const ByType& list : program_.gpus[rank].channels) {
      if (list.type == end.type) return list.numbers;
    }
    return kNone;
  };
  const auto& here = connected(end.rank);
  if (end.index < 0 || end.index >= static_cast<int>(here.size())) {
    failAsWrong("there is no channel " + std::to_string(end.index));
  }
  const int peer = here[end.index];
  const auto ordinal = std::count(here.begin(), here.begin() + end.index, peer);
  const auto& there = connected(peer);
  int64_t seen = 0;
  for (int i = 0; i < static_cast<int>(there.size()); ++i) {
    if (there[i] == end.rank && seen++ == ordinal) return {peer, end.type, i};
  }
  failAsWrong("rank " + std::to_string(peer) + " has no channel back");
}

void Cursor::goTo(const Use& use) {
  at_ = use.lane;
  origin_ = use.origin;
  op_ = &block().ops[origin_.op];
  if (origin_.inner >= 0) op_ = &op_->ops[origin_.inner];
}

}  // namespace ctran::plan::mscclpp
