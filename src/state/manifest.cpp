// The last line of a manifest holds the checksum of all text before the checksum's digits. Later versions must keep
// this line, because this version reports a manifest without it as damaged.
#include "state/manifest.h"

#include <algorithm>
#include <string_view>

#include "base/checksum.h"
#include "base/error.h"
#include "base/text.h"
#include "state/strict_json.h"
#include "state/tensor_file.h"

namespace protrain::state {

namespace {

constexpr std::string_view kFormat = "protrain checkpoint";
constexpr std::string_view kHead = "{\n \"format\": \"protrain checkpoint\",";
constexpr std::string_view kTail = ",\n \"checksum\": \"", kEnd = "\"\n}\n";
constexpr std::size_t kDigits = 32;

std::string part_name(const char *kind, std::size_t part, std::size_t parts) {
  return parts == 1 ? fmt::format("{}.safetensors", kind)
                    : fmt::format("{}-{:05}-of-{:05}.safetensors", kind, part + 1, parts);
}

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

FileRecord record_of(const Json &files, const std::string &name, const std::string &file) {
  const Json &about = member(files, name.c_str(), file);
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

// Returns the number of parts: 1 in version 1, otherwise as the manifest says.
std::uint64_t part_count(const Json &json, std::uint64_t version, const std::string &file) {
  if (version == 1) return 1;
  const std::uint64_t parts = whole_member(json, "parts", file);
  require(parts > 1, Code::format, file, "is of version {} and has {} parts", version, parts);
  require(parts <= kMostParts, Code::limit, file, "has {} parts; none has over {}", parts, kMostParts);
  return parts;
}

std::map<std::string, Shape> shapes_of(const Json &json, const std::string &file) {
  const Json &shapes = member(json, "shapes", file);
  require(shapes.members() != nullptr, Code::format, file, "its shapes are no object");
  std::map<std::string, Shape> by_name;
  for (const auto &[name, dims] : *shapes.members()) {
    Shape &shape = by_name[name] = shape_of(dims, "one of its shapes", file);
    require(tensor_bytes(shape).has_value(), Code::format, file, "{} has shape {}, beyond 64 bits", printable(name),
            to_text(shape));
  }
  return by_name;
}

}  // namespace

std::string weights_name(std::size_t part, std::size_t parts) { return part_name("weights", part, parts); }
std::string optimizer_name(std::size_t part, std::size_t parts) { return part_name("optimizer", part, parts); }

const Shape *Manifest::shape_of(const std::string &parameter) const {
  const auto found = shapes.find(parameter);
  return found == shapes.end() ? nullptr : &found->second;
}

std::string manifest_text(const Manifest &manifest) {
  const std::size_t parts = manifest.parts.size();
  Json files = Json::object();
  for (std::size_t p = 0; p < parts; ++p) {
    files.append(weights_name(p, parts), json_of(manifest.parts[p].weights));
    files.append(optimizer_name(p, parts), json_of(manifest.parts[p].optimizer_state));
  }
  Json json = {{"format", kFormat},
               {"version", parts == 1 ? 1 : kFormatVersion},
               {"optimizer", manifest.optimizer},
               {"counters", manifest.counters},
               {"piece_bytes", kPieceBytes}};
  if (parts > 1) {
    json.append("parts", parts);
    json.append("shapes", manifest.shapes);
  }
  json.append("files", std::move(files));
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
  const std::uint64_t parts = part_count(json, version, file);
  require(counters.members() != nullptr, Code::format, file, "its counters are no object");
  require(files.members() != nullptr && files.members()->size() == 2 * parts, Code::format, file,
          "it has other files than {} and {}", weights_name(0, parts), optimizer_name(0, parts));
  Manifest manifest{.optimizer = text_member(json, "optimizer", file), .counters = {}, .parts = {}, .shapes = {}};
  for (const auto &[name, value] : *counters.members()) manifest.counters[name] = whole(value, "counter", file);
  for (std::size_t p = 0; p < parts; ++p)
    manifest.parts.push_back({.weights = record_of(files, weights_name(p, parts), file),
                              .optimizer_state = record_of(files, optimizer_name(p, parts), file)});
  if (parts > 1) manifest.shapes = shapes_of(json, file);
  return manifest;
}

std::string part_text(const PartRecord &part) {
  return Json{{"weights", json_of(part.weights)}, {"optimizer", json_of(part.optimizer_state)}}.dump();
}

PartRecord parse_part(const std::string &text) {
  const std::string source = "a part of a checkpoint";
  const Json json = parse_strictly(text, source);
  return {.weights = record_of(json, "weights", source), .optimizer_state = record_of(json, "optimizer", source)};
}

}  // namespace protrain::state
