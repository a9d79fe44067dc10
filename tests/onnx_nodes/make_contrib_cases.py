#!/usr/bin/env python3
"""Writes cases-contrib.bin: one-node models of the domain com.microsoft, and what ONNX Runtime computes for them.

usage: make_contrib_cases.py OUT    with PyPI's onnx 1.23.2, onnxruntime 1.32.0 (CPU) and numpy
The pack has the form of make_cases.py. ONNX Runtime has no BiasSplitGelu and RelativePositionBias for the CPU; their
formulas are written out here.
"""
import math
import pathlib
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from make_cases import field

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
DRAWN = numpy.random.default_rng(5)
SCHEMAS = {schema.name: schema for schema in get_all_operator_schema() if schema.domain == "com.microsoft"}
TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
         "uint8": TensorProto.UINT8}


def floats(*shape):
    return DRAWN.standard_normal(shape).astype(numpy.float32)


def ints(*values, dtype=numpy.int32):
    return numpy.array(values, dtype)


def names_of(op, inputs):
    """The names that the operator's definition gives to its inputs; None for absent ones."""
    schema = SCHEMAS.get(op)
    given = [each.name for each in schema.inputs] if schema else []
    return [None if x is None else given[i] if i < len(given) else f"x{i}" for i, x in enumerate(inputs)]


def computed(model, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    present = [x for x in inputs if x is not None]
    return session.run(None, dict(zip([each.name for each in model.graph.input], present)))


def model_of(op, inputs, outputs=1, domain="com.microsoft", results=None, **attributes):
    """`inputs` has None for absent ones; `outputs` is a number, or a list of the outputs that are named."""
    named = range(outputs) if isinstance(outputs, int) else outputs
    made = [f"y{i}" if i in named else "" for i in range(max(named) + 1)]
    names = names_of(op, inputs)
    node = helper.make_node(op, [name or "" for name in names], made, name=op, domain=domain, **attributes)
    infos = [helper.make_tensor_value_info(name, TYPES[x.dtype.name], x.shape) for name, x in zip(names, inputs)
             if x is not None]
    if results is None:
        typed = [onnx.ValueInfoProto(name=f"y{i}") for i in named]
    else:
        typed = [helper.make_tensor_value_info(f"y{i}", TYPES[r.dtype.name], r.shape) for i, r in zip(named, results)]
    return helper.make_model(helper.make_graph([node], "g", infos, typed), opset_imports=OPSETS, ir_version=8)


def case(name, op, inputs, expected=None, **settings):
    results = expected if expected is not None else computed(model_of(op, inputs, **settings), inputs)
    model = model_of(op, inputs, results=results, **settings)
    data = field(1, f"test_contrib_{name}".encode()) + field(2, model.SerializeToString(deterministic=True))
    for number, group in ((3, [x for x in inputs if x is not None]), (4, results)):
        for array in group:
            data += field(number, numpy_helper.from_array(numpy.ascontiguousarray(array)).SerializeToString())
    return field(1, data)


def unpacked(*inputs, **settings):
    """The result for packed operands, which ONNX Runtime reads only on GPUs, from the same operands apart."""
    return computed(model_of("MultiHeadAttention", inputs, **settings), inputs)


def activations():
    x = floats(2, 3, 8)
    yield case("gelu", "Gelu", [x])
    yield case("bias_gelu", "BiasGelu", [x, floats(8)])
    yield case("fast_gelu", "FastGelu", [x])
    yield case("fast_gelu_bias", "FastGelu", [x, floats(8)])
    yield case("quick_gelu", "QuickGelu", [x])
    yield case("quick_gelu_alpha", "QuickGelu", [x], alpha=1.0)
    bias = floats(8)
    left, right = numpy.split(x + bias, 2, axis=-1)
    exact = right * 0.5 * (1 + numpy.vectorize(math.erf)(right / math.sqrt(2)))
    yield case("bias_split_gelu", "BiasSplitGelu", [x, bias], expected=[(left * exact).astype(numpy.float32)])


def products():
    yield case("matmul_alpha", "FusedMatMul", [floats(2, 3, 4), floats(4, 5)], alpha=0.5)
    yield case("matmul_trans_a", "FusedMatMul", [floats(2, 4, 3), floats(2, 4, 5)], transA=1)
    yield case("matmul_trans_b", "FusedMatMul", [floats(2, 3, 4), floats(5, 4)], transB=1)
    yield case("matmul_batch_a", "FusedMatMul", [floats(3, 2, 4), floats(2, 4, 5)], transBatchA=1)
    yield case("matmul_batch_ab", "FusedMatMul", [floats(3, 2, 4), floats(4, 2, 5)], transBatchA=1, transBatchB=1)
    yield case("matmul_batch_b_trans_b", "FusedMatMul", [floats(2, 3, 4), floats(5, 2, 4)], transBatchB=1, transB=1)
    yield case("matmul_vector", "FusedMatMul", [floats(4), floats(4, 5)], transA=1, alpha=2.0)
    a, b, c = floats(3, 4), floats(4, 5), floats(5)
    plain = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
    for name in ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "Softsign", "HardSigmoid"):
        extra = {"activation_alpha": 0.3} if name in ("LeakyRelu", "Elu", "HardSigmoid") else {}
        if name == "HardSigmoid":
            extra["activation_beta"] = 0.4
        if name == "Selu":
            extra = {"activation_alpha": 1.5, "activation_gamma": 1.1}
        yield case(f"gemm_{name.lower()}", "FusedGemm", [a, b, c], activation=name, **plain, **extra)
    yield case("gemm_plain", "FusedGemm", [a, numpy.ascontiguousarray(b.T)], transA=0, transB=1, alpha=0.5,
               beta=1.0, activation="Relu")


