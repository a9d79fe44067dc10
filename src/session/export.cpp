#include "session/export.h"

#include "base/error.h"

namespace protrain::session {

namespace {

// Returns a function that reads the values to export. These are the weights, or with export_weights=ema the moving
// average of trained weights. Until a step has changed the weights, there is no moving average yet, and the weights are
// exported.
draft::Values values_of(const ExportSource &from) {
  const bool average = from.draft.settings.export_average && from.stepped;
  return [&, average](const std::string &name, std::byte *out) {
    const std::optional<std::size_t> p = from.parameters.find(name);
    if (!p) return false;
    const std::size_t array = average && from.draft.programs.state.parameters[*p].trained ? kAverageArray : 0;
    from.read(*p, array, 0, {out, from.parameters.elements(*p) * sizeof(float)});
    return true;
  };
}

}  // namespace

void export_model(const ExportSource &from, const std::string &path) {
  const draft::Draft &draft = from.draft;
  draft::export_model({.file = *draft.file,
                       .graph = draft.first().forward,
                       .splits = draft.splits,
                       .ties = draft.ties,
                       .adapters = draft.adapters,
                       .rounded = draft.rounded,
                       .as_computed = draft.settings.export_as_computed,
                       .adapters_as_inputs = draft.settings.export_adapters_as_inputs},
                      values_of(from), path);
}

void export_adapters(const ExportSource &from, const std::string &directory) {
  const draft::Draft &draft = from.draft;
  const Parameters &parameters = from.parameters;
  for (const std::size_t p : parameters.shown())
    require(
        passes::find_matrix(draft.adapters, parameters.name(p)) != nullptr, Code::unsupported, parameters.name(p),
        "the session changes this too, and a file of adapters cannot hold it; export the model, or save a checkpoint");
  const draft::Values values = values_of(from);
  const auto values_of_matrix = [&](const passes::AdapterMatrix &matrix) {
    std::vector<float> found(static_cast<std::size_t>(element_count(matrix.shape)));
    values(matrix.name, std::as_writable_bytes(std::span(found)).data());
    return found;
  };
  draft::write_adapters(directory, draft.adapters, values_of_matrix, [&](const passes::Adapter &adapter) {
    const DType computed = draft.file->computed_dtype(draft.in_file(adapter.parameter));
    return draft.settings.export_as_computed ? DType::f32 : computed;
  });
}

std::vector<AdapterValues> read_adapters(const draft::AdapterFile &file, const std::vector<passes::Adapter> &from,
                                         const std::vector<passes::Adapter> &to, const Parameters &parameters) {
  std::vector<AdapterValues> all;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const double factor = from[i].request.scale() / to[i].request.scale();
    for (const passes::AdapterMatrix passes::Adapter::*matrix : {&passes::Adapter::a, &passes::Adapter::b}) {
      const std::size_t p = *parameters.find((to[i].*matrix).name);
      std::vector<float> values(parameters.elements(p));
      file.read((from[i].*matrix).tensor, 0, values);
      if (factor != 1 && matrix == &passes::Adapter::b)
        for (float &value : values) value = static_cast<float>(value * factor);
      all.push_back({p, std::move(values)});
    }
  }
  return all;
}

}  // namespace protrain::session
