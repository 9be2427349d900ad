#include "c_api.h"

#include "interruption.h"

namespace mscclpp {
namespace {

thread_local std::string gError;
thread_local int gErrorCode = -1;

constexpr auto kInterrupted = static_cast<ErrorCode>(100);  // what no Error has

CommResult failed(const char* why, ErrorCode code, CommResult result) {
  gError = why;
  gErrorCode = static_cast<int>(code);
  return result;
}

CommResult resultOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidUsage:
    case ErrorCode::ExecutorError:
      return CommResult::CommInvalidUsage;
    case ErrorCode::RemoteError:
    case ErrorCode::Timeout:
    case ErrorCode::Aborted:
      return CommResult::CommRemoteError;
    case ErrorCode::SystemError:
      return CommResult::CommSystemError;
    case ErrorCode::InternalError:
      break;
  }
  return CommResult::CommInternalError;
}

}  // namespace

CommResult c_api::noteException() {
  try {
    throw;
  } catch (const Interrupted& error) {
    return failed(error.what(), kInterrupted, CommResult::CommRemoteError);
  } catch (const Error& error) {
    return failed(error.what(), error.getErrorCode(), resultOf(error.getErrorCode()));
  } catch (const CudaError& error) {
    return failed(error.what(), ErrorCode::SystemError, CommResult::CommUnhandledCudaError);
  } catch (const SysError& error) {
    return failed(error.what(), ErrorCode::SystemError, CommResult::CommSystemError);
  } catch (const std::exception& error) {
    return failed(error.what(), ErrorCode::InternalError, CommResult::CommInternalError);
  } catch (...) {
    return failed("an unknown exception", ErrorCode::InternalError, CommResult::CommInternalError);
  }
}

void c_api::noteNothing() {
  gError.clear();
  gErrorCode = -1;
}

int detail::guarded(const std::function<void()>& body) {
  return static_cast<int>(c_api::guarded([&] {
    body();
    return CommResult::CommSuccess;
  }));
}

}  // namespace mscclpp

const char* mscclpp_last_error() { return mscclpp::gError.c_str(); }
int mscclpp_last_error_code() { return mscclpp::gErrorCode; }
