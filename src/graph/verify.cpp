// Checks what every pass must preserve: each value is typed, made once, and made before it is read.
#include "base/error.h"
#include "graph/graph.h"

namespace protrain::graph {

namespace {

class Verifier {
 public:
  explicit Verifier(const Graph &graph) : graph_(graph), written_(graph.value_count(), false) {
    for (std::size_t i = 0; i < graph.value_count(); ++i)
      written_[i] = graph.value(static_cast<ValueId>(i)).origin != Origin::node;
  }

  void run() {
    for (std::size_t i = 0; i < graph_.node_count(); ++i) {
      const Node &node = graph_.nodes()[i];
      for (ValueId in : node.inputs) read(in, node);
      for (ValueId out : node.outputs) write(out, node, static_cast<NodeId>(i));
    }
    for (ValueId out : graph_.outputs) read(out, Node{.op = "graph output"});
  }

 private:
  void check_id(ValueId id, const Node &node) const {
    require(index(id) < graph_.value_count(), Code::internal, node.name, "{} names a value that does not exist",
            node.op);
    require(graph_.value(id).type.dtype != DType::none, Code::internal, graph_.value(id).name,
            "a value of {} has no type", node.op);
  }
  void read(ValueId id, const Node &node) const {
    if (id == ValueId::none) return;
    check_id(id, node);
    require(written_[index(id)], Code::internal, graph_.value(id).name, "{} ({}) reads a value before it is made",
            node.op, node.name);
  }
  void write(ValueId id, const Node &node, NodeId at) {
    if (id == ValueId::none) return;
    check_id(id, node);
    require(!written_[index(id)] && graph_.value(id).producer == at, Code::internal, graph_.value(id).name,
            "{} ({}) makes a value that was made before", node.op, node.name);
    written_[index(id)] = true;
  }

  const Graph &graph_;
  std::vector<bool> written_;
};

}  // namespace

void verify(const Graph &graph) { Verifier(graph).run(); }

}  // namespace protrain::graph
