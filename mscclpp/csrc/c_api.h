#pragma once

#include "mscclpp/c_api.h"

#include <exception>
#include <string>

#include "mscclpp/algorithm.hpp"

using mscclpp::CommResult;

struct mscclpp_communicator {
  std::shared_ptr<mscclpp::Communicator> communicator;
};

namespace mscclpp::c_api {

/// Keeps what the exception that is being handled says, for mscclpp_last_error; its code.
CommResult noteException();
void noteNothing();

/// The code of what `body` throws, if it does; else what it returns.
template <class Body>
CommResult guarded(const Body& body) {
  noteNothing();
  try {
    return body();
  } catch (...) {
    return noteException();
  }
}

/// Null if it throws.
template <class Body>
auto pointerOr(const Body& body) -> decltype(body()) {
  decltype(body()) made = nullptr;
  guarded([&] {
    made = body();
    return CommResult::CommSuccess;
  });
  return made;
}

}  // namespace mscclpp::c_api
