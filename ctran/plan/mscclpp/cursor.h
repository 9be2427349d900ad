#pragma once

#include <string>
#include <vector>

#include "ctran/plan/mscclpp/counters.h"
#include "ctran/plan/mscclpp/program.h"

namespace ctran::plan::mscclpp {

/// A connection, as one of its ends knows it: number `index` of its channels of that type.
struct End {
  int rank;
  std::string type;
  int index;
  auto operator<=>(const End&) const = default;
};

/// Goes through the operations of a program, so that whatever is said of one says where it is.
class Cursor {
 protected:
  Cursor(const Program& program, int loops) : program_(program), loops_(loops) {}

  /// Throws Refusal. `fail` is for what a plan cannot express.
  [[noreturn]] void fail(const std::string& why, ErrorKind kind = ErrorKind::Unsupported) const;
  [[noreturn]] void failAsWrong(const std::string& why) const {
    fail(why, ErrorKind::InvalidArgument);
  }

  /// All operations; those of pipelines in each of `loops_` iterations.
  template <class Function>
  void forEach(Function function) {
    for (int r = 0; r < static_cast<int>(program_.gpus.size()); ++r) {
      const auto& blocks = program_.gpus[r].threadblocks;
      for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
        at_ = {r, b};
        for (int i = 0; i < static_cast<int>(blocks[b].ops.size()); ++i) visit(i, function);
      }
    }
    leave();
  }

  void goTo(const Use& use);
  /// What is said now is about the program as a whole.
  void leave() {
    op_ = nullptr;
    origin_ = {};
  }

  const ThreadBlock& block() const { return program_.gpus[at_.rank].threadblocks[at_.lane]; }

  /// A number in the thread block's lists.
  int lookUp(const std::vector<ByType>& lists, const std::string& type, int index) const;
  std::vector<End> endsOf(const Operation& op) const;
  /// Of several connections of two ranks, the first of one is the first of the other.
  End otherEnd(const End& end) const;

  const Program& program_;
  const int loops_;
  LaneId at_;
  Origin origin_;
  const Operation* op_ = nullptr;
  int iterations_ = 1, iteration_ = 0;  // of the pipeline that `op_` is in

 private:
  template <class Function>
  void visit(int index, Function& function) {
    const Operation& op = block().ops[index];
    op_ = &op;
    origin_ = {index, -1};
    if (op.name != "pipeline") return function(op);
    iterations_ = loops_;
    for (iteration_ = 0; iteration_ < iterations_; ++iteration_) {
      for (int i = 0; i < static_cast<int>(op.ops.size()); ++i) {
        op_ = &op.ops[i];
        origin_ = {index, i};
        checkIteration(op);
        function(*op_);
      }
    }
    iterations_ = 1;
    iteration_ = 0;
  }
  void checkIteration(const Operation& pipeline) const;
};

}  // namespace ctran::plan::mscclpp
