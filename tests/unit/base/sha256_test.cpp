#include "ctran/base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ctran::testing {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte b : digest) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string sha(const std::string& text) { return hex(Sha256().add(bytes(text)).finish()); }

std::string hmac(const std::string& key, const std::string& message) {
  return hex(hmacSha256(bytes(key), bytes(message)));
}

// FIPS 180-4, as in NIST's examples and SHA256ShortMsg.rsp.
TEST(Sha256, GivesTheVectorsOfNist) {
  EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha("\xd3"), "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
}

TEST(Sha256, DoesNotDependOnHowTheDataIsCut) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 7);
  const std::string whole = sha(text);
  for (size_t piece = 1; piece < 130; piece += 9) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) hash.add(bytes(text.substr(at, piece)));
    EXPECT_EQ(hex(hash.finish()), whole) << "in pieces of " << piece;
  }
}

// RFC 4231.
TEST(HmacSha256, GivesTheVectorsOfRfc4231) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(
      hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Digests, AreComparedWhole) {
  const Digest a = Sha256().add(bytes("abc")).finish();
  EXPECT_TRUE(sameDigest(a, a));
  for (size_t i = 0; i < a.size(); ++i) {
    Digest b = a;
    b[i] ^= std::byte{0x10};
    EXPECT_FALSE(sameDigest(a, b)) << i;
  }
}

}  // namespace
}  // namespace ctran::testing
