// Who is let in at a TCP port, and who is not. Each abuse is tried on a real socket.
#include "ctran/bootstrap/handshake.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "ctran/base/clock.h"
#include "ctran/base/error.h"
#include "tests/unit/support/descriptors.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

constexpr int kSize = 4;

/// A listening rank 0, and what has come of its callers.
class Door {
 public:
  explicit Door(const JobKey& key = randomKey())
      : key(key), acceptor(localAddresses(), key, 0, kSize) {}

  void poll() {
    acceptor.poll(
        [this](const Introduction& who) -> std::optional<Verdict> {
          return admit ? admit(who) : Verdict::Welcome;
        },
        [this](const Introduction& who, TcpSocket socket) {
          admitted.push_back(who);
          sockets.push_back(std::move(socket));
        });
  }

  NetAddress address() const { return acceptor.addresses().back(); }

  const JobKey key;
  Acceptor acceptor;
  std::function<std::optional<Verdict>(const Introduction&)> admit;
  std::vector<Introduction> admitted;
  std::vector<TcpSocket> sockets;
};

void until(const std::function<bool()>& condition) {
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kGuard).count();
  while (!condition()) {
    if (nowNanos() > giveUp) {
      ADD_FAILURE() << "gave up waiting";
      return;
    }
    std::this_thread::yield();
  }
}

