// Matrix products. Our MatMul also transposes, scales and adds a bias or a whole matrix, so that ONNX's MatMul, Gemm
// and the Transposes around them become one operator.
#include "ops/element_walk.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;
using Integers = std::vector<std::int64_t>;

bool flag(const Node &node, const char *name) { return node.attributes.integer(name, 0) != 0; }

// y (..., M, N) = alpha op(a) op(b) [+ c], with op(a) (..., M, K) and op(b) (..., K, N). op transposes the last two
// axes if its flag is set. c is a bias (N), or has y's shape. ONNX's MatMul also takes vectors: (K) means (1, K) as a,
// and (K, 1) as b.
struct Product {
  Product(const Node &node, Shape a_shape, Shape b_shape) : a(std::move(a_shape)), b(std::move(b_shape)) {
    const std::string &subject = node.name;
    require(!a.empty() && !b.empty(), Code::shape, subject, "MatMul takes no scalars");
    a_vector = a.size() == 1;
    b_vector = b.size() == 1;
    if (a_vector) a.insert(a.begin(), 1);
    if (b_vector) b.push_back(1);
    m = a[a.size() - (flag(node, "trans_a") ? 1 : 2)];
    k = a[a.size() - (flag(node, "trans_a") ? 2 : 1)];
    n = b[b.size() - (flag(node, "trans_b") ? 2 : 1)];
    const std::int64_t inner = b[b.size() - (flag(node, "trans_b") ? 1 : 2)];
    require(inner == k, Code::shape, subject, "{} and {} cannot be multiplied: {} is not {}", to_text(a), to_text(b), k,
            inner);
    batch = broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2), subject);
  }
  Shape shape() const {
    Shape y = batch;
    if (!a_vector) y.push_back(m);
    if (!b_vector) y.push_back(n);
    return y;
  }

  Shape a, b, batch;
  bool a_vector, b_vector;
  std::int64_t m, n, k;
};

std::vector<Type> infer_matmul(const NodeTypes &types) {
  const Type &a = types.input(0), &b = types.input(1);
  require(a.dtype == b.dtype && a.dtype != DType::boolean, Code::type, types.subject(),
          "{} and {} cannot be multiplied", name_of(a.dtype), name_of(b.dtype));
  const Product product(types.node, a.shape, b.shape);
  const Type y{a.dtype, product.shape()};
  if (types.has(2)) {
    const Type &c = types.input(2);
    require(c == y || c == Type({a.dtype, {product.n}}), Code::shape, types.subject(),
            "what is added is {}, neither {} nor a bias of {} numbers", to_text(c), to_text(y), product.n);
  }
  return {y};
}

// Returns the strides of the last two axes of x, or of x transposed.
std::pair<std::int64_t, std::int64_t> matrix_strides(const Shape &shape, bool transposed) {
  const std::int64_t row = shape.back();
  return transposed ? std::pair<std::int64_t, std::int64_t>{1, row} : std::pair<std::int64_t, std::int64_t>{row, 1};
}

std::vector<Array> evaluate_matmul(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Product p(node, in[0]->shape(), in[1]->shape());
  const std::vector<double> a = in[0]->doubles(), b = in[1]->doubles();
  const std::vector<double> added = optional_input(in, 2) != nullptr ? in[2]->doubles() : std::vector<double>();
  const double alpha = node.attributes.real("alpha", 1);
  const auto [a_row, a_column] = matrix_strides(p.a, flag(node, "trans_a"));
  const auto [b_row, b_column] = matrix_strides(p.b, flag(node, "trans_b"));
  const Shape a_batch(p.a.begin(), p.a.end() - 2), b_batch(p.b.begin(), p.b.end() - 2);
  std::vector<double> y;
  y.reserve(static_cast<std::size_t>(element_count(out[0].shape)));
  ElementWalk<2> walk(p.batch, {strides_over(a_batch, p.batch), strides_over(b_batch, p.batch)});
  for (std::int64_t i = element_count(p.batch); i > 0; --i, walk.next()) {
    const double *from_a = a.data() + walk.offsets[0] * p.m * p.k, *from_b = b.data() + walk.offsets[1] * p.k * p.n;
    for (std::int64_t row = 0; row < p.m; ++row)
      for (std::int64_t column = 0; column < p.n; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k)
          sum += from_a[row * a_row + k * a_column] * from_b[k * b_row + column * b_column];
        y.push_back(alpha * sum + (added.empty() ? 0 : added[y.size() % added.size()]));
      }
  }
  return {array_of(out[0], y)};
}

ValueId reshaped(GradientBuilder &builder, ValueId value, const Shape &shape) {
  return builder.type(value).shape == shape ? value : builder.emit("Reshape", {value}, {{"shape", shape}});
}

