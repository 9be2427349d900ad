#include "tests/gpu/litmus/harness.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>

namespace litmus {
namespace {

int sink = -1;

std::string jsonString(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + "\"";
}

/// One group: collects its lines until it ends or its time is over. Whether it ended by itself,
/// well.
bool runGroup(const Group& group, std::ofstream& json) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  int ends[2];
  if (pipe(ends) != 0) return false;
  fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    close(ends[0]);
    sink = ends[1];
    try {
      group.body();
    } catch (const std::exception& error) {
      Row(group.name, "EXCEPTION").add("what", error.what()).emit();
      _exit(1);
    }
    _exit(0);  // no CUDA teardown: the process' end does it
  }
  close(ends[1]);
  auto emitLine = [&](const std::string& line) {
    json << line << "\n" << std::flush;
    printf("%s\n", line.c_str());
    fflush(stdout);
  };
  std::string pending;
  bool timedOut = false;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        start + std::chrono::seconds(group.limitSeconds) - Clock::now());
    pollfd waiting{ends[0], POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::max<long>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      timedOut = true;
      kill(child, SIGKILL);
      break;
    }
    char buffer[4096];
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n <= 0) break;
    pending.append(buffer, n);
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      emitLine(pending.substr(0, end));
    }
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const bool good = !timedOut && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  char line[256];
  snprintf(
      line, sizeof line,
      "{\"group\": %s, \"test\": \"END\", \"outcome\": \"%s\", \"status\": %d, \"seconds\": %.1f}",
      jsonString(group.name).c_str(),
      timedOut ? "TIMEOUT"
      : good   ? "finished"
               : "FAILED",
      status, seconds);
  emitLine(line);
  return good;
}

}  // namespace

Row::Row(std::string_view group, std::string_view test)
    : json_("{\"group\": " + jsonString(group) + ", \"test\": " + jsonString(test)) {}

Row& Row::add(std::string_view key, std::string_view text) {
  json_ += ", " + jsonString(key) + ": " + jsonString(text);
  return *this;
}

Row& Row::addNumber(std::string_view key, double value) {
  char text[40];
  snprintf(text, sizeof text,
           value == std::floor(value) && std::abs(value) < 1e15 ? "%.0f" : "%.4g", value);
  json_ += ", " + jsonString(key) + ": " + text;
  return *this;
}

void Row::emit() const {
  const std::string line = json_ + "}\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = write(sink, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(2);
    sent += n;
  }
}

int runGroups(const std::vector<Group>& groups, const std::string& jsonPath,
              const std::vector<std::string>& only) {
  std::ofstream json(jsonPath);
  int bad = 0;
  for (const Group& group : groups) {
    if (!only.empty() && std::find(only.begin(), only.end(), group.name) == only.end()) continue;
    bad += !runGroup(group, json);
  }
  return bad;
}

}  // namespace litmus
