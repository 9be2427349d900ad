#pragma once

#include <memory>

#include "ctran/stream/stream_operation.h"

namespace torch::comms {

/// What works of operations that the engine tracks on streams are besides.
class OnStream {
 public:
  virtual ~OnStream() = default;
  virtual const std::shared_ptr<ctran::StreamOperation>& operation() const = 0;
};

}  // namespace torch::comms
