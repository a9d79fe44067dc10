#!/usr/bin/env python3
"""Writes corpus/TARGET/: the inputs from which the fuzzers start, and which tests replay. Does not touch inputs called
found-*, which fuzzing found, or reached-*, which keep.sh chose. Needs onnx and numpy."""
import io
import json
import pathlib
import random
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
LARGEST = 20_000  # bytes
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def put(target, name, data):
    assert len(data) <= LARGEST, (target, name, len(data))
    (HERE / "corpus" / target / name).write_bytes(data)


# ---- Models ----

def weights(name, *shape):
    count = int(np.prod(shape))
    return numpy_helper.from_array((np.arange(count) % 5 / 4 - 0.5).astype(np.float32).reshape(shape), name)


def integers(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(nodes, inputs, initializers, outputs=(("loss", FLOAT, []),), opset=18):
    def infos(values):
        return [helper.make_tensor_value_info(*value) for value in values]

    nodes = [helper.make_node(op, ins, outs, f"/{outs[0]}", **attributes) for op, ins, outs, attributes in nodes]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return made.SerializeToString()


def mean(of):
    return ("ReduceMean", [of], ["loss"], {"keepdims": 0})


X = ("x", FLOAT, ["batch", 4])
IMAGE = ("x", FLOAT, ["batch", 2, 6, 6])
HEADS = ("x", FLOAT, [1, 2, 3, 4])  # batch, heads, sequence, width of a head


def models():
    gemm = ("Gemm", ["x", "w", "b"], ["y"], {})
    linear = [weights("w", 4, 3), weights("b", 3)]
    classes, labels = ("SoftmaxCrossEntropyLoss", ["y", "labels"], ["ce"], {}), ("labels", INT64, ["batch"])
    yield "logits", model([gemm], [X], linear, [("y", FLOAT, ["batch", 3])])
    yield "classes", model([gemm, classes, ("Identity", ["ce"], ["loss"], {})], [X, labels], linear)
    yield "loss-goes-on", model([gemm, classes, ("Mul", ["ce", "half"], ["loss"], {})], [X, labels],
                                [*linear, numpy_helper.from_array(np.float32(0.5), "half")])
    yield "two-losses", model([gemm, classes, ("ReduceSumSquare", ["w"], ["l2"], {"keepdims": 0}),
                               ("Add", ["ce", "l2"], ["loss"], {})], [X, labels], linear)
    yield "norm", model([("LayerNormalization", ["x", "s", "b"], ["n"], {"axis": -1, "epsilon": 1e-5}),
                         ("MatMul", ["n", "w"], ["m"], {}), ("Gelu", ["m"], ["g"], {"approximate": "tanh"}), mean("g")],
                        [X], [weights("s", 4), weights("b", 4), weights("w", 4, 4)], opset=20)
    yield "rms", model([("RMSNormalization", ["x", "s"], ["n"], {}), ("MatMul", ["n", "w"], ["m"], {}), mean("m")],
                       [X], [weights("s", 4), weights("w", 4, 2)], opset=23)
    yield "image", model([("Conv", ["x", "w", "b"], ["c"], {"pads": [1, 1, 1, 1]}), ("Relu", ["c"], ["r"], {}),
                          ("MaxPool", ["r"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
                          ("GlobalAveragePool", ["p"], ["a"], {}), ("Flatten", ["a"], ["f"], {}),
                          ("MatMul", ["f", "v"], ["m"], {}), mean("m")],
                         [IMAGE], [weights("w", 3, 2, 3, 3), weights("b", 3), weights("v", 3, 2)])
    yield "batch-norm", model([("BatchNormalization", ["x", "s", "b", "mean", "var"], ["n"], {}),
                               ("Conv", ["n", "w"], ["c"], {"group": 2}), mean("c")], [IMAGE],
                              [weights("s", 2), weights("b", 2), weights("mean", 2),
                               numpy_helper.from_array(np.ones(2, np.float32), "var"), weights("w", 2, 1, 2, 2)])
    yield "group-norm", model([("GroupNormalization", ["x", "s", "b"], ["n"], {"num_groups": 2}),
                               ("ConvTranspose", ["n", "w"], ["c"], {}), mean("c")], [IMAGE],
                              [weights("s", 2), weights("b", 2), weights("w", 2, 1, 2, 2)], opset=21)
    yield "scores", model([("MatMul", ["x", "w"], ["q"], {}), ("Transpose", ["q"], ["k"], {"perm": [0, 1, 3, 2]}),
                           ("MatMul", ["q", "k"], ["s"], {}), ("Div", ["s", "two"], ["d"], {}),
                           ("Softmax", ["d"], ["p"], {"axis": -1}), ("MatMul", ["p", "x"], ["a"], {}), mean("a")],
                          [HEADS], [weights("w", 4, 4), numpy_helper.from_array(np.float32(2), "two")])
    yield "attention", model([("MatMul", ["x", "w"], ["q"], {}), ("Attention", ["q", "x", "x"], ["a"], {"is_causal": 1}),
                              mean("a")], [HEADS], [weights("w", 4, 4)], opset=24)
    yield "rotary", model([("MatMul", ["x", "w"], ["q"], {}), ("RotaryEmbedding", ["q", "cos", "sin", "at"], ["r"], {}),
                           mean("r")], [HEADS], [weights("w", 4, 4), weights("cos", 5, 2), weights("sin", 5, 2),
                                                 integers("at", [[0, 1, 2]])], opset=23)
    yield "table", model([("Gather", ["table", "ids"], ["rows"], {}), ("Shape", ["ids"], ["s"], {}),
                          ("Gather", ["s", "zero"], ["n"], {}), ("Unsqueeze", ["n", "axis"], ["u"], {}),
                          ("Concat", ["u", "rest"], ["to"], {"axis": 0}), ("Reshape", ["rows", "to"], ["flat"], {}),
                          ("MatMul", ["flat", "w"], ["m"], {}), mean("m")], [("ids", INT64, ["batch", 3])],
                         [weights("table", 5, 4), weights("w", 12, 2), integers("zero", 0), integers("axis", [0]), integers("rest", [-1])])
    yield "pieces", model([("MatMul", ["x", "w"], ["m"], {}), ("Split", ["m"], ["a", "b"], {"axis": 1, "num_outputs": 2}),
                           ("Greater", ["a", "b"], ["g"], {}), ("Where", ["g", "a", "b"], ["h"], {}),
                           ("Slice", ["h", "from", "to", "axis"], ["l"], {}), ("Concat", ["l", "b"], ["c"], {"axis": 1}),
                           ("Pad", ["c", "pads"], ["p"], {}), mean("p")], [X],
                          [weights("w", 4, 4), integers("from", [0]), integers("to", [1]), integers("axis", [1]),
                           integers("pads", [0, 1, 0, 1])])
    yield "dropout", model([("MatMul", ["x", "w"], ["m"], {}), ("Dropout", ["m", "ratio", "on"], ["d"], {"seed": 3}),
                            mean("d")], [X], [weights("w", 4, 4), numpy_helper.from_array(np.float32(0.5), "ratio"),
                                              numpy_helper.from_array(np.array(True), "on")])
    yield "tied", model([("Gather", ["table", "ids"], ["rows"], {}), ("Transpose", ["table"], ["turned"], {"perm": [1, 0]}),
                         ("MatMul", ["rows", "turned"], ["y"], {})], [("ids", INT64, ["batch", 3])],
                        [weights("table", 5, 4)], [("y", FLOAT, ["batch", 3, 5])])
    yield "elsewhere", external(model([gemm, mean("y")], [X], linear))


def external(bytes_):
    """Puts the first initializer into a file `data`, which fuzz/differentiate.h provides."""
    made = onnx.ModelProto.FromString(bytes_)
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "data"), ("offset", "64"), ("length", "48")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return made.SerializeToString()


def write_models():
    for target in ("onnx", "graph"):
        for name in ("root", "functions"):
            put(target, name, (FIXTURES / f"{name}.onnx").read_bytes())
        for name, data in models():
            put(target, name, data)
    logits = dict(models())["logits"]
    put("onnx", "cut", logits[:100])
    put("onnx", "empty", b"")


# ---- Texts ----

def write_plans():
    chunks = [{"bytes": 64, "tier": tier, "update": update, "parameters": parameters}
              for tier, update, parameters in (("device", "device", [0, 1, 2]), ("host", "host", [3, 4]),
                                               ("host", "device", [5, 6]), ("disk", "host", [7, 8, 9]))]
    plans = {
        "empty": {},
        "integers": {"n_persist": 1, "n_buffer": 2, "n_swap": 1, "n_checkpoint": 2, "n_host": 1, "chunk_bytes": 128},
        "sizes": {"n_persist": 3, "chunk_bytes": "1KiB", "piece_bytes": "8KiB", "update": "device", "slack": 2},
        "shared": {"n_persist": 2, "shared_memory": True, "optimizer_order": "barrier", "n_selective": 2},
        "whole": {"n_buffer": 3, "optimizer_order": "overlap", "slack": 1, "piece_bytes": 4096, "chunks": chunks,
                  "blocks": ["swap", "recompute", "selective", "keep", "keep"]},
    }
    for name, plan in plans.items():
        put("plan", name, json.dumps(plan).encode())


def write_machines():
    gpu = {"name": "small", "device_memory": "6KiB", "host_memory": "1MiB", "disk_memory": 1 << 30,
           "device_reserve": 512, "host_reserve": 0, "fp32_flops": 1e13, "bf16_flops": 2e13, "device_bandwidth": 5e11,
           "launch_seconds": 5e-6, "device_optimizer": 4e11, "host_optimizer": 2e10, "upload": 1e10, "download": 1e10,
           "both_ways": 1.5e10, "host_bandwidth": 4e10, "disk_read": 2e9, "disk_write": 1e9}
    cpu = {"device_memory": 1 << 33, "shares_memory": True, "shares_cores": True, "fp32_flops": 2e11,
           "device_bandwidth": 2e10, "device_optimizer": 1e10, "disk_read": 1e9, "disk_write": 1e9,
           "disk_memory": "1TB", "compute_beside_disk": 0.9, "disk_beside_compute": 0.5}
    measured = dict(cpu, kernels={"MatMul f32[2,4] f32[4,4] -> f32[2,4]": 1e-6, "": 0}, scratch={"Add": 4096})
    least = {"device_memory": 4096, "fp32_flops": 1, "device_bandwidth": 1, "device_optimizer": 1}
    for name, machine in (("gpu", gpu), ("cpu", cpu), ("measured", measured), ("least", least)):
        put("hardware", name, json.dumps(machine).encode())


def write_checkpoints():
    def header(tensors):
        about, at = {}, 0
        for name, shape in tensors:
            end = at + 4 * int(np.prod(shape))
            about[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
            at = end
        return json.dumps(about)

    def manifest(step=10, **counters):
        files = {"weights.safetensors": {"bytes": "@w", "pieces": ["@W"]},
                 "optimizer.safetensors": {"bytes": "@o", "pieces": ["@O"]}}
        return json.dumps({"format": "protrain checkpoint", "version": 1, "optimizer": "adamw",
                           "counters": {"step": step, "skipped": 0, "seed": 7, **counters}, "piece_bytes": 16 << 20,
                           "files": files}, indent=1)

    small = header([("weight", [2, 2]), ("bias", [1])])
    moments = header([("weight/moment1", [2, 2]), ("weight/moment2", [2, 2])])
    turned = header([("bias", [1]), ("weight", [2, 2])])
    inputs = {
        "whole": (manifest(), small, moments),
        "narrow": (manifest(loss_scale=65536, steps_at_loss_scale=9, micro_batch=2), turned, moments),
        "other-step": (manifest(11), small, moments),
        "metadata": (manifest(), small.replace("{", '{"__metadata__": {"format": "pt"}, ', 1), moments),
        "other-shape": (manifest(), header([("weight", [4]), ("bias", [1])]), moments),
    }

    def manifest_of_two(shapes, **changes):
        files = {f"{kind}-0000{part}-of-00002.safetensors": {"bytes": "@" + letter, "pieces": ["@" + letter.upper()]}
                 for part, letters in ((1, "wo"), (2, "vp")) for kind, letter in zip(("weights", "optimizer"), letters)}
        return json.dumps({"format": "protrain checkpoint", "version": 2, "optimizer": "adamw",
                           "counters": {"step": 10, "skipped": 0, "seed": 7}, "piece_bytes": 16 << 20, "parts": 2,
                           "shapes": shapes, "files": files, **changes}, indent=1)

    # There are five weights (four elements of `weight`, one of `bias`), of which the first part has three. It has four
    # of the eight moments.
    shapes = {"weight": [2, 2], "bias": [1]}
    first, second = header([("weight", [2]), ("bias", [1])]), header([("weight", [2]), ("bias", [0])])
    halves = header([("weight/moment1", [2]), ("weight/moment2", [2])])
    uneven = header([("weight/moment1", [4]), ("weight/moment2", [0])])
    rest = header([("weight/moment1", [0]), ("weight/moment2", [4])])
    inputs |= {
        "two-parts": (manifest_of_two(shapes), first, halves, second, halves),
        "two-uneven": (manifest_of_two(shapes), first, uneven, second, rest),
        "two-shape": (manifest_of_two({"weight": [4], "bias": [1]}), first, halves, second, halves),
        "two-too-few": (manifest_of_two({"weight": [3, 2], "bias": [1]}), first, halves, second, halves),
        "two-names": (manifest_of_two(shapes), first, halves, header([("weight", [2])]), halves),
        "two-of-three": (manifest_of_two(shapes, parts=3), first, halves, second, halves),
    }
    for name, parts in inputs.items():
        put("checkpoint", name, "\0".join(parts).encode())


# ---- Arrays and tokens ----

def write_arrays():
    arrays = {"ids": np.arange(12, dtype="<i8").reshape(2, 3, 2), "numbers": np.ones((3, 2), "<f4"),
              "none": np.zeros((0, 4), "<f2"), "empty-slices": np.zeros((5, 0), "|u1"), "flags": np.array([True, False]),
              "column-major": np.asfortranarray(np.zeros((2, 3), "<f8")), "single": np.zeros((), "<i4")}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array)
        put("npy", name, file.getvalue())
    wide = io.BytesIO()
    np.lib.format.write_array(wide, arrays["numbers"], version=(2, 0))
    put("npy", "version-2", wide.getvalue())
    tensors = {"ids": {"dtype": "I64", "shape": [2, 3], "data_offsets": [0, 48]},
               "flags": {"dtype": "BOOL", "shape": [4], "data_offsets": [48, 52]}, "__metadata__": {"by": "a test"}}
    outside = {"ids": {"dtype": "BF16", "shape": [3], "data_offsets": [50, 56]}}
    for name, header in {"two": tensors, "outside": outside, "empty": {}, "no-tensor": {"ids": 3}}.items():
        text = json.dumps(header).encode()
        put("safetensors", name, struct.pack("<Q", len(text)) + text + bytes(52))


def write_tokens():
    put("tokens", "raw", struct.pack("<9H", *range(9)))
    put("tokens", "odd", bytes(7))
    put("tokens", "none", b"")
    for name, magic, version, form, count in (("gpt2", 20240520, 1, "H", 10), ("llama", 20240801, 7, "I", 10),
                                              ("other-version", 20240520, 2, "H", 10), ("counted-wrong", 20240520, 1, "H", 9)):
        header = struct.pack("<256i", magic, version, count, *[0] * 253)
        put("tokens", name, header + struct.pack(f"<10{form}", *range(10)))


# ---- Calls, by their numbers in calls.cpp ----

USUAL, CREATE, INPUTS, STEP, EVAL = range(5)
FOLLOW, ADAPTERS, EXPORT, LOAD, USE, MERGE, PREDICT, OUTPUTS, READ, CHECK = range(26, 36)


def write_calls():
    begin = [USUAL, 0, 0, CREATE, 0, 0, 0, 0]
    step = [INPUTS, 1, 1, 1, 1, STEP, 0, 0]  # the model has two inputs; each takes two choices
    orders = {"train": begin + 3 * step, "layers": [USUAL, 1, 1, CREATE, 0, 0, 0, 0] + 2 * step + [EVAL, 0, 0],
              "without-inputs": begin + [STEP, 0, 0, EVAL, 0, 0], "nothing": [], "null": [15] * 40}
    # The session's plan, the options' plan, and a plan with changed digits.
    for i, follow in enumerate(([0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 3, 40, 7, 90, 1, 160, 9])):
        orders[f"plan-{i}"] = begin + step + [FOLLOW, *follow, CREATE, 0, 0, 0, 0] + 2 * step
    for number in range(5, 27):
        orders[f"call-{number}"] = begin + step + [number, *([0, 1, 2, 3, 0, 1] * 2)]
    adapted = [USUAL, 1, 0, ADAPTERS, CREATE, 0, 0, 0, 0] + step
    orders["adapters"] = [*adapted, EXPORT, 0, 0, USE, 0, 0, PREDICT, 0, OUTPUTS, 0, 3, *[0] * 8,
                          READ, 7, 0, 0, 0, 7, 0, USE, 1, 1, LOAD, 0, 0, MERGE, 0, 0, 0, 0, CHECK, 0, 1, 0]
    for number in range(28, 37):
        orders[f"call-{number}"] = adapted + [PREDICT, 0, number, *([0, 1, 2, 3, 0, 1] * 2)]
    chance = random.Random(1)
    for i in range(8):
        orders[f"any-{i}"] = begin + [chance.randrange(240) for _ in range(60)]
    for name, order in orders.items():
        put("calls", name, bytes(order))


def main():
    for target in ("onnx", "graph", "plan", "hardware", "checkpoint", "ort_checkpoint", "npy", "safetensors", "tokens", "calls"):
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith(("found-", "reached-")):
                old.unlink()
    write_models()
    write_plans()
    write_machines()
    write_checkpoints()
    put("ort_checkpoint", "state", (FIXTURES / "artifacts/state/mlp_checkpoint").read_bytes())
    put("ort_checkpoint", "plain", (FIXTURES / "artifacts/plain/checkpoint").read_bytes())
    put("onnx", "training-info", (FIXTURES / "training_info/adam.onnx").read_bytes())
    write_arrays()
    write_tokens()
    write_calls()


if __name__ == "__main__":
    main()
