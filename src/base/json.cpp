#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace protrain {

namespace {

using Theirs = nlohmann::json;  // used for single values only: its arrays and objects allocate in their destructors

std::string spelled(const Theirs &value) { return value.dump(-1, ' ', false, Theirs::error_handler_t::replace); }

// Builds a Json value from the parser's events.
class Reader {
 public:
  Reader(const std::string &subject, const JsonLimits &limits) : subject_(subject), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() { return put({}); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string &) { return put(value); }
  bool string(const std::string &text) { return put(text); }
  bool binary(const Theirs::binary_t &) { return false; }  // JSON has no binary values
  bool start_array(std::size_t) { return open(Json::array()); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool end_array() { return close(); }
  bool end_object() {
    require_unique_keys(*open_.back().value->members());
    return close();
  }
  bool key(const std::string &text) {
    open_.back().key = text;
    return true;
  }
  bool parse_error(std::size_t, const std::string &, const Theirs::exception &error) {
    fail(Code::format, subject_, "is no JSON: {}", printable(error.what()));
  }

 private:
  struct OpenContainer {
    Json *value;  // the address stays valid, because nothing is added to the parent while this container is open
    std::string key;
  };

  bool put(Json value) {
    place(std::move(value));
    return true;
  }

  Json &place(Json value) {
    require(++values_ <= limits_.values, Code::limit, subject_, "its JSON has more than {} values", limits_.values);
    if (open_.empty()) return root_ = std::move(value);
    OpenContainer &outer = open_.back();
    if (outer.value->items() != nullptr) return outer.value->push_back(std::move(value));
    return outer.value->append(std::move(outer.key), std::move(value));
  }

  bool open(Json empty) {
    require(open_.size() < limits_.depth, Code::format, subject_, "its JSON is nested more than {} deep",
            limits_.depth);
    open_.push_back({&place(std::move(empty)), {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  void require_unique_keys(const Json::Object &members) const {
    std::vector<std::string_view> keys;
    for (const Json::Member &member : members) keys.emplace_back(member.key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    require(twice == keys.end(), Code::format, subject_, "its JSON has the key {} twice",
            twice == keys.end() ? "" : printable(*twice));
  }

  const std::string &subject_;
  const JsonLimits limits_;
  Json root_;
  std::vector<OpenContainer> open_;
  std::uint64_t values_ = 0;
};

}  // namespace

Json::Json(const Json &) = default;
Json::Json(Json &&) noexcept = default;
Json &Json::operator=(const Json &) = default;
Json &Json::operator=(Json &&) noexcept = default;
Json::~Json() = default;

Json::Json(std::initializer_list<Member> members) : value_(Object(members)) {}

const Json *Json::find(std::string_view key) const {
  const Object *object = members();
  if (object == nullptr) return nullptr;
  const auto found = std::ranges::find(*object, key, &Member::key);
  return found != object->end() ? &found->value : nullptr;
}

Json &Json::operator[](std::string_view key) {
  if (const Json *found = find(key); found != nullptr) return const_cast<Json &>(*found);
  return append(std::string(key), {});
}

Json &Json::append(std::string key, Json value) {
  if (is_null()) value_ = Object();
  return std::get<Object>(value_).emplace_back(std::move(key), std::move(value)).value;
}

Json &Json::push_back(Json item) {
  if (is_null()) value_ = Array();
  return std::get<Array>(value_).emplace_back(std::move(item));
}

std::optional<double> Json::number() const {
  return std::visit(
      [](const auto &value) -> std::optional<double> {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) return static_cast<double>(value);
        return std::nullopt;
      },
      value_);
}

std::string Json::dump(std::optional<int> indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

void Json::write(std::string &out, std::optional<int> indent, int depth) const {
  const auto line = [&](int at) {
    if (indent) out.append(1, '\n').append(static_cast<std::size_t>(*indent * at), ' ');
  };
  const auto list = [&](const auto &all, const char *brackets, const auto &each) {
    out += brackets[0];
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i > 0) out += ',';
      line(depth + 1);
      each(all[i]);
    }
    if (!all.empty()) line(depth);
    out += brackets[1];
  };
  const auto value_of = [&](const Json &value) { value.write(out, indent, depth + 1); };
  const auto member_of = [&](const Member &member) {
    out += spelled(member.key);
    out += indent ? ": " : ":";
    value_of(member.value);
  };
  std::visit(
      [&](const auto &value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::same_as<T, std::monostate>)
          out += "null";
        else if constexpr (std::same_as<T, Array>)
          list(value, "[]", value_of);
        else if constexpr (std::same_as<T, Object>)
          list(value, "{}", member_of);
        else
          out += spelled(value);
      },
      value_);
}

Json parse_json(std::string_view text, const std::string &subject, const JsonLimits &limits) {
  Reader reader(subject, limits);
  Theirs::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace protrain

fmt::appender fmt::formatter<protrain::Json>::format(const protrain::Json &json, format_context &context) const {
  return std::ranges::copy(protrain::printable(json.dump()), context.out()).out;
}
