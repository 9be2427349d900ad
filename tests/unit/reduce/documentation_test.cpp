// The tables in docs/ are written from what the code says; if this fails, paste what it prints.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"

namespace ctran {
namespace {

std::string page(const std::string& name) {
  const auto root = std::filesystem::path(__FILE__).parent_path() / "../../..";
  std::ifstream file(root / "docs" / name);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string padded(std::string text, size_t width) {
  text.resize(width, ' ');
  return text;
}

// One row per type that can be reduced, one column per operation.
std::string tableOfReductions() {
  constexpr size_t kFirst = 15;
  std::string table = "| " + padded("", kFirst) + " |";
  std::string rule = "|" + std::string(kFirst + 2, '-') + "|";
  for (int k = 0; k < kReduceKindCount; ++k) {
    const std::string name(nameOf(static_cast<ReduceKind>(k)));
    table += " " + name + " |";
    rule += ":" + std::string(name.size(), '-') + ":|";
  }
  table += "\n" + rule + "\n";
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    if (!isSupported(ReduceKind::Sum, type)) continue;
    table += "| " + padded("`" + std::string(nameOf(type)) + "`", kFirst) + " |";
    for (int k = 0; k < kReduceKindCount; ++k) {
      const auto kind = static_cast<ReduceKind>(k);
      const size_t width = nameOf(kind).size();
      table += " " + padded(isSupported(kind, type) ? "yes" : "", width) + " |";
    }
    table += "\n";
  }
  return table;
}

TEST(Documentation, ListsExactlyTheReductionsThereAre) {
  const std::string text = page("reductions.md");
  ASSERT_FALSE(text.empty()) << "docs/reductions.md is not where the sources are";
  const std::string table = tableOfReductions();
  EXPECT_NE(text.find("\n\n" + table + "\n"), std::string::npos) << "It should say:\n\n" << table;
}

}  // namespace
}  // namespace ctran
