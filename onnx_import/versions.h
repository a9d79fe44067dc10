// Versions of the format and of operators that this library reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Checks ir_version and opset_import and returns the version of the default domain. Code::version if a version is
// missing, or if this library does not read it. Code::format if a domain has two versions.
std::int64_t check_versions(const ModelProto &model, const std::string &path);

// True for "" and its other spelling "ai.onnx".
inline bool is_default_domain(const std::string &domain) { return domain.empty() || domain == "ai.onnx"; }

using OpsetImports = google::protobuf::RepeatedPtrField<OpsetImport>;
// Returns the version of `domain` among the imports, if the domain is there. Code::limit if there are too many imports.
std::optional<std::int64_t> imported(const OpsetImports &imports, const std::string &domain,
                                     const std::string &subject);

// Throws Code::version for a version of the default domain that this library does not read.
void check_opset(std::int64_t version, const std::string &subject);
// Like check_opset(), for a function or for a model that defines functions. Accepts fewer of the old versions than
// check_opset() does.
void check_opset_with_functions(std::int64_t version, const std::string &subject);

// Checks that the file's opset has an operator of the default domain. Code::unsupported if the opset does not have the
// operator yet, or has it no longer. Code::version if the operator was changed in an opset
// that this library does not support yet, and the file uses that opset or a later one.
void check_operator(const std::string &op, std::int64_t opset, const std::string &node);

}  // namespace protrain::onnx_import
