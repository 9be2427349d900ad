#pragma once

#include <memory>

#include "ctran/stream/stream_operation.h"

namespace torch::comms {

/// A second base of works whose operations the engine tracks on streams.
class OnStream {
 public:
  virtual ~OnStream() = default;
  virtual const std::shared_ptr<ctran::StreamOperation>& operation() const = 0;
};

}  // namespace torch::comms
