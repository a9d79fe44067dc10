// Functions on parts of a file's graph. They find the nodes that some values need, and drop elements of lists.
#pragma once

#include <string>
#include <vector>

#include "onnx_import/messages.h"
#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Adds to `reads` the names that a node and its bodies read. A body may read names of the graphs around it.
void add_reads(const NodeProto &node, std::vector<std::string> &reads);

// Marks the nodes that the values `wanted` need, directly or through other nodes.
std::vector<bool> needed_nodes(const GraphProto &graph, const std::vector<std::string> &wanted);

// Drops the elements of a list for which drops(element, index) is true.
template <typename Message, typename Drops>
void drop(google::protobuf::RepeatedPtrField<Message> &list, Messages &messages, const Drops &drops) {
  auto &all = messages.make<google::protobuf::RepeatedPtrField<Message>>();
  all.Swap(&list);
  for (int i = 0; i < all.size(); ++i)
    if (!drops(all.Get(i), i)) list.Add()->Swap(all.Mutable(i));
}

// Returns the shortest text that stands for the number as a float32.
std::string text_of_float(double number);

}  // namespace protrain::onnx_import
