#pragma once

#include "ctran/base/error.h"
#include "mscclpp/errors.hpp"

namespace mscclpp {

inline ErrorCode codeOf(ctran::ErrorKind kind) {
  switch (kind) {
    case ctran::ErrorKind::InvalidArgument:
    case ctran::ErrorKind::Mismatch:
    case ctran::ErrorKind::Unsupported:
      return ErrorCode::InvalidUsage;
    case ctran::ErrorKind::Timeout:
      return ErrorCode::Timeout;
    case ctran::ErrorKind::PeerLost:
      return ErrorCode::RemoteError;
    case ctran::ErrorKind::Aborted:
      return ErrorCode::Aborted;
    case ctran::ErrorKind::System:
      return ErrorCode::SystemError;
  }
  return ErrorCode::InternalError;
}

/// Errors of the engine as those of this interface.
template <class Body>
auto translated(const Body& body) {
  try {
    return body();
  } catch (const ctran::Error& error) {
    throw Error(error.what(), codeOf(error.kind()));
  }
}

}  // namespace mscclpp
