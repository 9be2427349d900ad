#include "torchcomms/csrc/nccl_plugin/table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "ctran/base/checked.h"
#include "torchcomms/csrc/nccl_plugin/names.h"

namespace torchcomms::nccl_plugin {
namespace {

constexpr size_t kMostRows = 10'000;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string::npos
             ? std::string()
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

[[noreturn]] void reject(const std::string& field, const std::string& expected) {
  throw std::runtime_error("'" + ctran::printable(field) + "' is not " + expected);
}

/// A name as NCCL's, or ours: all_reduce, AllReduce and allreduce are one.
template <size_t N>
int named(const std::string& field, const std::array<std::string_view, N>& names,
          const char* what) {
  const auto plain = [](std::string_view text) {
    std::string out = lower(std::string(text));
    std::erase(out, '_');
    return out;
  };
  std::string all;
  for (size_t i = 0; i < N; ++i) {
    if (plain(field) == plain(names[i])) return static_cast<int>(i);
    all += (i == 0 ? "" : ", ") + lower(std::string(names[i]));
  }
  reject(field, std::string(what) + " (" + all + ")");
}

bool isAny(const std::string& field) { return field.empty() || field == "-1"; }

int64_t number(const std::string& field, int64_t most) {
  int64_t value = -1;
  const auto end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error != std::errc() || stop != end || value < 0 || value > most) {
    reject(field, "a number from 0 to " + std::to_string(most));
  }
  return value;
}

}  // namespace

Table Table::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) throw std::runtime_error(path + " cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  return parse(text, path);
}

Table Table::parse(const std::string& text, const std::string& name) {
  if (text.size() > kMostBytes) throw std::runtime_error(name + " is larger than 1 MB");
  Table table;
  std::istringstream lines(text);
  std::string line;
  for (int at = 1; std::getline(lines, line); ++at) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    try {
      if (table.rows_.size() == kMostRows) throw std::runtime_error("there are too many lines");
      table.rows_.push_back(row(line));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(name + ":" + std::to_string(at) + ": " + error.what());
    }
  }
  return table;
}

Table::Row Table::row(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream parts(line);
  for (std::string field; std::getline(parts, field, ',');) fields.push_back(trimmed(field));
  if (fields.size() < 5 || fields.size() > 10) {
    throw std::runtime_error(
        "there are " + std::to_string(fields.size()) +
        " fields instead of 5 to 10: collective, least bytes, most bytes, algorithm, protocol, "
        "channels, hosts, ranks, calls in a group, registered");
  }
  fields.resize(10);
  const auto any = [&](size_t at, int64_t most) {
    return isAny(fields[at]) ? -1 : number(fields[at], most);
  };
  Row row{};
  row.collective = named(fields[0], kFunctions, "a collective");
  row.least = isAny(fields[1]) ? 0 : static_cast<uint64_t>(number(fields[1], INT64_MAX));
  row.most = isAny(fields[2]) ? UINT64_MAX : static_cast<uint64_t>(number(fields[2], INT64_MAX));
  if (row.most < row.least) reject(fields[2], "at least " + fields[1]);
  row.choice.algorithm = isAny(fields[3]) ? -1 : named(fields[3], kAlgorithms, "an algorithm");
  row.choice.protocol = isAny(fields[4]) ? -1 : named(fields[4], kProtocols, "a protocol");
  row.choice.channels = static_cast<int>(any(5, 64));
  row.nodes = any(6, INT32_MAX);
  row.ranks = any(7, INT32_MAX);
  row.pipeOps = any(8, INT32_MAX);
  row.registered = any(9, 1);
  return row;
}

Choice Table::find(const Question& q) const {
  const auto fits = [](int64_t wanted, int64_t is) { return wanted < 0 || wanted == is; };
  for (const Row& row : rows_) {
    if (row.collective == q.collective && row.least <= q.bytes && q.bytes <= row.most &&
        fits(row.nodes, static_cast<int64_t>(q.nodes)) &&
        fits(row.ranks, static_cast<int64_t>(q.ranks)) && fits(row.pipeOps, q.pipeOps) &&
        (q.registered < 0 || fits(row.registered, q.registered))) {
      return row.choice;
    }
  }
  return {};
}

}  // namespace torchcomms::nccl_plugin
