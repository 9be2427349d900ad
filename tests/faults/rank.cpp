#include "tests/faults/rank.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "ctran/base/clock.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/init_point.h"
#include "tests/unit/support/descriptors.h"

namespace ctran::testing {
namespace {

using std::chrono::milliseconds;

// A guard, which nothing awaits on purpose.
constexpr int64_t kSettled = 20'000'000'000;

template <size_t n>
void copyText(char (&to)[n], const std::string& text) {
  std::strncpy(to, text.c_str(), n - 1);
}

// --- What the conductor has done to this rank, in its signal handlers ----------------------------

/// Resets one TCP connection, each time another one, as a middlebox may: connecting to nowhere
/// drops it with an RST.
void resetConnection(int) {
  constexpr int kFirst = 3, kLast = 200;
  static int last = kFirst;
  for (int i = 0; i < kLast - kFirst; ++i) {
    last = last + 1 < kLast ? last + 1 : kFirst;
    const int fd = last;
    int domain = 0, type = 0;
    socklen_t length = sizeof domain;
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) continue;
    if (domain != AF_INET && domain != AF_INET6) continue;
    length = sizeof type;
    ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
    sockaddr_storage peer{};
    length = sizeof peer;
    if (type != SOCK_STREAM ||
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) {
      continue;
    }
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;
    if (::connect(fd, &nowhere, sizeof nowhere) == 0) return;
  }
}

Descriptors gDescriptors;
bool gForbids = false;

void takeDescriptors(int) {
  if (gForbids) {
    gDescriptors.forbid();
  } else {
    gDescriptors.takeAll();
  }
}

// --- Calls ---------------------------------------------------------------------------------------

/// The calls of one rank on one communicator, each checked.
class Caller {
 public:
  Caller(const Scenario& scenario, Communicator& communicator, Account& account)
      : scenario_(scenario), communicator_(communicator), account_(account) {}

  void call(uint64_t number) {
    const NextCall next = drawCall(scenario_, number);
    Case c = next.what;
    const int size = communicator_.size();
    c.root %= size;
    switch (next.call) {
      case Call::Collective:
        return collective(communicator_, c);
      case Call::SeveralPosted:
        return several(c);
      case Call::Messages:
        return messages(c);
      case Call::Split: {
        std::vector<int> all(static_cast<size_t>(size));
        for (int r = 0; r < size; ++r) all[static_cast<size_t>(r)] = r;
        const auto child = communicator_.split(all, "child", milliseconds(scenario_.timeoutMillis));
        try {
          collective(*child, c);
          child->finalize();
        } catch (const Error& error) {
          // The fault was the child's. Others may have come through it: all go on as if this rank
          // had too, and meet what is left of the fault in the communicator itself. Who left that
          // one now would be named there, and rightly, by those who still need it.
          if (!scenario_.mayFail()) throw;
          copyText(account_.inChild, error.what());
          const bool right = scenario_.fault == Fault::Reset || scenario_.fault == Fault::Stop ||
                             error.ranks() == std::vector<int>{scenario_.victim};
          if (!right) copyText(account_.wrong, std::string("in a child: ") + error.what());
        }
        return;
      }
    }
  }

 private:
  Inputs inputsOfAll(const Case& c) const {
    Inputs inputs;
    for (int r = 0; r < communicator_.size(); ++r) {
      inputs.push_back(inputsOf(c, r, communicator_.size()));
    }
    return inputs;
  }

  void check(const Case& c, const Buffers& buffers, const Inputs& inputs) {
    const std::string wrong =
        buffers.check(expectedOf(c, communicator_.rank(), communicator_.size(), inputs));
    if (!wrong.empty()) copyText(account_.wrong, c.describe() + ": " + wrong);
  }

  void collective(Communicator& communicator, const Case& c) {
    const Inputs inputs = inputsOfAll(c);
    const auto rank = static_cast<size_t>(communicator.rank());
    const auto buffers =
        std::make_shared<Buffers>(c, communicator.rank(), communicator.size(), inputs[rank]);
    if (c.posted) {
      communicator.post(buffers->collective(), {}, buffers)->wait();
    } else {
      communicator.run(buffers->collective());
    }
    check(c, *buffers, inputs);
  }

