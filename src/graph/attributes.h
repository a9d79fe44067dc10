// Attributes: the named and typed settings of a node.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/variant.h"
#include "graph/array.h"

namespace protrain::graph {

class Attribute
    : public Variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>, Array> {
 public:
  using Variant::Variant;
  // attributes.cpp defines the special members. They are large and would otherwise be compiled into every file that
  // uses nodes.
  Attribute(const Attribute &);
  Attribute(Attribute &&) noexcept;
  Attribute &operator=(const Attribute &);
  Attribute &operator=(Attribute &&) noexcept;
  ~Attribute();
};

class Attributes {
 public:
  // Sorted by name, so that print() does not depend on the order of set().
  using Items = std::map<std::string, Attribute, std::less<>>;
  struct Item {
    std::string_view key;
    Attribute value;
  };

  Attributes() = default;
  Attributes(std::initializer_list<Item> items);
  Attributes(const Attributes &);
  Attributes(Attributes &&) noexcept;
  Attributes &operator=(const Attributes &);
  Attributes &operator=(Attributes &&) noexcept;
  ~Attributes();

  bool has(std::string_view key) const;
  void set(std::string_view key, Attribute value);
  void erase(std::string_view key);
  const Items &items() const { return items_; }

  // Return the value of the attribute `key`, or the fallback if it is absent. Code::graph if it has another type.
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;
  double real(std::string_view key, double fallback) const;  // an integer is accepted
  std::string text(std::string_view key, std::string_view fallback) const;
  std::vector<std::int64_t> integers(std::string_view key) const;  // empty if absent
  std::vector<double> reals(std::string_view key) const;           // empty if absent
  const Array *array(std::string_view key) const;                  // nullptr if absent

  std::string print() const;  // "axis=1, epsilon=1e-05"; arrays as "<int64[3]>"

 private:
  Items items_;
};

}  // namespace protrain::graph
