#include "backend/common/quantized.h"

#include "base/error.h"

namespace protrain::backend {

namespace {
StoredForm stored_form(const KernelRequest &request, const graph::Type &type) {
  switch (type.dtype) {
    case DType::i8:
      return StoredForm::i8;
    case DType::u8:
      return StoredForm::u8;
    case DType::i16:
      return StoredForm::i16;
    case DType::u16:
      return StoredForm::u16;
    case DType::i32:
      return StoredForm::i32;
    case DType::bf16:
      return StoredForm::bf16;
    case DType::f16:
      return StoredForm::f16;
    case DType::f32:
      return StoredForm::f32;
    default:
      fail(Code::unsupported, subject(request), "{} does not read {}", request.node.op, name_of(type.dtype));
  }
}

}  // namespace

StoredForm quantised_form(const KernelRequest &request) {
  const graph::Attributes &attributes = request.node.attributes;
  const std::string code = attributes.text("code", "");
  if (!code.empty()) return code == "nf4" ? StoredForm::nf4 : StoredForm::dynamic8;
  if (attributes.integer("bits", 8) != 4) return stored_form(request, request.inputs.at(0));
  return attributes.integer("signed", 0) != 0 ? StoredForm::i4 : StoredForm::u4;
}

QuantisedShape::QuantisedShape(const Shape &tensor) : count(element_count(tensor)), zero_outer_step(0), range{0, 0} {
  blocks.inner = count;
}

QuantisedShape::QuantisedShape(const KernelRequest &request, const Shape &tensor, std::size_t scales)
    : count(element_count(tensor)),
      blocks(graph::scale_blocks(request.node.attributes, tensor, request.inputs.at(scales).shape, subject(request))),
      zero_outer_step(blocks.outer_step),
      zero_point(static_cast<float>(request.node.attributes.integer("zero_point", 0))),
      range{static_cast<float>(request.node.attributes.integer("low", 0)),
            static_cast<float>(request.node.attributes.integer("high", 255))} {
  const graph::Type &scale = request.inputs[scales];
  require(scale.dtype == DType::f32, Code::unsupported, subject(request), "scales of {}; kernels take float32",
          name_of(scale.dtype));
  if (!has_input(request, scales + 1)) return;
  zero_form = stored_form(request, request.inputs[scales + 1]);
  if (const std::int64_t row = request.node.attributes.integer("zero_row", 0); row > 0) {
    zero_form = StoredForm::u4;
    zero_outer_step = row;
  }
}

}  // namespace protrain::backend
