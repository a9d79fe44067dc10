// A mutator for JSON inputs. It exchanges, repeats and removes values, and copies values from another input, so most
// results are JSON too. An input is one JSON text, or several separated by NUL.
#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "fuzz/answer.h"

using protrain::Json;

namespace {

using JsonTexts = std::vector<std::string>;

JsonTexts split(std::string_view input) {
  JsonTexts texts;
  for (std::size_t end; (end = input.find('\0')) != input.npos; input.remove_prefix(end + 1))
    texts.emplace_back(input.substr(0, end));
  texts.emplace_back(input);
  return texts;
}

std::string joined(const JsonTexts &texts) {
  std::string input = texts[0];
  for (std::size_t i = 1; i < texts.size(); ++i) (input += '\0') += texts[i];
  return input;
}

void list(const Json &value, std::vector<const Json *> &found) {
  found.push_back(&value);
  if (const auto *items = value.items())
    for (const Json &item : *items) list(item, found);
  if (const auto *members = value.members())
    for (const Json::Member &member : *members) list(member.value, found);
}

Json object_of(const Json::Object &members) {
  Json made = Json::object();
  for (const Json::Member &member : members) made[member.key] = member.value;
  return made;
}

// A copy of `value` in which `fresh` replaces `old`. `old` points into `value`.
Json replaced(const Json &value, const Json *old, const Json &fresh) {
  if (&value == old) return fresh;
  if (const auto *items = value.items()) {
    Json::Array made;
    for (const Json &item : *items) made.push_back(replaced(item, old, fresh));
    return made;
  }
  if (const auto *members = value.members()) {
    Json made = Json::object();
    for (const Json::Member &member : *members) made.append(member.key, replaced(member.value, old, fresh));
    return made;
  }
  return value;
}

class Mutation {
 public:
  explicit Mutation(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }

  // Makes one to three changes to `text`. New values come from `donor`, which may be the same text.
  std::string of(const std::string &text, const std::string &donor) {
    if (below(16) == 0) return with_other_byte(text);
    try {
      Json value = protrain::parse_json(text, "");
      const Json from = protrain::parse_json(donor, "");
      for (std::size_t n = 1 + below(3); n > 0; --n) {
        const Json *old = any_in(value);
        value = replaced(value, old, changed(*old, from));
      }
      return value.dump();
    } catch (const protrain::Error &) {
      return with_other_byte(text);
    }
  }

 private:
  std::string with_other_byte(std::string text) {
    if (text.empty()) return "{}";
    text[below(text.size())] = static_cast<char>(below(256));
    return text;
  }

  const Json *any_in(const Json &value) {
    std::vector<const Json *> all;
    list(value, all);
    // Half of the draws choose among the first four values. These are near the root, and a reader checks mostly keys
    // near the root.
    return all[below(2) == 0 ? below(all.size()) : below(std::min<std::size_t>(all.size(), 4))];
  }

  Json changed(const Json &value, const Json &donor) {
    if (const auto *items = value.items(); items != nullptr && below(4) != 0) return changed(*items, donor);
    if (const auto *members = value.members(); members != nullptr && below(8) != 0) return changed(*members, donor);
    if (const std::uint64_t *whole = value.whole(); whole != nullptr && below(2) == 0) return near(*whole);
    if (const auto number = value.number(); number && below(2) == 0) return *number * (below(2) == 0 ? 1e-3 : 1e3);
    return below(2) == 0 ? telling() : *any_in(donor);
  }

  Json changed(Json::Array items, const Json &donor) {
    if (items.empty()) return Json::Array{*any_in(donor)};
    const std::size_t at = below(items.size());
    switch (below(3)) {
      case 0:
        items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        items.push_back(items[at]);
        break;
      default:
        std::swap(items[at], items[below(items.size())]);
    }
    return items;
  }

  Json changed(Json::Object members, const Json &donor) {
    if (!members.empty() && below(3) == 0) {
      members.erase(members.begin() + static_cast<std::ptrdiff_t>(below(members.size())));
      return object_of(members);
    }
    std::vector<const Json *> sources;
    list(donor, sources);
    std::erase_if(sources, [](const Json *from) { return from->members() == nullptr || from->members()->empty(); });
    if (!sources.empty()) {
      const Json::Object &from = *sources[below(sources.size())]->members();
      members.push_back(from[below(from.size())]);
    }
    return object_of(members);
  }

  Json near(std::uint64_t whole) {
    const std::uint64_t choices[] = {whole + 1, whole - 1, whole * 2, whole / 2, 1ull << below(64)};
    return choices[below(std::size(choices))];
  }

  Json telling() {
    static const Json kTelling[] = {
        Json(),    0,          1,    -1,     2,      4096,       1ull << 53,    INT64_MAX,
        INT64_MIN, UINT64_MAX, 0.5,  1e-308, 1e308,  true,       false,         "",
        "1KiB",    "16EiB",    "-1", "host", "none", "\xff\x01", Json::array(), Json::object()};
    return kTelling[below(std::size(kTelling))];
  }

  std::mt19937 random_;
};

std::size_t put(const std::string &input, std::uint8_t *out, std::size_t most) {
  const std::size_t size = std::min(input.size(), most);
  std::copy_n(input.begin(), size, reinterpret_cast<char *>(out));
  return size;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size, std::size_t most, unsigned seed) {
  Mutation chance(seed);
  JsonTexts texts = split(protrain::fuzz::text_of(data, size));
  std::string &text = texts[chance.below(texts.size())];
  text = chance.of(text, text);
  return put(joined(texts), data, most);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t *data, std::size_t size, const std::uint8_t *other,
                                                 std::size_t other_size, std::uint8_t *out, std::size_t most,
                                                 unsigned seed) {
  Mutation chance(seed);
  JsonTexts texts = split(protrain::fuzz::text_of(data, size));
  const JsonTexts donors = split(protrain::fuzz::text_of(other, other_size));
  const std::size_t at = chance.below(texts.size());
  texts[at] = chance.of(texts[at], donors[std::min(at, donors.size() - 1)]);
  return put(joined(texts), out, most);
}
