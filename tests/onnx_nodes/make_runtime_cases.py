#!/usr/bin/env python3
"""Writes cases-runtime.bin: forms of LSTM, GRU and RNN that ONNX's own cases lack, and what ONNX Runtime computes.

usage: make_runtime_cases.py OUT    with PyPI's onnx 1.23.2, onnxruntime 1.32.0 (CPU) and numpy
The pack has the form of make_cases.py.
"""
import pathlib
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from make_cases import field

STEPS, BATCH, FEATURES, UNITS = 4, 3, 2, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
NAMES = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
DRAWN = numpy.random.default_rng(7)


def floats(*shape):
    return DRAWN.uniform(-1, 1, shape).astype(numpy.float32)


def inputs_of(op, directions, given):
    """All inputs of the operator by name; those that `given` does not name are None."""
    rows = GATES[op] * UNITS
    made = {"X": floats(STEPS, BATCH, FEATURES), "W": floats(directions, rows, FEATURES),
            "R": floats(directions, rows, UNITS), "B": floats(directions, 2 * rows),
            "sequence_lens": numpy.array([4, 1, 3], numpy.int32), "initial_h": floats(directions, BATCH, UNITS),
            "initial_c": floats(directions, BATCH, UNITS), "P": floats(directions, 3 * UNITS)}
    return [made[name] if name in {"X", "W", "R"} | set(given) else None for name in NAMES[:8 if op == "LSTM" else 6]]


def case(name, op, given=("B", "sequence_lens", "initial_h", "initial_c"), direction="forward", outputs=None, **attributes):
    inputs = inputs_of(op, 2 if direction == "bidirectional" else 1, given)
    named = ["Y", "Y_h", "Y_c"][:3 if op == "LSTM" else 2]
    made = [output if outputs is None or output in outputs else "" for output in named]
    node = helper.make_node(op, [n if x is not None else "" for n, x in zip(NAMES, inputs)], made, name=op,
                            hidden_size=UNITS, direction=direction, **attributes)
    present = [(n, x) for n, x in zip(NAMES, inputs) if x is not None]
    types = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
    infos = [helper.make_tensor_value_info(n, types[x.dtype.name], x.shape) for n, x in present]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in made if n]
    model = helper.make_model(helper.make_graph([node], "g", infos, results),
                              opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, dict(present))
    for info, array in zip(model.graph.output, found):
        info.CopyFrom(helper.make_tensor_value_info(info.name, TensorProto.FLOAT, array.shape))
    data = field(1, f"test_runtime_{name}".encode()) + field(2, model.SerializeToString(deterministic=True))
    for number, arrays in ((3, [x for _, x in present]), (4, found)):
        for array in arrays:
            data += field(number, numpy_helper.from_array(numpy.ascontiguousarray(array)).SerializeToString())
    return field(1, data)


def cases():
    for op in GATES:
        for direction in ("forward", "reverse", "bidirectional"):
            yield case(f"{op.lower()}_{direction}", op, direction=direction)
        yield case(f"{op.lower()}_weights_alone", op, given=())
        yield case(f"{op.lower()}_last_state", op, outputs=["Y_h"], direction="reverse")
        yield case(f"{op.lower()}_clip", op, clip=0.4)
    yield case("lstm_peepholes", "LSTM", given=NAMES[3:], direction="bidirectional")
    yield case("lstm_coupled", "LSTM", input_forget=1)
    yield case("lstm_last_cell", "LSTM", outputs=["Y_c"])
    yield case("lstm_activations", "LSTM", direction="bidirectional", activation_alpha=[0.3, 1.2, 0.4, 0.7],
               activation_beta=[0.4, 0.9, 0.6],
               activations=["HardSigmoid", "Tanh", "ScaledTanh", "HardSigmoid", "LeakyRelu", "Softsign"])
    for direction in ("forward", "reverse", "bidirectional"):
        yield case(f"gru_linear_before_reset_{direction}", "GRU", direction=direction, linear_before_reset=1)
    yield case("gru_linear_before_reset_clip", "GRU", linear_before_reset=1, clip=0.3)
    yield case("gru_linear_before_reset_weights_alone", "GRU", given=(), linear_before_reset=1)
    yield case("gru_activations", "GRU", activations=["Sigmoid", "Elu"], activation_alpha=[0.6])
    for name, alpha, beta in (("Relu", [], []), ("Sigmoid", [], []), ("Softsign", [], []), ("Softplus", [], []),
                              ("Affine", [0.8], [0.1]), ("LeakyRelu", [0.2], []), ("ThresholdedRelu", [0.3], []),
                              ("ScaledTanh", [0.9], [1.1]), ("HardSigmoid", [0.3], [0.4]), ("Elu", [0.7], [])):
        given = {"activation_alpha": alpha} if alpha else {}
        if beta:
            given["activation_beta"] = beta
        yield case(f"rnn_{name.lower()}", "RNN", activations=[name], **given)
    for name in ("LeakyRelu", "HardSigmoid", "Elu"):
        yield case(f"rnn_default_{name.lower()}", "RNN", activations=[name])


def main():
    pack = b"".join(cases())
    pathlib.Path(sys.argv[1]).write_bytes(pack)
    print(f"{len(pack)} bytes")


if __name__ == "__main__":
    main()
