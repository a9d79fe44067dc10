// Checkpoints with arbitrary contents. The manifest and the JSON headers of both tensor files come from the input. To
// get past the checksums, the target fills in the manifest's own checksum. In the manifest it also replaces "@w" and
// "@o" by the sizes of weights and optimizer file, and @W and @O by their checksums.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "base/checksum.h"
#include "fuzz/answer.h"
#include "scratch.h"
#include "state/checkpoint.h"
#include "state/manifest.h"

using namespace protrain;

namespace {

// The state that a session expects: `weight` with four float32 elements and two moments, and `bias` with one element.
const state::Description kWanted = {
    .optimizer = "adamw",
    .counters = {{state::kStep, 10}},
    .parameters = {{.name = "weight", .shape = {2, 2}, .arrays = {"moment1", "moment2"}},
                   {.name = "bias", .shape = {1}, .arrays = {}}}};

// The parts of an input, separated by NUL.
struct Parts {
  std::string manifest, weights, optimizer;
};

Parts parts_of(std::string_view input) {
  std::array<std::string, 3> parts;
  for (std::string &part : parts) {
    const std::size_t end = std::min(input.find('\0'), input.size());
    part = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return {parts[0], parts[1], parts[2]};
}

// A tensor file: the header's length, the header, and the numbers first, first + 1, ...
std::string tensor_file(const std::string &header, std::size_t elements, float first) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += header;
  for (std::size_t i = 0; i < elements; ++i, ++first) {
    char bytes[sizeof first];
    std::memcpy(bytes, &first, sizeof first);
    file.append(bytes, sizeof bytes);
  }
  return file;
}

void replace_all(std::string &text, const std::string &from, const std::string &to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The manifest with sizes and checksums filled in, and with its own checksum as the last member.
std::string sealed(const std::string &manifest, const std::string &weights, const std::string &optimizer) {
  std::string body = manifest.substr(0, manifest.rfind('}'));
  replace_all(body, "\"@w\"", std::to_string(weights.size()));
  replace_all(body, "\"@o\"", std::to_string(optimizer.size()));
  replace_all(body, "@W", digest_of(weights));
  replace_all(body, "@O", digest_of(optimizer));
  body += ",\n \"checksum\": \"";
  return body + digest_of(body) + "\"\n}\n";
}

// Loads the checkpoint. Checks that each array arrives whole and in order, and that the numbers of an array are
// consecutive, as tensor_file() writes them.
void load(const state::Checkpoint &checkpoint) {
  std::map<std::pair<std::size_t, std::size_t>, std::string> arrays;
  checkpoint.load(kWanted, [&](std::size_t parameter, std::size_t array, std::uint64_t offset, auto bytes) {
    std::string &to = arrays[{parameter, array}];
    fuzz::expect(offset == to.size(), "bytes that are not the next ones");
    to.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  });
  fuzz::expect(arrays.size() == 4, "another number of arrays than parameters and moments");
  for (const auto &[key, bytes] : arrays) {
    const std::size_t elements = key.first == 0 ? 4 : 1;
    fuzz::expect(bytes.size() == elements * sizeof(float), "an array of another size");
    std::vector<float> values(elements);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (std::size_t i = 1; i < elements; ++i) fuzz::expect(values[i] == values[i - 1] + 1, "an array out of place");
    fuzz::expect((values[0] >= 100) == (key.second > 0), "weights and moments are exchanged");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const test::Scratch scratch;
  static const std::string folder = scratch / "step-0000000010";
  static const bool made = std::filesystem::create_directory(folder);
  const Parts parts = parts_of(fuzz::text_of(data, size));
  const std::string weights = tensor_file(parts.weights, 5, 1), optimizer = tensor_file(parts.optimizer, 8, 100);
  fuzz::expect(made, "no folder");
  scratch.put("step-0000000010/weights.safetensors", weights);
  scratch.put("step-0000000010/optimizer.safetensors", optimizer);
  scratch.put("step-0000000010/manifest.json", sealed(parts.manifest, weights, optimizer));
  fuzz::answer([&] {
    const auto checkpoint = state::Checkpoint::open(scratch.path());
    fuzz::expect(checkpoint.description().counters.at(state::kStep) == 10, "another step than the folder's");
    load(checkpoint);
    fuzz::expect(checkpoint.description().optimizer == kWanted.optimizer, "another optimizer");
  });
  return 0;
}
