// Address: where rank 0 listens, when the ranks meet by host and port.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace protrain::comm {

struct Address {
  std::string host;
  std::string port;  // 1 ... 65535, in decimal
};

// Parses "HOST:PORT". A host that contains colons stands in brackets: "[::1]:29500". Returns an empty optional for any
// other text.
inline std::optional<Address> address_of(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::optional<std::int64_t> port = parse_integer(text.substr(colon + 1));
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return std::nullopt;
  if (host.empty() || !port || *port < 1 || *port > 65535) return std::nullopt;
  if (!std::ranges::all_of(host, [](char c) { return c > ' ' && c < 0x7F; })) return std::nullopt;
  return Address{std::string(host), std::to_string(*port)};
}

}  // namespace protrain::comm
