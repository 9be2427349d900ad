#include "ctran/base/error.h"

#include <system_error>

namespace ctran {

Error systemError(const std::string& what, int errnum) {
  // Not strerror(): its buffer is shared between threads.
  return Error(ErrorKind::System, what + ": " + std::generic_category().message(errnum));
}

}  // namespace ctran
