#!/usr/bin/env python3
"""Writes cases-18-24.bin: ONNX's node tests for the operators that changed in opsets 18 to 24.

usage: make_cases.py OUT    with PyPI's onnx 1.23.2 and numpy; onnx's tests draw their inputs from fixed seeds
Debian's libonnx-testdata has the cases up to opset 17. The pack is a protobuf message without a schema:
1 repeated case {1 name, 2 model, 3 repeated input tensor, 4 repeated output tensor}.
"""
import pathlib
import sys
import warnings

import numpy
import onnx
import onnx.defs
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

FIRST, LAST = 18, 24
LARGEST_CASE = 16 * 1024  # bytes; larger cases are left out, because they differ from others only in size
# Operators that training does not need: they draw random numbers, compute with integers, cut images, handle text.
LEFT_OUT = {
    "Bernoulli", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "CastLike", "Cast",
    "Col2Im", "DeformConv", "Det", "GRU", "If", "ImageDecoder", "LSTM", "Loop", "LpPool",
    "MaxUnpool", "OptionalGetElement", "OptionalHasElement", "QLinearMatMul", "RNN",
    "RegexFullMatch", "Scan", "SplitToSequence", "StringConcat", "StringSplit", "TensorScatter", "Unique",
}


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def versions(op):
    return sorted({s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""})


def as_known(model):
    """The model under the newest opset that the importer accepts; None if the operator did not change from FIRST on."""
    node = model.graph.node
    if len(node) != 1 or node[0].domain or node[0].op_type in LEFT_OUT:
        return None
    known = [v for v in versions(node[0].op_type) if v <= LAST]
    if not known or known[-1] < FIRST:
        return None
    changed = model.opset_import[0].version > LAST
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.opset_import[0].version = known[-1]
    copy.ClearField("producer_name")
    copy.ir_version = min(copy.ir_version, 10)
    return copy, changed


def agrees(model, inputs, outputs):
    """True if the operator's older definition gives the outputs that the case expects of the newer one."""
    try:
        onnx.checker.check_model(model, full_check=True)
        names = [value.name for value in model.graph.input]
        found = ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))
        return all(numpy.allclose(f, o, rtol=1e-4, atol=1e-6) for f, o in zip(found, outputs))
    except Exception:  # pylint: disable=broad-except
        return False


def case(test):
    known = as_known(test.model) if test.model is not None else None
    if known is None:
        return b""
    model, changed = known
    inputs, outputs = test.data_sets[0]
    arrays = list(inputs) + list(outputs)
    if not all(isinstance(a, numpy.ndarray) or numpy.isscalar(a) for a in arrays):
        return b""
    arrays = [numpy.asarray(a) for a in arrays]
    known = [numpy.float32, numpy.int64, numpy.int32, numpy.bool_]
    if model.graph.node[0].op_type in ("QuantizeLinear", "DequantizeLinear"):
        known += [numpy.int8, numpy.uint8, numpy.int16, numpy.uint16]
    if any(a.dtype not in known for a in arrays):
        return b""
    if changed and not agrees(model, inputs, outputs):
        return b""
    data = field(1, test.name.encode()) + field(2, model.SerializeToString(deterministic=True))
    for number, group in ((3, inputs), (4, outputs)):
        for array in group:
            data += field(number, numpy_helper.from_array(numpy.asarray(array)).SerializeToString(deterministic=True))
    return field(1, data) if len(data) <= LARGEST_CASE else b""


def main():
    warnings.simplefilter("ignore")
    pack = b"".join(case(test) for test in sorted(collect_testcases(None), key=lambda t: t.name)
                    if not test.name.endswith("_expanded") and "_expanded_ver" not in test.name)
    pathlib.Path(sys.argv[1]).write_bytes(pack)
    print(f"{len(pack)} bytes")


if __name__ == "__main__":
    main()