  void several(Case c) {
    std::vector<std::shared_ptr<Work>> works;
    std::vector<std::pair<Case, std::shared_ptr<Buffers>>> all;
    for (int i = 0; i < 4; ++i, ++c.seed) {
      const auto inputs = inputsOf(c, communicator_.rank(), communicator_.size());
      all.emplace_back(
          c, std::make_shared<Buffers>(c, communicator_.rank(), communicator_.size(), inputs));
      works.push_back(communicator_.post(all.back().second->collective(), {}, all.back().second));
    }
    for (size_t i = 0; i < works.size(); ++i) {
      works[i]->wait();
      check(all[i].first, *all[i].second, inputsOfAll(all[i].first));
    }
  }

  /// Everybody sends to the next and receives from the one before.
  void messages(const Case& c) {
    const int size = communicator_.size(), rank = communicator_.rank();
    const size_t bytes = c.count;
    const auto fill = [&](int from, std::byte* to) {
      for (size_t i = 0; i < bytes; ++i) {
        to[i] = std::byte(mix(c.seed + static_cast<uint64_t>(from) + i / 8) >> i % 8 * 8);
      }
    };
    struct Memory {
      std::vector<std::byte> sent, got, wanted;
    };
    const auto memory = std::make_shared<Memory>();
    for (auto* part : {&memory->sent, &memory->got, &memory->wanted}) part->resize(bytes + 1);
    fill(rank, memory->sent.data());
    fill((rank + size - 1) % size, memory->wanted.data());
    Collective send;
    send.kind = CollectiveKind::Send;
    send.count = bytes;
    Collective receive = send;
    receive.kind = CollectiveKind::Recv;
    send.root = (rank + 1) % size;
    receive.root = (rank + size - 1) % size;
    send.input = memory->sent.data();
    receive.output = memory->got.data();
    const auto sent = communicator_.post(send, {}, memory);
    if (c.posted) {
      communicator_.post(receive, {}, memory)->wait();
    } else {
      communicator_.run(receive);
    }
    sent->wait();
    if (memory->got != memory->wanted) copyText(account_.wrong, "a message is not what was sent");
  }

  const Scenario& scenario_;
  Communicator& communicator_;
  Account& account_;
};

std::shared_ptr<Communicator> create(const Scenario& scenario, const Stage& stage, int rank,
                                     int size, const char* name, milliseconds timeout) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.name = name;
  options.store = std::make_shared<DirectoryStore>(stage.store);
  options.timeout = timeout;
  options.hints["ctran::host"] = scenario.host(rank);
  ::setenv("CTRAN_TCP_CONNECTIONS", std::to_string(scenario.connections).c_str(), 1);
  return Communicator::create(options);
}

// --- A scenario ----------------------------------------------------------------------------------

void remember(Account& account, const Error& error, const Stage& stage) {
  account.failed = true;
  account.kind = error.kind();
  for (const int r : error.ranks()) {
    if (account.rankCount < kMaxRanks) account.ranks[account.rankCount++] = r;
  }
  const int64_t broken = stage.brokenAt;
  account.noticedNanos = broken == 0 ? 0 : nowNanos() - broken;
  copyText(account.error, error.what());
}

