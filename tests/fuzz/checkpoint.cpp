// Fuzzes checkpoints. An input has three texts: the manifest, the JSON header of the weights file, and that of the
// optimizer file. A checkpoint of two parts has two more texts, the headers of the second part's files.
//
// A checkpoint is only read if its sizes and checksums are right, so the target fills them in. It adds the manifest's
// own checksum. In the manifest it replaces "@w" by the size of the weights file and @W by its checksum. "@o" and @O
// stand for the optimizer file, and in the second part "@v" and @V for the weights, "@p" and @P for the optimizer file.
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
    .parameters = {{.name = "weight",
                    .shape = {2, 2},
                    .arrays = {{.name = "moment1", .elements = 4}, {.name = "moment2", .elements = 4}}},
                   {.name = "bias", .shape = {1}, .arrays = {}}}};

// The texts of an input, separated by NUL.
struct Texts {
  std::string manifest;
  std::vector<std::string> weights, optimizer;  // headers, one per part
};

Texts texts_of(std::string_view input) {
  std::array<std::string, 5> texts;
  std::size_t count = 0;
  for (; count < texts.size() && (count < 3 || !input.empty()); ++count) {
    const std::size_t end = std::min(input.find('\0'), input.size());
    texts[count] = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  if (count < texts.size()) return {texts[0], {texts[1]}, {texts[2]}};
  return {texts[0], {texts[1], texts[3]}, {texts[2], texts[4]}};
}

// Returns a tensor file: the header's length, the header, and `elements` floats that count up from `first`.
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

// Replaces "@x" by the size of a file and @X by its checksum, where x is `letter`.
void fill_in(std::string &manifest, char letter, const std::string &file) {
  const char upper = static_cast<char>(letter - 'a' + 'A');
  replace_all(manifest, std::string("\"@") + letter + '"', std::to_string(file.size()));
  replace_all(manifest, std::string("@") + upper, digest_of(file));
}

// The manifest with its own checksum as the last member.
std::string sealed(const std::string &manifest) {
  std::string body = manifest.substr(0, manifest.rfind('}'));
  body += ",\n \"checksum\": \"";
  return body + digest_of(body) + "\"\n}\n";
}

// Loads the checkpoint. Checks that each array arrives whole and in order. tensor_file() writes consecutive numbers,
// and the second part's files have larger numbers than the first part's. So the numbers of an array must increase. If
// there are two parts, one gap between the numbers is allowed.
void load(const state::Checkpoint &checkpoint, std::size_t parts) {
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
    std::size_t gaps = 0;
    for (std::size_t i = 1; i < elements; ++i) {
      fuzz::expect(values[i] > values[i - 1], "an array out of order");
      gaps += values[i] != values[i - 1] + 1 ? 1 : 0;
    }
    fuzz::expect(gaps < parts, "an array out of place");
    fuzz::expect((values[0] >= 100) == (key.second > 0), "weights and moments are exchanged");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const test::Scratch scratch;
  static const std::string folder = scratch / "step-0000000010";
  static const bool made = std::filesystem::create_directory(folder);
  Texts texts = texts_of(fuzz::text_of(data, size));
  const std::size_t parts = texts.weights.size();
  fuzz::expect(made, "no folder");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::size_t weights_before = 0, moments_before = 0;
  for (std::size_t n = 0; n < parts; ++n) {
    // There are 5 weights and 8 moments. If there are two parts, the first has 3 weights and 4 moments.
    const std::size_t weights = n + 1 == parts ? 5 - weights_before : 3,
                      moments = n + 1 == parts ? 8 - moments_before : 4;
    const std::string of_weights = tensor_file(texts.weights[n], weights, static_cast<float>(1 + weights_before));
    const std::string of_moments = tensor_file(texts.optimizer[n], moments, static_cast<float>(100 + moments_before));
    scratch.put("step-0000000010/" + state::weights_name(n, parts), of_weights);
    scratch.put("step-0000000010/" + state::optimizer_name(n, parts), of_moments);
    fill_in(texts.manifest, n == 0 ? 'w' : 'v', of_weights);
    fill_in(texts.manifest, n == 0 ? 'o' : 'p', of_moments);
    weights_before += weights;
    moments_before += moments;
  }
  scratch.put("step-0000000010/manifest.json", sealed(texts.manifest));
  fuzz::answer([&] {
    const auto checkpoint = state::Checkpoint::open(scratch.path());
    fuzz::expect(checkpoint.description().counters.at(state::kStep) == 10, "another step than the folder's");
    load(checkpoint, parts);
    fuzz::expect(checkpoint.description().optimizer == kWanted.optimizer, "another optimizer");
  });
  return 0;
}
