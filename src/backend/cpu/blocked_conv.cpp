#include "backend/cpu/blocked_conv.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "backend/cpu/onednn.h"

namespace protrain::backend::cpu {

namespace {
using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
constexpr auto kAny = dnnl::memory::format_tag::any;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

std::size_t number(ConvOperand operand) { return static_cast<std::size_t>(operand); }

// Returns the number of spatial axes in oneDNN's shapes. It is 2 if possible, because oneDNN has fast code for two.
int axes_of(const ConvShape &s) {
  return s.input[0] == 1 && s.kernel[0] == 1 && s.output[0] == 1 && s.before[0] == 0 ? 2 : 3;
}

Dims last_axes(const ConvShape &s, const ConvSizes &sizes) { return {sizes.end() - axes_of(s), sizes.end()}; }
Dims with_axes(Dims front, const ConvShape &s, const ConvSizes &sizes) {
  const Dims axes = last_axes(s, sizes);
  front.insert(front.end(), axes.begin(), axes.end());
  return front;
}

Dims dense_strides(const Dims &dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}

// Returns the dims of x, w and y.
std::array<Dims, 3> dims_of(const ConvShape &s, std::int64_t samples) {
  Dims w = {s.maps, s.channels};
  if (s.groups > 1) w = {s.groups, s.maps_in_group(), s.channels_in_group()};
  return {with_axes({samples, s.channels}, s, s.input), with_axes(w, s, s.kernel),
          with_axes({samples, s.maps}, s, s.output)};
}

// Returns the layouts of one sample of x, of w, and of one sample of y, as they are in the project's tensors. `row` is
// the distance, in elements, from the weights of one map to those of the next map. The result has elements of type
// `result`.
std::array<Desc, 3> plain_layouts(const ConvShape &s, std::int64_t row, DType result) {
  std::array<Dims, 3> dims = dims_of(s, 1);
  std::array<Desc, 3> layouts;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    Dims strides = dense_strides(dims[i]);
    if (i == number(ConvOperand::w)) {
      if (s.groups > 1) strides[0] = s.maps_in_group() * row;
      strides[s.groups > 1 ? 1 : 0] = row;
    }
    layouts[i] = Desc(dims[i], onednn_type(i == number(s.result) ? result : s.dtype), strides);
  }
  return layouts;
}

struct Windows {
  Dims strides, dilations, before, after;
};

Windows windows_of(const ConvShape &s) {
  ConvSizes dilations, after;
  for (std::size_t i = 0; i < kConvAxes; ++i) {
    dilations[i] = s.dilations[i] - 1;  // for oneDNN a dense window has dilation 0
    const std::int64_t reach = (s.output[i] - 1) * s.strides[i] + (s.kernel[i] - 1) * s.dilations[i] + 1;
    after[i] = std::max<std::int64_t>(0, reach - s.before[i] - s.input[i]);
  }
  return {last_axes(s, s.strides), last_axes(s, dilations), last_axes(s, s.before), last_axes(s, after)};
}

// oneDNN's choice for a convolution: the primitive, its name, and the layouts of x, w and y.
struct Choice {
  dnnl::primitive primitive;
  std::string name;
  std::array<Desc, 3> layouts;
  Desc scratch;
};

Choice choose(const ConvShape &s) {
  const std::array<Dims, 3> dims = dims_of(s, s.samples);
  const auto any_layout = [&](ConvOperand operand, DType dtype) {
    return Desc(dims[number(operand)], onednn_type(dtype), kAny);
  };
  const Desc x = any_layout(ConvOperand::x, s.dtype), w = any_layout(ConvOperand::w, s.dtype),
             y = any_layout(ConvOperand::y, s.dtype), result = any_layout(s.result, DType::f32);
  const Windows at = windows_of(s);
  const dnnl::primitive_attr attributes = onednn_attributes();
  const bool makes_y = s.result == ConvOperand::y;
  const auto forward = describe_primitive<dnnl::convolution_forward>(attributes, dnnl::prop_kind::forward_training,
                                                                     kDirect, x, w, makes_y ? result : y, at.strides,
                                                                     at.dilations, at.before, at.after);
  if (makes_y)
    return {dnnl::convolution_forward(forward),
            forward.impl_info_str(),
            {forward.src_desc(), forward.weights_desc(), forward.dst_desc()},
            forward.scratchpad_desc()};
  if (s.result == ConvOperand::x) {
    const auto data = describe_gradient<dnnl::convolution_backward_data>(forward, attributes, kDirect, result, w, y,
                                                                         at.strides, at.dilations, at.before, at.after);
    return {dnnl::convolution_backward_data(data),
            data.impl_info_str(),
            {data.diff_src_desc(), data.weights_desc(), data.diff_dst_desc()},
            data.scratchpad_desc()};
  }
  const auto weights = describe_gradient<dnnl::convolution_backward_weights>(
      forward, attributes, kDirect, x, result, y, at.strides, at.dilations, at.before, at.after);
  return {dnnl::convolution_backward_weights(weights),
          weights.impl_info_str(),
          {weights.src_desc(), weights.diff_weights_desc(), weights.diff_dst_desc()},
          weights.scratchpad_desc()};
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Returns true if the implementation called `name` is code that oneDNN generates for the convolution itself. The other
// implementations unroll windows or do not use vectors, and allocate when they run. The name ends in the instructions
// that the code uses. Without those for bfloat16, AVX512-BF16 and AMX, it is slower than float32.
bool is_direct(std::string_view name, DType dtype) {
  if (dtype == DType::bf16 && !contains(name, "avx512_core_bf16") && !contains(name, "amx")) return false;
  return (name.starts_with("jit") || name.starts_with("brg")) && !contains(name, "gemm");
}

// Takes the layout of a tensor of samples, and returns the layout of a single sample. Returns an empty optional if the
// samples do not lie one after the other.
std::optional<Desc> one_sample(const Desc &layout) {
  const std::optional<BlockedLayout> blocked = blocked_layout(layout);
  if (!blocked || std::ranges::find(blocked->cut, 0) != blocked->cut.end()) return std::nullopt;
  Dims dims = blocked->dims;
  if (dims[0] > 1 && std::ranges::max(blocked->strides) > blocked->strides[0]) return std::nullopt;
  dims[0] = 1;
  return layout.submemory_desc(dims, Dims(dims.size(), 0));
}

// oneDNN 2.6 has three faults in gradients of weights. Over three axes, they are wrong if several windows begin in the
// pads in front of the first axis. The other two concern bfloat16. At the ends of rows oneDNN multiplies zeros by bytes
// that it has not written, and these can be NaNs. The bytes lie in its scratch, which run() clears. If there are three
// axes, or if oneDNN reads x in the tensor's own layout, they also lie behind x.
bool is_narrow_gradient(const ConvShape &s) { return s.result == ConvOperand::w && s.dtype == DType::bf16; }
bool is_faulty(const ConvShape &s, const Choice &choice, const Desc &plain_x) {
  if (s.result != ConvOperand::w) return false;
  if (axes_of(s) == 3 && (s.dtype == DType::bf16 || s.before[0] > s.strides[0])) return true;
  return is_narrow_gradient(s) && one_sample(choice.layouts[number(ConvOperand::x)]) == plain_x;
}

// The operands and arguments with which one thread calls a primitive.
struct Call {
  std::vector<dnnl::memory> operands;
  std::vector<dnnl_exec_arg_t> arguments;

  void add(int argument, const Desc &layout) {
    operands.emplace_back(layout, onednn_engine(), nullptr);
    arguments.push_back({argument, operands.back().get()});
  }
  void run(const dnnl::primitive &primitive, std::initializer_list<const void *> places, const char *what) {
    dnnl_status_t status = dnnl_success;
    std::size_t i = 0;
    for (const void *place : places) {
      if (status == dnnl_success) status = point(operands[i], place);
      ++i;
    }
    execute(status, primitive, arguments, what);
  }
};

// The conversion from one layout to another. It has a Call for each of `seats` threads that may convert at the same
// time.
struct Conversion {
  Conversion(const Desc &from, const Desc &to, int seats) {
    const dnnl::reorder::primitive_desc found(onednn_engine(), from, onednn_engine(), to, onednn_attributes());
    require(found.scratchpad_desc().get_size() == 0, Code::unsupported, "oneDNN", "a conversion needs scratch");
    primitive = dnnl::reorder(found);
    calls.resize(static_cast<std::size_t>(seats));
    for (Call &call : calls) {
      call.add(DNNL_ARG_FROM, from);
      call.add(DNNL_ARG_TO, to);
    }
  }

  dnnl::primitive primitive;
  std::vector<Call> calls;
};

std::array<int, 3> arguments_of(ConvOperand result) {
  if (result == ConvOperand::y) return {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  if (result == ConvOperand::x) return {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST};
  return {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
}
}  // namespace

struct BlockedConv::State {
  ConvShape shape;
  Choice choice;
  std::array<Desc, 3> plain, blocked;  // layouts of w, and of one sample of x and of y
  std::vector<Call> calls;
  std::array<std::optional<Conversion>, 3> conversions;  // none for an operand whose layouts are equal
};

std::optional<BlockedConv> BlockedConv::find(const ConvShape &shape, std::int64_t row, DType result, int seats) {
  require_room_for_primitive();
  try {
    auto state = std::make_unique<State>(State{.shape = shape, .choice = choose(shape)});
    if (!is_direct(state->choice.name, shape.dtype)) return std::nullopt;
    state->plain = plain_layouts(shape, row, result);
    if (is_faulty(shape, state->choice, state->plain[number(ConvOperand::x)])) return std::nullopt;
    for (std::size_t i = 0; i < 3; ++i) {
      const bool weights = i == number(ConvOperand::w);
      const std::optional<Desc> layout = weights ? state->choice.layouts[i] : one_sample(state->choice.layouts[i]);
      if (!layout) return std::nullopt;
      state->blocked[i] = *layout;
      if (state->plain[i] == *layout) continue;
      const bool made = i == number(shape.result);
      state->conversions[i].emplace(made ? *layout : state->plain[i], made ? state->plain[i] : *layout, seats);
    }
    state->calls.resize(static_cast<std::size_t>(seats));
    const std::array<int, 3> arguments = arguments_of(shape.result);
    for (Call &call : state->calls) {
      for (std::size_t i = 0; i < 3; ++i) call.add(arguments[i], state->choice.layouts[i]);
      call.add(DNNL_ARG_SCRATCHPAD, state->choice.scratch);
    }
    return BlockedConv(std::move(state));
  } catch (const dnnl::error &error) {
    if (error.status == dnnl_unimplemented) return std::nullopt;
    fail_to_make(error, "a convolution");
  }
}

BlockedConv::BlockedConv(std::unique_ptr<State> state) : state_(std::move(state)) {}
BlockedConv::~BlockedConv() = default;
BlockedConv::BlockedConv(BlockedConv &&) noexcept = default;
BlockedConv &BlockedConv::operator=(BlockedConv &&) noexcept = default;

const ConvShape &BlockedConv::shape() const { return state_->shape; }

std::uint64_t BlockedConv::bytes(ConvOperand operand) const { return state_->blocked[number(operand)].get_size(); }

bool BlockedConv::is_plain(ConvOperand operand) const { return !state_->conversions[number(operand)]; }

std::uint64_t BlockedConv::scratch_bytes() const { return round_up(state_->choice.scratch.get_size(), 64); }

void BlockedConv::convert(int seat, ConvOperand operand, const void *from, void *to) {
  std::optional<Conversion> &conversion = state_->conversions[number(operand)];
  if (!conversion) {
    std::memcpy(to, from, state_->blocked[number(operand)].get_size());
    return;
  }
  conversion->calls[static_cast<std::size_t>(seat)].run(conversion->primitive, {from, to}, "a conversion");
}

void BlockedConv::run(int seat, const void *x, const void *w, const void *y, void *scratch) {
  if (is_narrow_gradient(state_->shape)) std::memset(scratch, 0, state_->choice.scratch.get_size());
  state_->calls[static_cast<std::size_t>(seat)].run(state_->choice.primitive, {x, w, y, scratch}, "a convolution");
}

}  // namespace protrain::backend::cpu
