// The text ends in a line with the checksum of everything before the checksum's digits. Later versions must keep that
// line: without it this version takes a manifest for damaged.
#include "state/manifest.h"

#include <algorithm>
#include <string_view>

#include "base/checksum.h"
#include "base/error.h"
#include "base/text.h"
#include "state/strict_json.h"

namespace protrain::state {

namespace {

constexpr std::string_view kFormat = "protrain checkpoint";
constexpr std::string_view kHead = "{\n \"format\": \"protrain checkpoint\",";
constexpr std::string_view kTail = ",\n \"checksum\": \"", kEnd = "\"\n}\n";
constexpr std::size_t kDigits = 32;

Json json_of(const FileRecord &record) { return {{"bytes", record.bytes}, {"pieces", record.pieces}}; }

void verify_checksum(const std::string &text, const std::string &file) {
  const std::size_t after = kDigits + kEnd.size();
  const std::string_view all = text;
  const std::string_view body = all.substr(0, all.size() - std::min(after, all.size()));
  const bool closed = body.ends_with(kTail) && all.ends_with(kEnd);
  const bool begins_as_ours = all.substr(0, kHead.size()) == kHead.substr(0, all.size());
  require(closed || begins_as_ours, Code::format, file, "not the manifest of a checkpoint");
  require(closed && all.substr(body.size(), kDigits) == digest_of(body), Code::corrupt, file,
          "does not match its own checksum; the file was damaged or edited");
}

FileRecord record_of(const Json &files, const char *name, const std::string &file) {
  const Json &about = member(files, name, file);
  const Json::Array &pieces = items(member(about, "pieces", file), "the checksums of a file", file);
  FileRecord record{.bytes = whole_member(about, "bytes", file), .pieces = {}};
  require(pieces.size() == piece_count(record.bytes), Code::format, file,
          "the number of checksums of {} does not fit its {} bytes", name, record.bytes);
  for (const Json &piece : pieces) {
    require(piece.text() != nullptr, Code::format, file, "a checksum of {} is no text", name);
    record.pieces.push_back(*piece.text());
  }
  return record;
}

}  // namespace

std::string manifest_text(const Manifest &manifest) {
  const Json json = {
      {"format", kFormat},
      {"version", kFormatVersion},
      {"optimizer", manifest.optimizer},
      {"counters", manifest.counters},
      {"piece_bytes", kPieceBytes},
      {"files", {{kWeightsName, json_of(manifest.weights)}, {kOptimizerName, json_of(manifest.optimizer_state)}}}};
  std::string text = json.dump(1);
  text.resize(text.size() - std::string_view("\n}").size());
  text += kTail;
  return text + digest_of(text) + std::string(kEnd);
}

Manifest parse_manifest(const std::string &text, const std::string &file) {
  verify_checksum(text, file);
  const Json json = parse_strictly(text, file);
  require(text_member(json, "format", file) == kFormat, Code::format, file, "not the manifest of a checkpoint");
  const std::uint64_t version = whole_member(json, "version", file);
  require(version <= kFormatVersion, Code::version, file, "is of version {}; this library reads up to {}", version,
          kFormatVersion);
  require(version > 0 && whole_member(json, "piece_bytes", file) == kPieceBytes, Code::format, file,
          "is of version {} with a piece size that this version does not have", version);
  const Json &files = member(json, "files", file), &counters = member(json, "counters", file);
  require(counters.members() != nullptr && files.members() != nullptr && files.members()->size() == 2, Code::format,
          file, "its counters are no object, or it has other files than {} and {}", kWeightsName, kOptimizerName);
  Manifest manifest{.optimizer = text_member(json, "optimizer", file),
                    .counters = {},
                    .weights = record_of(files, kWeightsName, file),
                    .optimizer_state = record_of(files, kOptimizerName, file)};
  for (const auto &[name, value] : *counters.members()) manifest.counters[name] = whole(value, "counter", file);
  return manifest;
}

}  // namespace protrain::state
