// Options: keys and values as text, checked against one table. Help, the command line and the docs use the same table.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::draft {

enum class OptionType : std::uint8_t {
  text,
  integer,
  real,
  bytes,
  choice,
  list,
  words,  // a list whose items are lists of choices: "norms,biases"
};

struct OptionRow {
  std::string_view key;
  OptionType type;
  std::string_view fallback;  // as text; "" = not set
  // The values that are allowed. For numbers: conditions that must all hold (">= 0, < 1"). For choices and words: globs
  // ("cpu|cuda:*"). For all other types: the form of a value ("NAME=N").
  std::string_view range;
  std::string_view sentence;
};

std::span<const OptionRow> option_table();

class Options {
 public:
  // Checks key, type and range immediately. Code::arg if a check fails. The error for an unknown key names the nearest
  // key. For a list, the value is added to the earlier values. For any other key, it replaces the earlier value.
  void set(const std::string &key, const std::string &value);
  void clear(const std::string &key);  // as if it had never been set
  // Returns the value, or its default, or "" if there is neither. The items of a list are joined by newlines.
  std::string get(const std::string &key) const;
  bool is_set(const std::string &key) const;

  std::int64_t integer(const std::string &key) const;
  double real(const std::string &key) const;
  std::uint64_t bytes(const std::string &key) const;  // 0 if not set
  std::vector<std::string> list(const std::string &key) const;

  static std::string help();  // the table as a JSON array: key, type, default, range, sentence

 private:
  std::map<std::string, std::vector<std::string>> set_;
};

}  // namespace protrain::draft
