#!/usr/bin/env python3
"""Writes cases-7-12.bin: ONNX's node tests for the forms that operators had in opsets 7 to 12 and have no more.

usage: make_old_cases.py OUT WHEEL...    with PyPI's onnx 1.23.2, and the wheels of onnx 1.2.3, 1.3.0, 1.4.1, 1.5.0,
1.6.0 and 1.7.0, in this order, which hold the cases of opsets 7 to 12. The pack has the format of make_cases.py.
"""
import pathlib
import sys
import zipfile

import onnx
from onnx import defs

from make_cases import field, versions

NEWEST = 13
LARGEST_CASE = 8 * 1024  # bytes
KINDS_OF_CONTROL_FLOW = {"If", "Loop", "Scan"}


def form(op, opset):
    """The version of the operator's definition that holds in an opset."""
    known = [version for version in versions(op) if version <= opset]
    return known[-1] if known else None


def signature(op, opset):
    """What a node must look like: attributes with their defaults, and which inputs and outputs there are."""
    schema = defs.get_schema(op, opset)
    attributes = {(a.name, a.required, str(a.default_value)) for a in schema.attributes.values()}
    values = [[str(value.option) for value in group] for group in (schema.inputs, schema.outputs)]
    return attributes, values, schema.deprecated


def data_set(wheel, folder, kind):
    names = [name for name in wheel.namelist() if name.startswith(f"{folder}/test_data_set_0/{kind}_")]
    return [wheel.read(name) for name in sorted(names, key=lambda name: int(name.rsplit("_", 1)[1].split(".")[0]))]


def case(wheel, path):
    model = onnx.load_model_from_string(wheel.read(path))
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if len(model.graph.node) != 1 or opset is None or not 7 <= opset <= 12:
        return None
    op = model.graph.node[0].op_type
    if form(op, opset) is None or op in KINDS_OF_CONTROL_FLOW or signature(op, opset) == signature(op, NEWEST):
        return None
    folder = path.rsplit("/", 1)[0]
    name = f"{folder.rsplit('/', 1)[1]}_opset{opset}"
    data = field(1, name.encode()) + field(2, model.SerializeToString(deterministic=True))
    for number, kind in ((3, "input"), (4, "output")):
        for tensor in data_set(wheel, folder, kind):
            data += field(number, tensor)
    return (op, form(op, opset), folder), data if len(data) <= LARGEST_CASE else None


def main():
    found = {}
    for path in sys.argv[2:]:
        wheel = zipfile.ZipFile(path)
        for name in sorted(wheel.namelist()):
            made = case(wheel, name) if "/data/node/" in name and name.endswith("/model.onnx") else None
            if made is not None and made[1] is not None:
                found[made[0]] = made[1]  # of a newer release, which may have mended the case
    pack = b"".join(field(1, data) for _, data in sorted(found.items()))
    pathlib.Path(sys.argv[1]).write_bytes(pack)
    print(f"{len(found)} cases, {len(pack)} bytes")


if __name__ == "__main__":
    main()
