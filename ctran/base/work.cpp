#include "ctran/base/work.h"

#include "ctran/base/error.h"

namespace ctran {

void Work::finish(std::span<const std::shared_ptr<Work>> works, WaitHooks* hooks) {
  // The communicator is broken, so this ends at once. No signal ends it: other threads of this
  // process may be in these operations, and need the host language's lock to go on.
  const auto endAll = [&] {
    const Blocking blocking(hooks);
    for (const auto& work : works) {
      try {
        work->wait(nullptr);
      } catch (const Error&) {  // the one that is known
      }
    }
  };
  for (const auto& work : works) {
    try {
      work->wait(hooks);
    } catch (const Error&) {
      endAll();
      throw;
    } catch (...) {
      {
        const Blocking blocking(hooks);
        work->interrupt();
      }
      endAll();
      throw;
    }
  }
}

}  // namespace ctran
