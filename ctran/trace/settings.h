#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ctran {

/// How somebody changes a variable of a running rank: a place in the rank's part of the memory in
/// which it records, behind the header.
///
/// Who asks writes name and value, and then `asked`, through a descriptor of the memory (pwrite).
/// The rank looks there twice a second, and answers with the same number. To open the memory one
/// has to be allowed to trace the process: its user, or root. The last of several who ask counts.
struct RecordedSetting {
  using Word = std::atomic<uint64_t>;
  static constexpr size_t kOffset = 2048;  ///< in a rank's part

  static constexpr uint64_t kTakesNone = UINT64_MAX;

  Word asked;     ///< 0: nothing yet
  Word answered;  ///< of what was asked; kTakesNone: it never does
  char name[64];
  char value[256];
  char answer[512];  ///< empty: it was taken; else why not. Written before `answered`
};

/// What was asked of one rank, and said.
struct SettingAnswer {
  int rank = 0;
  bool hasAnswered = false;
  std::string answer;
};

/// Asks all ranks of the communicator in that memory; `fd` is open for reading and writing. Returns
/// the number to ask `readAnswers` with. Throws Error(InvalidArgument) if the text is too long or
/// it is no such memory, Error(System).
uint64_t askSetting(int fd, const std::string& name, const std::string& value);

/// In order of the ranks: those that have not left, and answer at all.
std::vector<SettingAnswer> readAnswers(int fd, uint64_t asked);

}  // namespace ctran
