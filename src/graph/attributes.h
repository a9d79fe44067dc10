// A node's attributes: few, named, typed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/variant.h"
#include "graph/array.h"

namespace protrain::graph {

using Attribute = Variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>, Array>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> items) : items_(items) {}

  bool has(const std::string &key) const { return items_.contains(key); }
  void set(const std::string &key, Attribute value) { items_.insert_or_assign(key, std::move(value)); }
  void erase(const std::string &key) { items_.erase(key); }
  const std::map<std::string, Attribute> &items() const { return items_; }

  // Each returns the value, or the fallback if the key is absent. Code::graph if it has another type.
  std::int64_t integer(const std::string &key, std::int64_t fallback) const;
  double real(const std::string &key, double fallback) const;  // an integer is accepted
  std::string text(const std::string &key, const std::string &fallback) const;
  std::vector<std::int64_t> integers(const std::string &key) const;  // empty if absent
  std::vector<double> reals(const std::string &key) const;           // empty if absent
  const Array *array(const std::string &key) const;                  // nullptr if absent

  std::string print() const;  // "axis=1, epsilon=1e-05"; arrays as "<int64[3]>"

 private:
  std::map<std::string, Attribute> items_;  // ordered, because printing and hashing must not depend on history
};

}  // namespace protrain::graph