/// Somebody at the other end who may say anything.
class Stranger {
 public:
  explicit Stranger(Door& door) : door_(door), socket_(beginConnect(door.address())) {
    pollfd writable{socket_.get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&writable, 1, 10'000), 1);
    door_.poll();
  }

  void say(const void* data, size_t bytes) {
    EXPECT_EQ(writeSome(socket_, {static_cast<const std::byte*>(data), bytes}).bytes, bytes);
  }
  void say(const std::string& text) { say(text.data(), text.size()); }

  /// Reads exactly so many bytes, while the door goes on; false if it is shut instead.
  bool hear(void* data, size_t bytes) {
    auto* to = static_cast<std::byte*>(data);
    bool open = true;
    until([&] {
      door_.poll();
      while (bytes > 0) {
        const IoResult read = readSome(socket_, {to, bytes});
        if (read.end == IoResult::End::WouldBlock) return false;
        if (read.end != IoResult::End::None) open = false;
        if (!open) return true;
        to += read.bytes;
        bytes -= read.bytes;
      }
      return true;
    });
    return open;
  }

  /// That the door is shut, after whatever was said before.
  void expectShut() {
    std::byte anything;
    while (hear(&anything, 1)) continue;
  }

  Challenge challenge() {
    Challenge message;
    EXPECT_TRUE(hear(&message, sizeof message));
    EXPECT_EQ(message.magic, kHandshakeMagic);
    return message;
  }

 private:
  Door& door_;
  TcpSocket socket_;
};

Hello helloFor(const JobKey& key, const Challenge& challenge, const Introduction& who) {
  Hello hello;
  hello.who = who;
  hello.proof = proofOf(key, challenge, hello);
  return hello;
}

/// Calls, with the door going on meanwhile.
Connector::State call(Door& door, Connector& connector) {
  Connector::State state = connector.poll();
  until([&] {
    door.poll();
    state = connector.poll();
    return state != Connector::State::Pending;
  });
  return state;
}

void expectStillWorks(Door& door) {
  const size_t before = door.admitted.size();
  Connector connector({door.address()}, door.key, {3, kSize, 0, Purpose::Link});
  EXPECT_EQ(call(door, connector), Connector::State::Welcome) << connector.why();
  ASSERT_EQ(door.admitted.size(), before + 1);
  EXPECT_EQ(door.admitted.back().rank, 3);
}

void expectNobody(const Door& door) { EXPECT_EQ(door.admitted.size(), 0u); }

TEST(Handshake, LetsInWhoHasTheKey) {
  Door door;
  Connector connector({door.address()}, door.key, {2, kSize, 0, Purpose::Join});
  ASSERT_EQ(call(door, connector), Connector::State::Welcome) << connector.why();
  ASSERT_EQ(door.admitted.size(), 1u);
  EXPECT_EQ(door.admitted[0].rank, 2);
  EXPECT_EQ(door.admitted[0].purpose, Purpose::Join);
  // And they are connected to each other.
  const TcpSocket socket = connector.takeSocket();
  const std::byte sent{42};
  std::byte got{};
  EXPECT_EQ(writeSome(socket, {&sent, 1}).bytes, 1u);
  until([&] { return readSome(door.sockets[0], {&got, 1}).bytes == 1; });
  EXPECT_EQ(got, sent);
  EXPECT_EQ(door.acceptor.refused(), 0u);
}

TEST(Handshake, WorksOverEveryAddressOfThisHost) {
  Door door;
  for (const NetAddress& address : door.acceptor.addresses()) {
    Connector connector({address}, door.key, {1, kSize, 0, Purpose::Link});
    EXPECT_EQ(call(door, connector), Connector::State::Welcome)
        << address.text() << connector.why();
  }
}

TEST(Handshake, TriesTheNextAddressWhereNobodyOrSomebodyElseListens) {
  Door door, another;
  NetAddress nobody = door.address();
  {
    std::vector<NetAddress> free{localAddresses().back()};
    const TcpSocket brief = listenTcp(free);
    nobody = free[0];
  }
  Connector connector({nobody, another.address(), door.address()}, door.key,
                      {1, kSize, 0, Purpose::Link});
  Connector::State state = connector.poll();
  until([&] {
    door.poll();
    another.poll();
    state = connector.poll();
    return state != Connector::State::Pending;
  });
  EXPECT_EQ(state, Connector::State::Welcome) << connector.why();
  expectNobody(another);
  EXPECT_GT(another.acceptor.refused(), 0u);
}

TEST(Handshake, RefusesAPortScan) {
  Door door;
  for (int i = 0; i < 200; ++i) {
    const TcpSocket brief = beginConnect(door.address());
    pollfd writable{brief.get(), POLLOUT, 0};
    ::poll(&writable, 1, 10'000);
    door.poll();
  }
  expectStillWorks(door);
  EXPECT_EQ(door.admitted.size(), 1u);
}

TEST(Handshake, RefusesOtherProtocols) {
  const std::string tls("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), tls + std::string(500, 'x'),
        std::string("\n"), std::string(100'000, '\0'), std::string("SSH-2.0-OpenSSH_9.2\r\n")}) {
    Door door;
    Stranger stranger(door);
    stranger.say(text.substr(0, 60'000));
    stranger.expectShut();
    expectNobody(door);
    expectStillWorks(door);
  }
}

TEST(Handshake, RefusesSilenceAndHalfAHandshakeAfterTheDeadline) {
  ::setenv("CTRAN_TCP_HANDSHAKE_MILLIS", "50", 1);
  Door door;
  ::unsetenv("CTRAN_TCP_HANDSHAKE_MILLIS");
  Stranger silent(door), slow(door);
  const Hello hello = helloFor(door.key, slow.challenge(), {1, kSize, 0, Purpose::Link});
  slow.say(&hello, sizeof hello - 1);
  silent.expectShut();
  slow.expectShut();
  expectNobody(door);
  EXPECT_EQ(door.acceptor.refused(), 2u);
}

TEST(Handshake, SilentOnesDoNotKeepOthersOut) {
  Door door;
  std::vector<std::unique_ptr<Stranger>> silent;
  for (size_t i = 0; i < 2 * Acceptor::kSeats; ++i) {
    silent.push_back(std::make_unique<Stranger>(door));
  }
  expectStillWorks(door);
  EXPECT_GE(door.acceptor.refused(), Acceptor::kSeats);
}

TEST(Handshake, RefusesAWrongKey) {
  Door door;
  JobKey wrong = door.key;
  wrong[31] ^= std::byte{1};
  Stranger stranger(door);
  const Hello hello = helloFor(wrong, stranger.challenge(), {1, kSize, 0, Purpose::Link});
  stranger.say(&hello, sizeof hello);
  stranger.expectShut();
  expectNobody(door);
  Connector connector({door.address()}, wrong, {1, kSize, 0, Purpose::Link});
  EXPECT_EQ(call(door, connector), Connector::State::Failed);
  expectNobody(door);
  expectStillWorks(door);
}

TEST(Handshake, RefusesAReplay) {
  Door door;
  Hello recorded;
  {
    Stranger honest(door);
    recorded = helloFor(door.key, honest.challenge(), {1, kSize, 0, Purpose::Link});
    honest.say(&recorded, sizeof recorded);
    VerdictMessage answer;
    ASSERT_TRUE(honest.hear(&answer, sizeof answer));
    EXPECT_EQ(answer.verdict, Verdict::Welcome);
  }
  ASSERT_EQ(door.admitted.size(), 1u);
  Stranger replaying(door);
  replaying.challenge();
  replaying.say(&recorded, sizeof recorded);
  replaying.expectShut();
  EXPECT_EQ(door.admitted.size(), 1u);
}

TEST(Handshake, RefusesAChangedHello) {
  const auto change = [](const std::function<void(Hello&)>& spoil) {
    Door door;
    Stranger stranger(door);
    Hello hello = helloFor(door.key, stranger.challenge(), {1, kSize, 0, Purpose::Link});
    spoil(hello);
    stranger.say(&hello, sizeof hello);
    stranger.expectShut();
    expectNobody(door);
  };
  change([](Hello& hello) { hello.who.rank = 2; });
  change([](Hello& hello) { hello.who.purpose = Purpose::Join; });
  change([](Hello& hello) { hello.nonce[0] ^= std::byte{1}; });
  change([](Hello& hello) { hello.proof[31] ^= std::byte{1}; });
  change([](Hello& hello) { hello.magic ^= 1; });
  change([](Hello& hello) { hello.protocol += 1; });
}

TEST(Handshake, RefusesAWrongRankSizeOrTargetAndSaysSo) {
  const auto refused = [](const Introduction& who, Verdict verdict) {
    Door door;
    Stranger stranger(door);
    const Hello hello = helloFor(door.key, stranger.challenge(), who);
    stranger.say(&hello, sizeof hello);
    VerdictMessage answer;
    ASSERT_TRUE(stranger.hear(&answer, sizeof answer));
    EXPECT_EQ(answer.verdict, verdict);
    stranger.expectShut();
    expectNobody(door);
  };
  refused({kSize, kSize, 0, Purpose::Link}, Verdict::NoSuchRank);
  refused({-1, kSize, 0, Purpose::Link}, Verdict::NoSuchRank);
  refused({0, kSize, 0, Purpose::Link}, Verdict::NoSuchRank);  // the listener's own
  refused({1, kSize + 1, 0, Purpose::Link}, Verdict::OtherSize);
  refused({1, kSize, 2, Purpose::Link}, Verdict::OtherTarget);
}

TEST(Handshake, RefusesWhomTheRankRefuses) {
  Door door;
  door.admit = [](const Introduction&) { return Verdict::RankTaken; };
  Connector connector({door.address()}, door.key, {1, kSize, 0, Purpose::Link});
  EXPECT_EQ(call(door, connector), Connector::State::Refused);
  EXPECT_EQ(connector.verdict(), Verdict::RankTaken);
  expectNobody(door);
}

TEST(Handshake, KeepsWaitingAboutWhomNothingIsDecidedYet) {
  Door door;
  int asked = 0;
  door.admit = [&](const Introduction&) -> std::optional<Verdict> {
    ++asked;
    return std::nullopt;
  };
  Connector first({door.address()}, door.key, {1, kSize, 0, Purpose::Link});
  Connector second({door.address()}, door.key, {2, kSize, 0, Purpose::Link});
  const auto bothWait = [&] {
    door.poll();
    EXPECT_EQ(first.poll(), Connector::State::Pending);
    EXPECT_EQ(second.poll(), Connector::State::Pending);
  };
  until([&] {
    bothWait();
    return asked >= 10;
  });
  // They have proved the key: others who have not do not push them out.
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (size_t i = 0; i < 2 * Acceptor::kSeats; ++i) {
    strangers.push_back(std::make_unique<Stranger>(door));
    bothWait();
  }
  door.admit = [](const Introduction& who) {
    return who.rank == 1 ? Verdict::Welcome : Verdict::RankTaken;
  };
  EXPECT_EQ(call(door, first), Connector::State::Welcome) << first.why();
  EXPECT_EQ(call(door, second), Connector::State::Refused);
  ASSERT_EQ(door.admitted.size(), 1u);
  EXPECT_EQ(door.admitted[0].rank, 1);
}

TEST(Handshake, ForgetsWhoHangsUpBeforeAnythingIsDecided) {
  Door door;
  int asked = 0;
  door.admit = [&](const Introduction&) -> std::optional<Verdict> {
    ++asked;
    return std::nullopt;
  };
  for (int i = 0; i < 3; ++i) {
    Connector connector({door.address()}, door.key, {1, kSize, 0, Purpose::Link});
    until([&] {
      door.poll();
      EXPECT_EQ(connector.poll(), Connector::State::Pending);
      return asked > 0;
    });
    asked = 0;
  }
  // Nobody is asked about any more.
  until([&] {
    asked = 0;
    door.poll();
    return asked == 0;
  });
  door.admit = nullptr;
  expectStillWorks(door);
}

/// One descriptor is kept for callers: who is turned away leaves it to the next.
TEST(Handshake, HearsOneAfterTheOtherWhereAllDescriptorsAreInUse) {
  Door door;
  door.admit = [](const Introduction& who) {
    return who.rank == 1 ? Verdict::RankTaken : Verdict::Welcome;
  };
  auto stranger = beginConnect(door.address());
  Connector refused({door.address()}, door.key, {1, kSize, 0, Purpose::Link});
  Connector welcome({door.address()}, door.key, {2, kSize, 0, Purpose::Link});
  Connector late({door.address()}, door.key, {3, kSize, 0, Purpose::Link});
  const AllDescriptorsInUse none;
  EXPECT_EQ(writeSome(stranger, std::as_bytes(std::span("GET /"))).bytes, 6u);
  EXPECT_EQ(call(door, refused), Connector::State::Refused) << refused.why();
  EXPECT_TRUE(door.acceptor.hasSpare());
  EXPECT_EQ(call(door, welcome), Connector::State::Welcome) << welcome.why();
  EXPECT_FALSE(door.acceptor.hasSpare());
  // It has taken the last.
  const Error error = errorOf([&] { call(door, late); });
  EXPECT_EQ(error.op(), kMakingSockets) << error.what();
  door.sockets.clear();
  EXPECT_EQ(call(door, late), Connector::State::Welcome) << late.why();
}

TEST(Handshake, SaysSoWhenNobodyCanBeHeard) {
  Door door;
  Connector connector({door.address()}, door.key, {1, kSize, 0, Purpose::Link});
  {
    const NoDescriptors none;
    const Error error = errorOf([&] { call(door, connector); });
    EXPECT_EQ(error.kind(), ErrorKind::System);
    EXPECT_EQ(error.op(), kMakingSockets) << error.what();
  }
  EXPECT_EQ(call(door, connector), Connector::State::Welcome) << connector.why();
  EXPECT_TRUE(door.acceptor.hasSpare());
}

/// A caller that is deceived: an acceptor without the key, or one that changes the verdict.
TEST(Handshake, CallerTrustsOnlyAnAcceptorThatProvesTheKey) {
  for (const bool forgesVerdict : {false, true}) {
    const JobKey key = randomKey();
    std::vector<NetAddress> addresses{localAddresses().back()};
    const TcpSocket listener = listenTcp(addresses);
    Connector connector(addresses, key, {1, kSize, 0, Purpose::Link});
    TcpSocket accepted;
    until([&] {
      connector.poll();
      accepted = acceptTcp(listener);
      return static_cast<bool>(accepted);
    });
    Challenge challenge;
    ASSERT_EQ(writeSome(accepted, std::as_bytes(std::span(&challenge, 1))).bytes, sizeof challenge);
    Hello hello;
    size_t heard = 0;
    until([&] {
      connector.poll();
      heard +=
          readSome(accepted, std::as_writable_bytes(std::span(&hello, 1)).subspan(heard)).bytes;
      return heard == sizeof hello;
    });
    VerdictMessage message;
    if (forgesVerdict) message.proof = proofOf(key, challenge, hello, Verdict::RankTaken);
    ASSERT_EQ(writeSome(accepted, std::as_bytes(std::span(&message, 1))).bytes, sizeof message);
    Connector::State state{};
    until([&] { return (state = connector.poll()) != Connector::State::Pending; });
    EXPECT_EQ(state, Connector::State::Failed);
    EXPECT_NE(connector.why().find("could not prove"), std::string::npos) << connector.why();
  }
}

TEST(Interfaces, AreSelectedByNamePrefixNetworkAndExclusion) {
  NetAddress address;
  address.family = 4;
  address.ip = {10, 1, 2, 3};
  const auto selects = [&](const std::string& list) {
    return selectsInterface(list, "eth1", address);
  };
  EXPECT_TRUE(selects(""));
  EXPECT_TRUE(selects("eth1"));
  EXPECT_FALSE(selects("eth"));
  EXPECT_TRUE(selects("eth*"));
  EXPECT_TRUE(selects("ib0, eth1"));
  EXPECT_FALSE(selects("ib0"));
  EXPECT_FALSE(selects("^eth1"));
  EXPECT_TRUE(selects("^docker*,^lo"));
  EXPECT_FALSE(selects("eth*,^eth1"));
  EXPECT_TRUE(selects("10.1.0.0/16"));
  EXPECT_FALSE(selects("10.2.0.0/16"));
  EXPECT_TRUE(selects("10.1.2.0/23"));
  EXPECT_FALSE(selects("^10.0.0.0/8"));
  EXPECT_FALSE(selects("fd00::/8"));
  EXPECT_EQ(errorOf([&] { selects("10.1.0.0/33"); }).kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(errorOf([&] { selects("10.1/16"); }).kind(), ErrorKind::InvalidArgument);
}

TEST(Interfaces, NoneLeftIsAnErrorThatNamesThem) {
  ::setenv("CTRAN_TCP_INTERFACES", "nosuch0", 1);
  const Error error = errorOf([] { localAddresses(); });
  ::unsetenv("CTRAN_TCP_INTERFACES");
  EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find(" lo"), std::string::npos) << error.what();
}

TEST(Interfaces, NearAddressesAreTriedFirstAndLoopbackOnlyOnOneMachine) {
  const auto v4 = [](uint8_t a, uint8_t b, uint8_t prefix) {
    NetAddress address;
    address.family = 4;
    address.prefix = prefix;
    address.ip = {a, b, 0, 1};
    return address;
  };
  const std::vector<NetAddress> own{v4(10, 1, 16), v4(127, 0, 8)};
  const std::vector<NetAddress> peer{v4(192, 168, 16), v4(10, 1, 16), v4(127, 0, 8), {}};
  const auto far = byReach(peer, own, false);
  ASSERT_EQ(far.size(), 2u);
  EXPECT_EQ(far[0].ip[0], 10);
  EXPECT_EQ(far[1].ip[0], 192);
  EXPECT_EQ(byReach(peer, own, true).size(), 3u);
}

NetAddress at(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  NetAddress address;
  address.family = 4;
  address.prefix = 16;
  address.ip = {a, b, c, d};
  return address;
}

/// "1.1>1.2 ..." of the last but one and the last bytes.
std::string textOf(const std::vector<NetPath>& paths) {
  std::string text;
  const auto add = [&text](const NetAddress& address) {
    text += std::to_string(address.ip[1]) + "." + std::to_string(address.ip[3]);
  };
  for (const NetPath& path : paths) {
    if (!text.empty()) text += " ";
    add(path.from);
    text += ">";
    add(path.to);
  }
  return text;
}

TEST(Interfaces, PathsStayWithinTheNetworksThatBothHostsAreIn) {
  const std::vector<NetAddress> own{at(10, 1, 0, 1), at(10, 2, 0, 1), at(10, 9, 0, 1)};
  const std::vector<NetAddress> peer{at(10, 1, 0, 2), at(10, 2, 0, 2), at(10, 8, 0, 2)};
  EXPECT_EQ(textOf(pathsBetween(own, peer, peer[0])), "1.1>1.2 2.1>2.2");
  EXPECT_EQ(textOf(pathsBetween(own, peer, peer[1])), "2.1>2.2 1.1>1.2");
}

TEST(Interfaces, EachOfSeveralInOneNetworkHasAPath) {
  const std::vector<NetAddress> one{at(10, 1, 0, 1)}, two{at(10, 1, 0, 3), at(10, 1, 0, 4)};
  EXPECT_EQ(textOf(pathsBetween(one, two, two[0])), "1.1>1.3 1.1>1.4");
  EXPECT_EQ(textOf(pathsBetween(two, one, one[0])), "1.3>1.1 1.4>1.1");
}

TEST(Interfaces, HostsWithoutACommonNetworkAreReachedFromEachToEach) {
  const std::vector<NetAddress> own{at(10, 1, 0, 1), at(10, 2, 0, 1)};
  const std::vector<NetAddress> peer{at(10, 3, 0, 2), at(10, 4, 0, 2)};
  EXPECT_EQ(textOf(pathsBetween(own, peer, peer[0])), "1.1>3.2 2.1>4.2");
}

TEST(Interfaces, PathsAreOfOneVersionOfIp) {
  NetAddress v6 = at(0xfd, 0, 0, 1);
  v6.family = 6;
  const std::vector<NetAddress> own{at(10, 1, 0, 1), v6}, peer{at(10, 1, 0, 2), v6};
  EXPECT_EQ(textOf(pathsBetween(own, peer, peer[0])), "1.1>1.2");
  EXPECT_EQ(pathsBetween(own, peer, v6).size(), 1u);
  EXPECT_EQ(pathsBetween(own, peer, v6)[0].to.family, 6);
}

}  // namespace
}  // namespace ctran::testing
