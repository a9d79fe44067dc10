"""Makes random weights for a model that comes without its weights: weights.py MODEL.onnx FOLDER

FOLDER gets a copy of MODEL.onnx and a file of random numbers, which all tensors share. Each tensor begins at another
place, but they overlap. So a model of 7 billion parameters takes half a gigabyte instead of 29, on disk and in the
system's cache. Times are those of real weights, losses are not. A tensor of one dimension is all ones if its name ends
in "weight" (a scale), else all zeros. The library refuses tensors that overlap in one file, so each tensor has its own
hard link to the file. In the copy, locations and offsets are replaced by texts of the same length. Needs only numpy."""
import os
import sys

import numpy

GRAPH, INITIALIZER = 7, 5                                     # fields of ModelProto and GraphProto
DIMS, TYPE, NAME, EXTERNAL = 1, 2, 8, 13                               # fields of TensorProto
KEY, VALUE = 1, 2                                             # fields of an entry of external_data
STEP = 4096                                                   # bytes from one tensor's place to the next one's


def fields(data, begin, end):
    """Yields (number, wire type, begin, end) for each field. For a number, the last two are its value and None."""
    at = begin
    while at < end:
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
            yield number, value, None
            continue
        length, at = varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        yield number, at, at + length
        at += length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at


def external_tensors(data):
    """Yields (name, number of dimensions, {key: (begin, end) of its value}) for each initializer with external data."""
    for number, begin, end in fields(data, 0, len(data)):
        if number != GRAPH:
            continue
        for number, begin, end in fields(data, begin, end):
            if number != INITIALIZER:
                continue
            name, rank, places = "", 0, {}
            for number, begin_of, end_of in fields(data, begin, end):
                if number == NAME:
                    name = bytes(data[begin_of:end_of]).decode()
                elif number == TYPE and begin_of != 1:
                    raise SystemExit(f"an initializer of element type {begin_of}; all are to be float32")
                elif number == DIMS:  # one by one, or packed
                    rank += 1 if end_of is None else sum(byte < 128 for byte in data[begin_of:end_of])
                elif number == EXTERNAL:
                    entry = {n: (b, e) for n, b, e in fields(data, begin_of, end_of)}
                    places[bytes(data[slice(*entry[KEY])]).decode()] = entry[VALUE]
            if places:
                yield name, rank, places


def write_numbers(path, size):
    block = numpy.random.default_rng(0).standard_normal(1 << 22, dtype=numpy.float32) * numpy.float32(0.02)
    with open(path, "wb") as file:
        for at in range(0, size, block.nbytes):
            file.write(numpy.roll(block, at // STEP)[: (size - at) // 4].tobytes())


def main(model, folder):
    data = bytearray(open(model, "rb").read())

    def text(place):
        return bytes(data[slice(*place)]).decode()

    def replace(place, by, fill):
        begin, end = place
        if len(by) > end - begin:
            raise SystemExit(f"{model}: there is no room for {by} in place of {text(place)}")
        data[begin:end] = (by.rjust(end - begin, fill)).encode()

    tensors = list(external_tensors(data))
    lengths = [int(text(places["length"])) for _, _, places in tensors]
    longest = (max(lengths) + STEP * len(tensors)) // STEP * STEP
    os.makedirs(folder, exist_ok=True)
    files = {kind: os.path.join(folder, f"{os.path.basename(model)}.{kind}") for kind in ("numbers", "ones", "zeros")}
    flat = max((length for length, (_, rank, _) in zip(lengths, tensors) if rank == 1), default=0)
    write_numbers(files["numbers"], longest)
    numpy.ones(flat // 4, numpy.float32).tofile(files["ones"])
    numpy.zeros(flat // 4, numpy.float32).tofile(files["zeros"])
    for index, (name, rank, places) in enumerate(tensors):
        kind = "numbers" if rank != 1 else "ones" if name.endswith("weight") else "zeros"
        if "offset" in places:
            offset = str(STEP * index if rank != 1 else 0)
            fits = len(offset) <= len(text(places["offset"]))  # the first tensors' offsets have few digits
            replace(places["offset"], offset if fits else "0", "0")
        replace(places["location"], str(index), "w")
        link = os.path.join(folder, text(places["location"]))
        if os.path.lexists(link):
            os.remove(link)
        os.link(files[kind], link)
    with open(os.path.join(folder, os.path.basename(model)), "wb") as file:
        file.write(data)
    print(f"{model}: {len(tensors)} tensors of {sum(lengths)} bytes are read from {longest + 2 * flat}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
