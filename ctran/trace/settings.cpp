#include "ctran/trace/settings.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/base/text.h"
#include "ctran/trace/reader.h"
#include "ctran/trace/recording.h"

namespace ctran {
namespace {

void writeAt(int fd, uint64_t offset, const void* from, size_t bytes) {
  const ssize_t written = ::pwrite(fd, from, bytes, static_cast<off_t>(offset));
  if (written < 0) throw systemError("writing to a recording", errno);
  if (static_cast<size_t>(written) != bytes) throw Error(ErrorKind::System, "a short write");
}

template <size_t N>
void copyWhole(char (&to)[N], const std::string& from, const char* what) {
  if (from.size() >= N) {
    throw Error(ErrorKind::InvalidArgument,
                std::string(what) + " has more than " + std::to_string(N - 1) + " bytes");
  }
  std::memcpy(to, from.c_str(), from.size() + 1);
}

/// The words of a RecordedSetting that nobody changes.
struct Copy {
  uint64_t asked, answered;
  char name[64], value[256], answer[512];
};
static_assert(sizeof(Copy) == sizeof(RecordedSetting));

std::vector<RecordingPart> partsOf(int fd) {
  auto parts = recordingParts(fd);
  if (parts.empty()) {
    throw Error(ErrorKind::InvalidArgument, "that is no memory of a communicator");
  }
  return parts;
}

}  // namespace

uint64_t askSetting(int fd, const std::string& name, const std::string& value) {
  Copy copy{};
  copyWhole(copy.name, name, "the name");
  copyWhole(copy.value, value, "the value");
  const std::vector<RecordingPart> parts = partsOf(fd);
  uint64_t number = 0;
  for (const RecordingPart& part : parts) {
    Copy before;
    readAt(fd, part.offset + RecordedSetting::kOffset, &before, sizeof before);
    number = std::max(number, before.asked);
  }
  ++number;
  for (const RecordingPart& part : parts) {
    const uint64_t at = part.offset + RecordedSetting::kOffset;
    constexpr size_t kTexts = offsetof(Copy, name);
    writeAt(fd, at + kTexts, &copy.name, sizeof copy.name + sizeof copy.value);
    writeAt(fd, at + offsetof(Copy, asked), &number, sizeof number);
  }
  return number;
}

std::vector<SettingAnswer> readAnswers(int fd, uint64_t asked) {
  std::vector<SettingAnswer> answers;
  for (const RecordingPart& part : partsOf(fd)) {
    if (part.hasLeft) continue;
    Copy copy;
    readAt(fd, part.offset + RecordedSetting::kOffset, &copy, sizeof copy);
    if (copy.answered == RecordedSetting::kTakesNone) continue;
    SettingAnswer answer;
    answer.rank = part.rank;
    answer.hasAnswered = copy.answered == asked;
    if (answer.hasAnswered) {
      answer.answer = printable(boundedText(copy.answer));
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace ctran