/// Until the error comes, or all calls are made.
void takePart(const Orders& orders, Stage& stage, Account& account) {
  const Scenario& scenario = orders.scenario;
  std::atomic<uint32_t>& calls = stage.calls[static_cast<size_t>(orders.rank)];
  std::shared_ptr<Communicator> communicator;
  std::vector<std::byte> hoard;
  try {
    calls = 1;
    account.creating = true;
    const bool mayFail = scenario.whileCreating || scenario.fault == Fault::Descriptors;
    communicator = create(scenario, stage, orders.rank, scenario.size, "first",
                          milliseconds(mayFail ? 2000 : 30'000));
    account.creating = false;
    communicator->setTimeout(milliseconds(scenario.timeoutMillis));
    Caller caller(scenario, *communicator, account);
    const auto last = static_cast<uint32_t>(scenario.calls);
    while (account.wrong[0] == 0 && (scenario.breaks() || calls <= last)) {
      caller.call(++calls);
      if (scenario.fault == Fault::Memory && orders.rank == scenario.victim &&
          stage.brokenAt != 0) {
        hoard.resize(hoard.size() + (8 << 20), std::byte{1});
      }
    }
    communicator->finalize();
  } catch (const Error& error) {
    remember(account, error, stage);
    if (communicator && scenario.fault != Fault::Descriptors) {
      // It stays broken, and says the same again.
      try {
        communicator->run({});
        copyText(account.wrong, std::string("works again after: ") + account.error);
      } catch (const Error& again) {
        if (again.kind() != account.kind && scenario.breaks() && !account.creating &&
            communicator->isAborted() && drawCall(scenario, calls).call != Call::Split) {
          copyText(account.wrong, std::string("another error later: ") + again.what());
        }
      }
    }
  }
  account.calls = calls;
}

/// Those who are left, in a new communicator.
std::shared_ptr<Communicator> createAgain(const Orders& orders, Stage& stage, InitPoint* point) {
  const Scenario& scenario = orders.scenario;
  constexpr milliseconds kTimeout{60'000};
  if (point != nullptr) {
    std::vector<std::string> handles;
    for (int r = 0; r < scenario.size; ++r) {
      if (!scenario.kills() || r != scenario.victim) handles.emplace_back(stage.handles[r]);
    }
    CommunicatorOptions options;
    options.timeout = kTimeout;
    return point->form(handles, "second", options);
  }
  const bool smaller = scenario.kills();
  const int size = scenario.size - (smaller ? 1 : 0);
  const int rank = orders.rank - (smaller && orders.rank > scenario.victim ? 1 : 0);
  return create(scenario, stage, rank, size, "second", kTimeout);
}

void recover(const Orders& orders, Stage& stage, InitPoint* point, Account& account) {
  const Scenario& scenario = orders.scenario;
  try {
    const auto communicator = createAgain(orders, stage, point);
    Caller caller(scenario, *communicator, account);
    for (uint64_t i = 0; i < 3; ++i) caller.call(1'000'000 + i);
    communicator->finalize();
  } catch (const Error& error) {
    copyText(account.recovery, error.what());
  }
}

int countIn(const char* folder) {
  int count = 0;
  DIR* const directory = ::opendir(folder);
  if (directory == nullptr) return -1;
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] != '.';
  ::closedir(directory);
  return count;
}

}  // namespace

Belongings countBelongings() {
  Belongings all;
  all.threads = countIn("/proc/self/task");
  for (int fd = 0; fd < 1024; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    ++all.descriptors;
    int domain = 0;
    socklen_t length = sizeof domain;
    all.sockets += ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    all.mappings += line.find("/memfd:") != std::string::npos;
  }
  all.heap = static_cast<int64_t>(::mallinfo2().uordblks);
  return all;
}

void serveAsRank(int orders, Stage& stage, Injection& injection) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGINT, SIG_IGN);  // the conductor ends this process
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGUSR1, resetConnection);
  ::signal(SIGUSR2, takeDescriptors);
  shiftTimeOfDay(&injection.clockOffsetSeconds);
  while (true) {
    Orders next;
    if (::recv(orders, &next, sizeof next, MSG_WAITALL) != sizeof next) ::_exit(0);
    Account account;
    account.number = next.scenario.number;
    gForbids = next.scenario.forbids;
    std::unique_ptr<InitPoint> point;
    if (next.scenario.reforms) {
      point = std::make_unique<InitPoint>(hostIdentity(next.scenario.host(next.rank)));
      copyText(stage.handles[next.rank], point->handle());
    }
    try {
      takePart(next, stage, account);
    } catch (const std::exception& error) {
      copyText(account.wrong, std::string("no Error of ours: ") + error.what());
    }
    // The conductor gives the signal when the fault, which may have come later, is over.
    Belongings usual;
    if (::send(orders, &account, sizeof account, MSG_NOSIGNAL) != sizeof account ||
        ::recv(orders, &usual, sizeof usual, MSG_WAITALL) != sizeof usual) {
      ::_exit(0);
    }
    gDescriptors.giveBack();
    recover(next, stage, point.get(), account);
    point.reset();
    account.belongings = countBelongings();
    // The engine's threads let go of what they used a moment later, which on a busy machine takes
    // until they run.
    const int64_t giveUp = nowNanos() + kSettled;
    const auto settled = [&](const Belongings& now) {
      return now.mappings == 0 && (usual.descriptors == 0 || now.fitsInto(usual));
    };
    while (!settled(account.belongings) && nowNanos() < giveUp) {
      ::sched_yield();
      account.belongings = countBelongings();
    }
    if (::send(orders, &account, sizeof account, MSG_NOSIGNAL) != sizeof account) ::_exit(0);
  }
}

}  // namespace ctran::testing
