#include "tests/rdma/system.h"

#include <poll.h>

#include <cstdlib>
#include <fstream>

namespace ibverbx {

void shell(const std::string& command) { EXPECT_EQ(std::system(command.c_str()), 0) << command; }

std::string sysfs(const IbvContext& context, const std::string& file) {
  std::ifstream in(std::string(context.context()->device->ibdev_path) + "/" + file);
  std::string line;
  EXPECT_TRUE(std::getline(in, line)) << file;
  return line;
}

IbvAsyncEvent nextEvent(const IbvContext& context) {
  pollfd readable{context.asyncFd(), POLLIN, 0};
  if (::poll(&readable, 1, 10'000) != 1) throw std::runtime_error("no event comes");
  const auto event = must(context.pollAsyncEvent());
  if (!event) throw std::runtime_error("readable, and there is no event");
  return *event;
}

IbvAsyncEvent nextEvent(const IbvContext& context, ibv_event_type type) {
  IbvAsyncEvent event = nextEvent(context);
  while (event.type != type) event = nextEvent(context);
  return event;
}

}  // namespace ibverbx
