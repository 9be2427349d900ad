#include "ctran/rdma/transport.h"

#include "ctran/rdma/connection.h"

namespace ctran {

bool RdmaTransport::supported(std::string* why) {
  try {
    RdmaDevices::get();
    return true;
  } catch (const Error& error) {
    if (why) *why = error.what();
    return false;
  }
}

RdmaTransport::RdmaTransport(RdmaOptions options)
    : loop_(options.loop ? options.loop : RdmaLoop::shared()),
      connection_(std::make_shared<Connection>(loop_, options)) {
  loop_->add(connection_);
}

RdmaTransport::~RdmaTransport() {
  loop_->remove(connection_);
  connection_->close();
}

std::string RdmaTransport::bind() { return connection_->bind(); }
void RdmaTransport::connect(std::string_view url) { connection_->connect(url); }
bool RdmaTransport::connected() const { return connection_->connected(); }

RdmaFuture RdmaTransport::write(const RdmaSpan& from, const RdmaRemote& to, bool notify) {
  return connection_->transfer(ibverbx::IBV_WR_RDMA_WRITE, from, to, notify);
}

RdmaFuture RdmaTransport::read(const RdmaSpan& into, const RdmaRemote& from) {
  return connection_->transfer(ibverbx::IBV_WR_RDMA_READ, into, from, false);
}

RdmaFuture RdmaTransport::waitForWrite() { return connection_->waitForWrite(); }

}  // namespace ctran
