"""Makes the same model with more or fewer layers. Layer k is the nodes that compute with initializers called ...h.k...

Needs the onnx package (PyPI). Works on files without weights: a copied layer's initializers get places of their own
behind the others in the data file, which need not exist."""
import os
import re

import onnx

LAYER = re.compile(r"^(.*\.h\.)(\d+)(\..*)$")
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"  # the exporter's list of parameters


class Stack:
    """A model as layers of nodes: the head, then layer 0, 1, ..., then the tail."""

    def __init__(self, path):
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.model = onnx.load(path, load_external_data=False)
        self.nodes = list(self.model.graph.node)
        self.starts = []
        for at, node in enumerate(self.nodes):
            layers = [int(found[2]) for found in map(LAYER.match, node.input) if found]
            if layers and layers[0] == len(self.starts):
                self.starts.append(at)
        self.count = len(self.starts)

    def layer(self, k):
        return self.nodes[self.starts[k]:self.starts[k + 1]]

    def way_out(self, k):
        """The value that layer k hands on: the output of its last node. Layers after 0 hand on nothing else."""
        made = {name for node in self.layer(k) for name in node.output}
        read = {name for node in self.nodes[self.starts[k + 1]:] for name in node.input}
        last = self.nodes[self.starts[k + 1] - 1].output[0]
        if last not in read or (k > 0 and made & read != {last}):
            raise SystemExit(f"{self.name}: layer {k} hands on {sorted(made & read)}, not one value")
        return last

    def write(self, layers, path):
        """The model with `layers` layers at `path`."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        middle = self.count // 2
        if layers >= self.count:
            self.add(model, middle, layers - self.count)
        else:
            self.remove(model, middle, self.count - layers)
        # The list lacks the copied layers' parameters, and the library would take those for constants.
        for properties in (model.metadata_props, model.graph.metadata_props):
            for entry in [entry for entry in properties if entry.key == SIGNATURE]:
                properties.remove(entry)
        for initializer in model.graph.initializer:
            for entry in initializer.external_data:
                if entry.key == "location":
                    entry.value = os.path.basename(path) + ".data"
        onnx.save(model, path)

    def add(self, model, k, more):
        """Inserts copies of layer k behind it, one after the other."""
        nodes, value, way_in = [], self.way_out(k), self.way_out(k - 1)
        for copy in range(more):
            new = {name: f"{name}.copy{copy}" for node in self.layer(k) for name in node.output}
            new[way_in] = value
            for node in self.layer(k):
                for name in node.input:
                    if (found := LAYER.match(name)) and name not in new:
                        new[name] = f"{found[1]}{self.count + copy}{found[3]}"
                nodes.append(renamed(node, new, f".copy{copy}"))
            value = new[self.nodes[self.starts[k + 1] - 1].output[0]]
        new = {self.way_out(k): value}
        behind = [renamed(node, new) for node in self.nodes[self.starts[k + 1]:]]
        del model.graph.node[:]
        model.graph.node.extend(self.nodes[:self.starts[k + 1]] + nodes + behind)
        self.add_initializers(model, k, more)

    def add_initializers(self, model, k, more):
        own = [i for i in self.model.graph.initializer if (found := LAYER.match(i.name)) and int(found[2]) == k]
        end = max(where(i)["offset"] + where(i)["length"] for i in self.model.graph.initializer if i.external_data)
        for copy in range(more):
            for initializer in own:
                clone = model.graph.initializer.add()
                clone.CopyFrom(initializer)
                found = LAYER.match(initializer.name)
                clone.name = f"{found[1]}{self.count + copy}{found[3]}"
                for entry in clone.external_data:
                    if entry.key == "offset":
                        entry.value = str(end)
                end += where(initializer)["length"]

    def remove(self, model, k, fewer):
        """Removes layers k - fewer + 1 to k. Layer 0 must stay, because it makes values that all others read."""
        first = max(1, k - fewer + 1)
        last = first + fewer - 1
        if last + 1 >= self.count:
            raise SystemExit(f"{self.name} has too few layers to lose {fewer}")
        new = {self.way_out(last): self.way_out(first - 1)}
        behind = [renamed(node, new) for node in self.nodes[self.starts[last + 1]:]]
        del model.graph.node[:]
        model.graph.node.extend(self.nodes[:self.starts[first]] + behind)
        kept = [i for i in self.model.graph.initializer
                if not (found := LAYER.match(i.name)) or not first <= int(found[2]) <= last]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)

    def elements(self, layers):
        """The number of elements of all initializers, if there were `layers` layers as large as the middle one."""
        def count(initializer):
            product = 1
            for dim in initializer.dims:
                product *= dim
            return product
        each = [(LAYER.match(i.name), count(i)) for i in self.model.graph.initializer]
        outside = sum(n for found, n in each if not found)
        return outside + layers * sum(n for found, n in each if found and int(found[2]) == self.count // 2)


def where(initializer):
    found = {entry.key: entry.value for entry in initializer.external_data}
    return {"offset": int(found.get("offset", 0)), "length": int(found.get("length", 0))}


def renamed(node, new, suffix=""):
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name += suffix
    for names in (copy.input, copy.output):
        for i, name in enumerate(names):
            names[i] = new.get(name, name)
    return copy
