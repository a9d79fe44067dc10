// XXH3-128 checksums, as 32 hex digits. They find damage, not malice: whoever can write the file can write its checksum.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace protrain::state {

class Digest {
 public:
  Digest();
  ~Digest();
  void add(std::span<const std::byte> bytes);
  std::string finish();  // of what was added since the last finish

 private:
  struct Running;
  std::unique_ptr<Running> running_;
};

std::string digest_of(std::string_view text);

}  // namespace protrain::state
