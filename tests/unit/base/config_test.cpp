#include "ctran/base/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "ctran/base/error.h"

namespace ctran {
namespace {

const ConfigInt kCount{"CTRAN_TEST_COUNT", 50, "How many.", 1, 100};
const ConfigBool kFlag{"CTRAN_TEST_FLAG", true, "Whether.", ConfigVariable::Change::Live};
const ConfigBytes kSize{"CTRAN_TEST_SIZE", 64 << 10, "How large."};
const ConfigString kName{"CTRAN_TEST_NAME", "nobody", "Who."};
const ConfigChoice kColour{"CTRAN_TEST_COLOUR", "red|green|blue", "green", "Which."};

class Environment {
 public:
  Environment(const ConfigVariable& variable, const char* value) : name_(variable.name()) {
    setenv(name_.c_str(), value, 1);
  }
  ~Environment() { unsetenv(name_.c_str()); }

 private:
  std::string name_;
};

TEST(Config, UnsetVariablesHaveTheirDefaults) {
  EXPECT_EQ(kCount.get(), 50);
  EXPECT_TRUE(kFlag.get());
  EXPECT_EQ(kSize.get(), 65536u);
  EXPECT_EQ(kName.get(), "nobody");
  EXPECT_EQ(kColour.get(), "green");
  EXPECT_EQ(kColour.index(), 1u);
  EXPECT_FALSE(kCount.isSet());
}

TEST(Config, AnEmptyValueCountsAsUnset) {
  const Environment empty(kCount, "");
  EXPECT_FALSE(kCount.isSet());
  EXPECT_EQ(kCount.get(), 50);
}

TEST(Config, ValuesAreReadFromTheEnvironmentAtEachGet) {
  const Environment count(kCount, "7");
  const Environment flag(kFlag, "off");
  const Environment name(kName, "me");
  const Environment colour(kColour, "blue");
  EXPECT_EQ(kCount.get(), 7);
  EXPECT_FALSE(kFlag.get());
  EXPECT_EQ(kName.get(), "me");
  EXPECT_EQ(kColour.index(), 2u);
  const Environment later(kCount, "8");
  EXPECT_EQ(kCount.get(), 8);
}

TEST(Config, BytesTakeBinarySuffixes) {
  const std::pair<const char*, size_t> cases[] = {
      {"0", 0}, {"4095", 4095}, {"64K", 64 << 10}, {"4M", 4 << 20}, {"3G", size_t{3} << 30}};
  for (const auto& [text, bytes] : cases) {
    const Environment size(kSize, text);
    EXPECT_EQ(kSize.get(), bytes) << text;
    EXPECT_EQ(kSize.valueText(), text);
  }
  EXPECT_EQ(kSize.defaultText(), "64K");
}

TEST(Config, UnreadableValuesAreRejectedByName) {
  const std::pair<const ConfigVariable&, const char*> cases[] = {
      {kCount, "seven"}, {kCount, "7x"},          {kCount, "0"},     {kCount, "101"},
      {kCount, " 7"},    {kFlag, "maybe"},        {kSize, "4X"},     {kSize, "K"},
      {kSize, "-1"},     {kSize, "99999999999G"}, {kColour, "pink"}, {kColour, "red|"}};
  for (const auto& [variable, text] : cases) {
    const Environment environment(variable, text);
    try {
      const std::string value = variable.valueText();
      ADD_FAILURE() << variable.name() << "=" << text << " was read as " << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
      const std::string message = error.what();
      EXPECT_NE(message.find(variable.name()), std::string::npos) << message;
      EXPECT_NE(message.find(text), std::string::npos) << message;
      EXPECT_EQ(error.hint(), variable.doc());
    }
  }
}

/// A file that TORCHCOMM_CONFIG names.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    const int file = mkstemp(path_);
    std::ofstream(path_) << text;
    close(file);
    setenv("TORCHCOMM_CONFIG", path_, 1);
  }
  ~ConfigFile() {
    unsetenv("TORCHCOMM_CONFIG");
    unlink(path_);
  }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/ctran_config_XXXXXX";
};

using Source = ConfigVariable::Source;

TEST(Config, TheFileHasWhatTheEnvironmentHasNot) {
  const ConfigFile file("# ours\nCTRAN_TEST_COUNT = 9  # of them\n\n  CTRAN_TEST_NAME=a b\n");
  EXPECT_EQ(kCount.get(), 9);
  EXPECT_EQ(kName.get(), "a b");
  EXPECT_EQ(kCount.source(), Source::File);
  EXPECT_EQ(kSize.source(), Source::Default);
  const Environment count(kCount, "7");
  EXPECT_EQ(kCount.get(), 7);
  EXPECT_EQ(kCount.source(), Source::Environment);
  EXPECT_NO_THROW(checkConfig({"CTRAN_"}));
}

