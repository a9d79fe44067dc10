#include "onnx_import/sparse.h"

#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/names.h"

namespace protrain::onnx_import {

namespace {

// The limit for the bytes of all dense tensors that are made: kAlwaysMade, plus kMadePerByte for each byte of the
// sparse tensors' values and indices in the file.
constexpr std::uint64_t kAlwaysMade = std::uint64_t{64} << 20, kMadePerByte = 64;
constexpr std::int32_t kTensorAttribute = 4;  // ONNX's number of this kind

Shape shape_of(const SparseTensorProto &sparse, const std::string &subject) {
  const Shape shape(sparse.dims().begin(), sparse.dims().end());
  require(shape.size() <= kMaxRank, Code::limit, subject, "rank {}; at most {} is allowed", shape.size(), kMaxRank);
  for (const std::int64_t dim : shape) require(dim >= 0, Code::shape, subject, "a sparse tensor of {}", to_text(shape));
  return shape;
}

// Returns the place of each value in a dense tensor of `shape`. `indices` holds either these places themselves, or a
// row of coordinates for each value. ONNX requires that the places ascend.
std::vector<std::int64_t> places_of(const graph::Array &indices, std::int64_t count, const Shape &shape,
                                    const std::string &subject) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const bool linear = indices.shape() == Shape{count}, rows = indices.shape() == Shape{count, rank};
  require(indices.dtype() == DType::i64 && (linear || rows), Code::shape, subject,
          "indices of {} for {} values of a sparse tensor of {}", to_text(indices.type()), count, to_text(shape));
  const std::vector<std::int64_t> given = indices.integers();
  std::vector<std::int64_t> places(static_cast<std::size_t>(count), 0);
  const auto require_index = [&](std::int64_t index, std::int64_t end) {
    require(index >= 0 && index < end, Code::shape, subject, "index {} of a sparse tensor of {}", index,
            to_text(shape));
  };
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (linear) {
      places[i] = given[i];
    } else {
      for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        const std::int64_t index = given[i * shape.size() + axis];
        require_index(index, shape[axis]);
        places[i] = places[i] * shape[axis] + index;
      }
    }
    require_index(places[i], element_count(shape));
    require(i == 0 || places[i - 1] < places[i], Code::format, subject, "indices {} and {} are not in ascending order",
            i - 1, i);
  }
  return places;
}

// The sparse tensors of one model.
class SparseTensors {
 public:
  explicit SparseTensors(const Storage &storage) : storage_(storage) {}

  // Replaces the sparse tensors of a graph and of the bodies in it.
  void replace(GraphProto &graph) {
    for (const SparseTensorProto &sparse : graph.sparse_initializer()) {
      check_name(sparse.values().name(), storage_.model().path(), "sparse initializer");
      make_dense(sparse, sparse.values().name(), *graph.add_initializer());
    }
    graph.clear_sparse_initializer();
    for (NodeProto &node : *graph.mutable_node())
      for (AttributeProto &attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) replace(*attribute.mutable_g());
        if (node.op_type() == "Constant" && attribute.has_sparse_tensor()) replace(attribute, printable(node.name()));
      }
  }

 private:
  void replace(AttributeProto &attribute, const std::string &subject) {
    make_dense(attribute.sparse_tensor(), subject, *attribute.mutable_t());
    attribute.clear_sparse_tensor();
    attribute.set_name("value");
    attribute.set_type(kTensorAttribute);
  }
  void make_dense(const SparseTensorProto &sparse, const std::string &subject, TensorProto &dense);

  const Storage &storage_;
  std::uint64_t held_ = 0, made_ = 0;  // bytes of the sparse and of the dense tensors so far
};

void SparseTensors::make_dense(const SparseTensorProto &sparse, const std::string &subject, TensorProto &dense) {
  const Tensor values = parse_tensor(sparse.values(), subject), indices = parse_tensor(sparse.indices(), subject);
  require(values.type.shape.size() == 1 && !values.four_bits, Code::unsupported, subject,
          "the values of a sparse tensor are {}; expected a list of whole bytes", to_text(values.type));
  const Shape shape = shape_of(sparse, subject);
  const std::uint64_t size = size_of(values.type.dtype), bytes = byte_count(values.type.dtype, shape);
  held_ = checked_add(held_, checked_add(values.bytes, indices.bytes));
  made_ = checked_add(made_, bytes);
  require(made_ <= kAlwaysMade || (made_ - kAlwaysMade) / kMadePerByte <= held_, Code::limit, subject,
          "sparse tensors of {} bytes become {} bytes; store such large ones densely", held_, made_);
  require_room(made_, subject);
  const std::vector<std::int64_t> places = places_of(storage_.load(indices), values.type.shape[0], shape, subject);
  const graph::Array elements = storage_.load(values);
  std::string all(bytes, '\0');
  for (std::size_t i = 0; i < places.size(); ++i)
    std::memcpy(all.data() + static_cast<std::uint64_t>(places[i]) * size, elements.bytes() + i * size, size);
  dense.set_name(sparse.values().name());
  dense.set_data_type(sparse.values().data_type());
  for (const std::int64_t dim : shape) dense.add_dims(dim);
  dense.set_raw_data(std::move(all));
}

}  // namespace

void make_dense(ModelProto &model, const Storage &storage) { SparseTensors(storage).replace(*model.mutable_graph()); }

}  // namespace protrain::onnx_import
