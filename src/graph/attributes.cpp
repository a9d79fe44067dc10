// Attributes: typed access, and their readable form.
#include "graph/attributes.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace protrain::graph {

namespace {

template <typename T>
const T *get(const Attributes::Items &items, std::string_view key) {
  const auto found = items.find(key);
  if (found == items.end()) return nullptr;
  const T *value = std::get_if<T>(&found->second);
  require(value != nullptr, Code::graph, "", "attribute {} has another type than its operator expects", key);
  return value;
}

struct AttributeText {
  std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string &v) const { return v; }
  std::string operator()(const std::vector<std::int64_t> &v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const std::vector<double> &v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const Array &v) const { return "<" + to_text(v.type()) + ">"; }
};

}  // namespace

Attribute::Attribute(const Attribute &) = default;
Attribute::Attribute(Attribute &&) noexcept = default;
Attribute &Attribute::operator=(const Attribute &) = default;
Attribute &Attribute::operator=(Attribute &&) noexcept = default;
Attribute::~Attribute() = default;

Attributes::Attributes(std::initializer_list<Item> items) {
  for (const Item &item : items) items_.emplace(item.key, item.value);
}
Attributes::Attributes(const Attributes &) = default;
Attributes::Attributes(Attributes &&) noexcept = default;
Attributes &Attributes::operator=(const Attributes &) = default;
Attributes &Attributes::operator=(Attributes &&) noexcept = default;
Attributes::~Attributes() = default;

bool Attributes::has(std::string_view key) const { return items_.contains(key); }

void Attributes::set(std::string_view key, Attribute value) {
  const auto found = items_.find(key);
  if (found == items_.end())
    items_.emplace(key, std::move(value));
  else
    found->second = std::move(value);
}

void Attributes::erase(std::string_view key) {
  if (const auto found = items_.find(key); found != items_.end()) items_.erase(found);
}

std::int64_t Attributes::integer(std::string_view key, std::int64_t fallback) const {
  const auto *value = get<std::int64_t>(items_, key);
  return value ? *value : fallback;
}

double Attributes::real(std::string_view key, double fallback) const {
  const auto found = items_.find(key);
  if (found != items_.end() && std::holds_alternative<std::int64_t>(found->second))
    return static_cast<double>(std::get<std::int64_t>(found->second));
  const auto *value = get<double>(items_, key);
  return value ? *value : fallback;
}

std::string Attributes::text(std::string_view key, std::string_view fallback) const {
  const auto *value = get<std::string>(items_, key);
  return std::string(value ? std::string_view(*value) : fallback);
}

std::vector<std::int64_t> Attributes::integers(std::string_view key) const {
  const auto *value = get<std::vector<std::int64_t>>(items_, key);
  return value ? *value : std::vector<std::int64_t>{};
}

std::vector<double> Attributes::reals(std::string_view key) const {
  const auto *value = get<std::vector<double>>(items_, key);
  return value ? *value : std::vector<double>{};
}

const Array *Attributes::array(std::string_view key) const { return get<Array>(items_, key); }

std::string Attributes::print() const {
  std::string out;
  for (const auto &[key, value] : items_) {
    if (!out.empty()) out += ", ";
    out += key + "=" + std::visit(AttributeText{}, value);
  }
  return out;
}

}  // namespace protrain::graph