TEST(Config, AFileThatCannotBeUsedIsAnErrorThatNamesIt) {
  const auto said = [] {
    try {
      checkConfig({"CTRAN_"});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  setenv("TORCHCOMM_CONFIG", "/no/such/file", 1);
  EXPECT_NE(said().find("'/no/such/file' cannot be read"), std::string::npos);
  setenv("TORCHCOMM_CONFIG", "/", 1);
  EXPECT_NE(said().find("'/' cannot be read"), std::string::npos);
  const ConfigFile file("CTRAN_TEST_COUNT=9\nnonsense\n");
  EXPECT_NE(said().find(file.path() + "' has no NAME=VALUE in line 2"), std::string::npos);
}

TEST(Config, AValueThatIsReadLaterIsCheckedAtOnce) {
  const Environment count(kCount, "many");
  EXPECT_NO_THROW(checkConfig({"TORCHCOMM_"}));
  try {
    checkConfig({"CTRAN_"});
    FAIL() << "took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    EXPECT_NE(std::string(error.what()).find("CTRAN_TEST_COUNT='many'"), std::string::npos);
  }
}

TEST(Config, UnknownNamesComeWithTheNearestKnownOne) {
  const std::pair<const char*, const char*> cases[] = {
      {"CTRAN_TCP_INTERFACE", "CTRAN_TCP_INTERFACES"},
      {"CTRAN_TEST_CUONT", "CTRAN_TEST_COUNT"},
      {"CTRAN_TEST_COLO", "CTRAN_TEST_COLOUR"},
      {"CTRAN_QQQQQQQQ", ""}};
  for (const auto& [name, near] : cases) {
    const auto unknown = unknownConfig({name, "PATH", "CTRAN_TEST_COUNT"}, {"CTRAN_"});
    ASSERT_EQ(unknown.size(), 1u);
    EXPECT_EQ(unknown[0].name, name);
    EXPECT_EQ(unknown[0].near, near);
  }
}

int gTold = 0;
const WhenLiveChanges kFlagChanges{kFlag, [] { ++gTold; }};

TEST(Config, ALiveVariableChangesWhileTheProgramRuns) {
  const Environment flag(kFlag, "yes");
  setLive("CTRAN_TEST_FLAG", "no");
  EXPECT_FALSE(kFlag.get());
  EXPECT_EQ(kFlag.source(), Source::Live);
  EXPECT_EQ(gTold, 1);
  for (const auto& [name, value] :
       {std::pair("CTRAN_TEST_FLAG", "perhaps"), std::pair("CTRAN_TEST_COUNT", "3"),
        std::pair("CTRAN_X", "1")}) {
    EXPECT_THROW(setLive(name, value), Error) << name;
  }
  try {
    setLive("CTRAN_TEST_FLAK", "1");
    FAIL() << "there is no such variable";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is CTRAN_TEST_FLAG meant?"), std::string::npos);
  }
  EXPECT_EQ(gTold, 1);
  EXPECT_FALSE(kFlag.get());
}

TEST(Config, TheTypeOfANumberHasItsRange) {
  EXPECT_EQ(kCount.type(), "int, 1 to 100");
  const ConfigVariable* exit = findConfig("CTRAN_EXIT_MILLIS");
  if (exit != nullptr) {
    EXPECT_EQ(exit->type(), "int, at least 0");
  }
}

TEST(Config, EveryVariableIsListedOnceInOrderOfName) {
  const std::vector<const ConfigVariable*> all = allConfig();
  size_t ours = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(all[i - 1]->name(), all[i]->name());
    }
    const std::string_view name = all[i]->name();
    const bool isOurs = std::any_of(kConfigPrefixes.begin(), kConfigPrefixes.end(),
                                    [&](auto prefix) { return name.starts_with(prefix); });
    EXPECT_TRUE(isOurs || name.ends_with("_HOME")) << name;
    EXPECT_FALSE(all[i]->doc().empty());
    EXPECT_FALSE(all[i]->type().empty());
    ours += all[i]->name().starts_with("CTRAN_TEST_");
  }
  EXPECT_EQ(ours, 5u);
}

}  // namespace
}  // namespace ctran
