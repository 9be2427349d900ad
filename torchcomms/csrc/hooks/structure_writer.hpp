#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch::comms {

/// Writes nested dictionaries and lists. In a dictionary every value follows its key.
class StructureWriter {
 public:
  virtual ~StructureWriter() = default;
  virtual void beginDict() = 0;
  virtual void endDict() = 0;
  virtual void beginList() = 0;
  virtual void endList() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void text(std::string_view value) = 0;
  virtual void integer(int64_t value) = 0;
  virtual void number(double value) = 0;
  virtual void boolean(bool value) = 0;
  virtual void none() = 0;

  void text(std::string_view name, std::string_view value) {
    key(name);
    text(value);
  }
  void integer(std::string_view name, int64_t value) {
    key(name);
    integer(value);
  }
  void boolean(std::string_view name, bool value) {
    key(name);
    boolean(value);
  }
};

class JsonWriter final : public StructureWriter {
 public:
  void beginDict() override { open('{'); }
  void endDict() override { close('}'); }
  void beginList() override { open('['); }
  void endList() override { close(']'); }
  void key(std::string_view name) override;
  void text(std::string_view value) override;
  void integer(int64_t value) override;
  void number(double value) override;
  void boolean(bool value) override;
  void none() override;
  using StructureWriter::boolean;
  using StructureWriter::integer;
  using StructureWriter::text;

  const std::string& result() const { return out_; }

 private:
  void open(char bracket);
  void close(char bracket);
  void separate();
  void quote(std::string_view value);

  std::string out_;
  bool first_ = true;  ///< nothing stands in the innermost bracket, or a key has just been written
};

/// Python's pickle, protocol 2.
class PickleWriter final : public StructureWriter {
 public:
  PickleWriter() : out_("\x80\x02", 2) {}
  void beginDict() override { out_ += "}("; }
  void endDict() override { out_ += 'u'; }
  void beginList() override { out_ += "]("; }
  void endList() override { out_ += 'e'; }
  void key(std::string_view name) override { text(name); }
  void text(std::string_view value) override;
  void integer(int64_t value) override;
  void number(double value) override;
  void boolean(bool value) override { out_ += value ? '\x88' : '\x89'; }
  void none() override { out_ += 'N'; }
  using StructureWriter::boolean;
  using StructureWriter::integer;
  using StructureWriter::text;

  std::string result() const { return out_ + '.'; }

 private:
  std::string out_;
};

}  // namespace torch::comms