// Reshapes (..., X, Y) to one matrix (rows, Y).
ValueId as_matrix(GradientBuilder &builder, ValueId value) {
  const Shape shape = builder.type(value).shape;
  const std::int64_t columns = shape.back();
  Shape lead(shape.begin(), shape.end() - 1);
  return reshaped(builder, value, {element_count(lead), columns});
}

struct Operand {
  ValueId value;
  bool transposed;
};

ValueId multiply(GradientBuilder &builder, Operand a, Operand b, double alpha) {
  Attributes attributes;
  if (a.transposed) attributes.set("trans_a", std::int64_t{1});
  if (b.transposed) attributes.set("trans_b", std::int64_t{1});
  if (alpha != 1) attributes.set("alpha", alpha);
  return builder.emit("MatMul", {a.value, b.value}, attributes);
}

// Emits the gradients of a and b. With A = op(a) and B = op(b): dA = alpha dy B^T, dB = alpha A^T dy. Where op
// transposes, da is dA^T and db is dB^T.
void differentiate_matmul(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]), a = node.inputs[0], b = node.inputs[1];
  const bool ta = flag(node, "trans_a"), tb = flag(node, "trans_b");
  const double alpha = node.attributes.real("alpha", 1);
  const Shape a_shape = builder.type(a).shape, b_shape = builder.type(b).shape;
  if (builder.wants(a)) {
    const ValueId da =
        ta ? multiply(builder, {b, tb}, {dy, true}, alpha) : multiply(builder, {dy, false}, {b, !tb}, alpha);
    builder.contribute(a, sum_to(builder, da, a_shape));
  }
  if (builder.wants(b)) {
    // If b has no batch axes and a is not transposed, one product over all rows of a and dy gives db, without a sum
    // over batches.
    const bool flat = b_shape.size() == 2 && !ta;
    const ValueId rows = flat ? as_matrix(builder, a) : a, drows = flat ? as_matrix(builder, dy) : dy;
    const ValueId db = tb ? multiply(builder, {drows, true}, {rows, ta}, alpha)
                          : multiply(builder, {rows, !ta}, {drows, false}, alpha);
    builder.contribute(b, sum_to(builder, db, b_shape));
  }
  if (node.inputs.size() > 2 && builder.wants(node.inputs[2]))
    builder.contribute(node.inputs[2], sum_to(builder, dy, builder.type(node.inputs[2]).shape));
}

double matmul_flops(const NodeTypes &types, std::span<const Type>) {
  const Product p(types.node, types.input(0).shape, types.input(1).shape);
  return 2.0 * static_cast<double>(element_count(p.batch)) * static_cast<double>(p.m) * static_cast<double>(p.n) *
         static_cast<double>(p.k);
}

// Returns a copy of a node Gemm(A, B[, C]) = alpha op(A) op(B) + beta C with the flags of the MatMul that computes
// alpha op(A) op(B): transA becomes trans_a, and transB becomes trans_b.
Node as_matmul(const Node &node) {
  Node product = node;
  product.attributes.set("trans_a", node.attributes.integer("transA", 0));
  product.attributes.set("trans_b", node.attributes.integer("transB", 0));
  return product;
}

std::vector<Type> infer_gemm(const NodeTypes &types) {
  const Type &a = types.input(0), &b = types.input(1);
  require(a.shape.size() == 2 && b.shape.size() == 2 && a.dtype == b.dtype, Code::shape, types.subject(),
          "Gemm takes two matrices of one type, not {} and {}", to_text(a), to_text(b));
  const Node product = as_matmul(types.node);
  const Type y{a.dtype, Product(product, a.shape, b.shape).shape()};
  require(!types.has(2) || broadcast(types.input(2).shape, y.shape, types.subject()) == y.shape, Code::shape,
          types.subject(), "C {} does not stretch to {}", to_text(types.inputs.back()->shape), to_text(y.shape));
  return {y};
}

std::vector<Array> evaluate_gemm(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Type wide{DType::f64, out[0].shape};  // so that y is rounded once, after C is added
  const Array product = evaluate_matmul(as_matmul(node), in.first(2), {&wide, 1})[0];
  if (in.size() < 3 || in[2] == nullptr) return {array_of(out[0], product.doubles())};
  const double beta = node.attributes.real("beta", 1);
  const std::array<const Array *, 2> operands = {&product, in[2]};
  return {map_elements<double>(out[0], operands, [&](double y, double c) { return y + beta * c; })};
}

}  // namespace

Family matmul_family() {
  return {{.name = "MatMul",
           .infer = infer_matmul,
           .evaluate = evaluate_matmul,
           .gradient = differentiate_matmul,
           .flops = matmul_flops,
           .optional = {2}},
          {.name = "Gemm", .infer = infer_gemm, .evaluate = evaluate_gemm, .optional = {2}, .file_only = true}};
}

}  // namespace protrain::ops