def convolutions():
    x, w, b = floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(4)
    shape = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    for name, values in (("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4])):
        extra = {} if values is None else {"activation_params": values}
        yield case(f"conv_{name.lower()}", "FusedConv", [x, w, b], activation=name, **shape, **extra)
    yield case("conv_sum", "FusedConv", [x, w, b, floats(1, 4, 6, 6)], activation="Relu", **shape)
    yield case("conv_plain", "FusedConv", [x, w], strides=[2, 2], **shape)


def normalizations():
    x, skip, scale, shift, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    yield case("skip", "SkipLayerNormalization", [x, skip, scale, shift])
    yield case("skip_bias", "SkipLayerNormalization", [x, skip, scale, shift, bias], outputs=[0, 3], epsilon=1e-5)
    yield case("skip_row", "SkipLayerNormalization", [x, skip[:1], scale, None, bias])
    yield case("skip_simplified", "SkipSimplifiedLayerNormalization", [x, skip, scale])
    yield case("skip_simplified_bias", "SkipSimplifiedLayerNormalization", [x, skip, scale, bias], outputs=[0, 3])
    yield case("simplified", "SimplifiedLayerNormalization", [x, scale], domain="", axis=-1, epsilon=1e-6)
    ids, segments = ints([1, 4, 2], [0, 3, 3]), ints([0, 0, 1], [1, 1, 0])
    words, positions, kinds = floats(5, 8), floats(4, 8), floats(2, 8)
    mask = ints([1, 1, 1], [1, 1, 0])
    yield case("embed", "EmbedLayerNormalization", [ids, None, words, positions, None, scale, shift],
               outputs=2)
    yield case("embed_segments", "EmbedLayerNormalization", [ids, segments, words, positions, kinds, scale, shift, mask],
               outputs=3, mask_index_type=1)
    yield case("embed_positions", "EmbedLayerNormalization",
               [ids, segments, words, positions, kinds, scale, shift, None, ints([1, 2, 3], [0, 1, 2])],
               outputs=2)


def attention():
    x, w, b = floats(2, 4, 6), floats(6, 24), floats(24)
    yield case("attention", "Attention", [x, w, b], num_heads=2)
    yield case("attention_causal", "Attention", [x, w, b], outputs=2, num_heads=2, unidirectional=1)
    yield case("attention_lengths", "Attention", [x, w, b, ints(4, 2)], num_heads=2)
    yield case("attention_spans", "Attention", [x, w, b, ints(4, 3, 1, 0)], num_heads=2)
    yield case("attention_mask", "Attention", [x, w, b, ints([1, 1, 1, 0], [0, 1, 1, 1])], num_heads=2,
               mask_filter_value=-3.0, unidirectional=1)
    full = ints([[1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1]] * 4)
    yield case("attention_full_mask", "Attention", [x, w, b, full], num_heads=2)
    yield case("attention_bias", "Attention", [x, w, b, None, None, floats(1, 2, 4, 4)], num_heads=2, scale=0.7)
    yield case("attention_sizes", "Attention", [x, floats(6, 16), floats(16)], num_heads=2, qkv_hidden_sizes=[4, 4, 8])


def multi_head():
    q, k, v, bias = floats(2, 4, 6), floats(2, 5, 6), floats(2, 5, 8), floats(20)
    yield case("heads", "MultiHeadAttention", [q, k, v], num_heads=2)
    yield case("heads_bias", "MultiHeadAttention", [q, k, v, bias, ints([1, 1, 1, 1, 0], [1, 1, 1, 0, 0])], num_heads=2)
    yield case("heads_scores_bias", "MultiHeadAttention", [q, k, v, None, None, floats(1, 2, 4, 5)], num_heads=2,
               scale=0.3)
    yield case("heads_causal", "MultiHeadAttention", [q, q + 1, q * 2], num_heads=3, unidirectional=1)
    packed = floats(2, 4, 2, 3, 3)
    parts = [packed[:, :, :, i].reshape(2, 4, 6) for i in range(3)]
    yield case("heads_packed", "MultiHeadAttention", [packed], num_heads=2, expected=unpacked(*parts, num_heads=2))
    packed = floats(2, 5, 2, 2, 3)
    parts = [packed[:, :, :, i].reshape(2, 5, 6) for i in range(2)]
    yield case("heads_packed_keys", "MultiHeadAttention", [q, packed], num_heads=2,
               expected=unpacked(q, *parts, num_heads=2))
    yield case("heads_apart", "MultiHeadAttention", [q, floats(2, 2, 5, 3), floats(2, 2, 5, 3)], num_heads=2)
    past = floats(2, 2, 3, 3), floats(2, 2, 3, 3)
    yield case("heads_past", "MultiHeadAttention", [q, q + 1, q * 2, None, None, None, *past], outputs=3, num_heads=2)


def grouped():
    q, k, v = floats(2, 5, 64), floats(2, 5, 32), floats(2, 5, 32)
    lengths, total = ints(4, 4), ints(5).reshape(())
    angles = DRAWN.standard_normal((7, 8)).astype(numpy.float32)
    cos, sin = numpy.cos(angles), numpy.sin(angles)
    heads = {"num_heads": 4, "kv_num_heads": 2}
    yield case("grouped", "GroupQueryAttention", [q, k, v, None, None, lengths, total], outputs=3, **heads)
    yield case("grouped_packed", "GroupQueryAttention", [floats(2, 5, 128), None, None, None, None, lengths, total],
               outputs=3, **heads)
    yield case("grouped_rotary", "GroupQueryAttention", [q, k, v, None, None, lengths, total, cos, sin], outputs=3,
               do_rotary=1, **heads)
    yield case("grouped_interleaved", "GroupQueryAttention",
               [q, k, v, None, None, lengths, total, cos, sin], outputs=3, do_rotary=1, rotary_interleaved=1,
               softcap=2.0, scale=0.6, **heads)
    yield case("grouped_window", "GroupQueryAttention", [q, k, v, None, None, lengths, total], outputs=3,
               local_window_size=2, **heads)


def positions():
    angles = DRAWN.standard_normal((7, 3)).astype(numpy.float32)
    cos, sin = numpy.cos(angles), numpy.sin(angles)
    at = ints([0, 1, 2, 3], [2, 3, 4, 5], dtype=numpy.int64)
    yield case("rotary", "RotaryEmbedding", [floats(2, 4, 12), at, cos, sin])
    yield case("rotary_offset", "RotaryEmbedding", [floats(2, 4, 12), ints(2, dtype=numpy.int64), cos, sin],
               interleaved=1)
    yield case("rotary_heads_first", "RotaryEmbedding", [floats(2, 2, 4, 6), at, cos, sin])
    yield case("rotary_part", "RotaryEmbedding", [floats(2, 4, 16), at, cos, sin], num_heads=2, rotary_embedding_dim=6)
    table = floats(8, 2)
    for both in (0, 1):
        rows = numpy.array([[bucket(j - i, 8, 12, both) for j in range(20)] for i in range(6)])
        yield case(f"relative_{both}", "RelativePositionBias",
                   [table, ints(6, dtype=numpy.int64), ints(20, dtype=numpy.int64)], is_bidirectional=both,
                   max_distance=12, expected=[numpy.ascontiguousarray(table[rows].transpose(2, 0, 1)[None])])


def bucket(distance, buckets, most, both):
    """As T5Attention._relative_position_bucket in Hugging Face's transformers."""
    first = 0
    if both:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = -min(distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(most / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


def quantised():
    """Products with weights (n, k) of 4 or 8 bits in blocks along k, which the last block may exceed."""
    for bits, n, k, block in ((4, 5, 32, 16), (4, 6, 40, 16), (4, 3, 96, 32), (8, 5, 32, 16), (8, 4, 72, 32)):
        blocks = -(-k // block)
        a, scales = floats(2, 3, k), (0.01 + DRAWN.random((n, blocks))).astype(numpy.float32)
        weights = DRAWN.integers(0, 256, (n, blocks, block * bits // 8), numpy.uint8)
        zeros = DRAWN.integers(0, 256, (n, -(-blocks * bits // 8)), numpy.uint8)
        sizes = {"K": k, "N": n, "bits": bits, "block_size": block}
        title = f"nbits_{bits}_{k}_{block}"
        yield case(title, "MatMulNBits", [a, weights, scales], **sizes)
        yield case(f"{title}_zeros", "MatMulNBits", [a, weights, scales, zeros], **sizes)
        yield case(f"{title}_flat", "MatMulNBits", [a[0], weights, scales.ravel(), zeros.ravel()], **sizes)
        yield case(f"{title}_bias", "MatMulNBits", [a, weights, scales, zeros, None, floats(n)], **sizes)
        if bits == 4:
            yield case(f"{title}_float_zeros", "MatMulNBits",
                       [a, weights, scales, DRAWN.uniform(0, 15, (n, blocks)).astype(numpy.float32)], **sizes)


def gathered():
    """Rows of tables of 4 or 8 bits in blocks along the last axis, which the last block may exceed."""
    for bits, shape, block, indices in ((4, (7, 40), 16, ints(6, 0, 3, dtype=numpy.int64)),
                                        (4, (5, 2, 32), 16, ints([0, -1], [4, 2])),
                                        (8, (6, 48), 32, ints([5], [1], dtype=numpy.int64))):
        blocks = -(-shape[-1] // block)
        table = DRAWN.integers(0, 256, (*shape[:-1], shape[-1] * bits // 8), numpy.uint8)
        zeros = DRAWN.integers(0, 256, (*shape[:-1], -(-blocks * bits // 8)), numpy.uint8)
        scales = (0.01 + DRAWN.random((*shape[:-1], blocks))).astype(numpy.float32)
        settings = {"bits": bits, "block_size": block, "quantize_axis": len(shape) - 1}
        title = f"gather_{bits}_{len(shape)}"
        yield case(title, "GatherBlockQuantized", [table, indices, scales], **settings)
        yield case(f"{title}_zeros", "GatherBlockQuantized", [table, indices, scales, zeros], **settings)


def main():
    groups = (activations, products, convolutions, normalizations, attention, multi_head, grouped, positions,
              quantised, gathered)
    pack = b"".join(one for group in groups for one in group())
    pathlib.Path(sys.argv[1]).write_bytes(pack)
    print(f"{len(pack)} bytes")


if __name__ == "__main__":
    main()
