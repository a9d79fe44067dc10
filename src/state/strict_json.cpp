#include "state/strict_json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace protrain::state {

namespace {

constexpr int kDepth = 8;  // deeper than any of our files
// Each value costs tens of bytes once parsed. A header of a million tensors has seven million.
constexpr std::uint64_t kValues = 8'000'000;

// Watches the parser: what it lets pass is bounded and unambiguous.
class Watch {
 public:
  explicit Watch(const std::string &file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, Json &parsed) {
    using Event = Json::parse_event_t;
    require(depth <= kDepth, Code::format, file_, "its JSON is nested more than {} deep", kDepth);
    require(++values_ <= kValues, Code::limit, file_, "its JSON has more than {} values", kValues);
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto &key = parsed.get_ref<const std::string &>();
      require(keys_.back().insert(key).second, Code::format, file_, "its JSON has the key {} twice", printable(key));
    }
    return true;
  }

 private:
  const std::string &file_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::uint64_t values_ = 0;
};

}  // namespace

Json parse_strictly(std::string_view text, const std::string &file) {
  Watch watch(file);
  try {
    return Json::parse(text,
                       [&](int depth, Json::parse_event_t event, Json &parsed) { return watch(depth, event, parsed); });
  } catch (const Json::exception &error) {
    fail(Code::format, file, "is no JSON: {}", printable(error.what()));
  }
}

const Json &member(const Json &object, const char *key, const std::string &file) {
  require(object.is_object(), Code::format, file, "expected an object with the key {}", key);
  const auto found = object.find(key);
  require(found != object.end(), Code::format, file, "has no {}", key);
  return *found;
}

std::string text_member(const Json &object, const char *key, const std::string &file) {
  const Json &item = member(object, key, file);
  require(item.is_string(), Code::format, file, "its {} is no text", key);
  return item.get<std::string>();
}

std::uint64_t whole(const Json &item, const char *what, const std::string &file) {
  require(item.is_number_unsigned(), Code::format, file, "its {} is no whole number from 0 to 2^64 - 1", what);
  return item.get<std::uint64_t>();
}

std::uint64_t whole_member(const Json &object, const char *key, const std::string &file) {
  return whole(member(object, key, file), key, file);
}

}  // namespace protrain::state
