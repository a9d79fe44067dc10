#!/usr/bin/env python3
"""The other peer of bench/step.py: trains the same file with the last version of onnxruntime-training.

    onnxruntime_training.py MODEL.onnx BATCH SEQUENCE STEPS
        prints the seconds of each step and the peak of resident memory, as JSON

The model has input_ids and labels, a scalar loss, and opset 21 at most. Trains with AdamW on random tokens. Needs
Python 3.11 and from PyPI onnxruntime-training==1.19.2, torch (which it imports), onnx<1.17, numpy<2, cerberus, h5py."""
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings

warnings.simplefilter("ignore")
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime as ort  # noqa: E402
from onnxruntime.training import api, artifacts  # noqa: E402

LEAST_VOCABULARY = 30000


# Adds outputs that ONNX makes optional, because onnxruntime's gradient builder needs them.
def complete(model):
    for node in model.graph.node:
        if node.op_type == "SoftmaxCrossEntropyLoss" and len(node.output) == 1:
            node.output.append(node.output[0] + "/log_prob")
        if node.op_type == "LayerNormalization" and len(node.output) == 1:
            node.output.extend(node.output[0] + part for part in ("/mean", "/inverse_deviation"))
    model.ir_version = min(model.ir_version, 10)


def prepare(path, folder):
    model = onnx.load(path)
    complete(model)
    weights = [w.name for w in model.graph.initializer
               if w.data_type == onnx.TensorProto.FLOAT and np.prod(w.dims) >= 64]
    artifacts.generate_artifacts(model, requires_grad=weights, loss=None, optimizer=artifacts.OptimType.AdamW,
                                 artifact_directory=folder)


def main(path, batch, sequence, steps):
    with tempfile.TemporaryDirectory() as folder:
        preparing = multiprocessing.Process(target=prepare, args=(path, folder))  # its memory must not count as the step's
        preparing.start()
        preparing.join()
        options = ort.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        state = api.CheckpointState.load_checkpoint(os.path.join(folder, "checkpoint"))
        module = api.Module(os.path.join(folder, "training_model.onnx"), state,
                            os.path.join(folder, "eval_model.onnx"), device="cpu", session_options=options)
        optimizer = api.Optimizer(os.path.join(folder, "optimizer_model.onnx"), module)
        ids = np.random.randint(3, LEAST_VOCABULARY, (batch, sequence)).astype(np.int64)
        seconds = []
        module.train()
        for _ in range(steps):
            start = time.perf_counter()
            module(ids, ids)
            optimizer.step()
            module.lazy_reset_grad()
            seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "threads": options.intra_op_num_threads,
                      "onnxruntime": ort.__version__}))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
