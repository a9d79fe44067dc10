#include "session/export.h"

#include "base/error.h"

namespace protrain::session {

namespace {

// Before the first step the moving average is that of no weights, and the weights stand for it.
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
                       .as_computed = draft.settings.export_as_computed},
                      values_of(from), path);
}

void export_adapters(const ExportSource &from, const std::string &directory) {
  const draft::Draft &draft = from.draft;
  const Parameters &parameters = from.parameters;
  require(!draft.adapters.empty(), Code::state, "adapters",
          "the session has none; create it with the option lora or adapter");
  for (const std::size_t p : parameters.shown())
    require(
        passes::find_matrix(draft.adapters, parameters.name(p)) != nullptr, Code::unsupported, parameters.name(p),
        "the session changes this too, and a file of adapters cannot hold it; export the model, or save a checkpoint");
  const draft::Values values = values_of(from);
  draft::write_adapters(directory, draft.adapters, [&](const passes::AdapterMatrix &matrix) {
    std::vector<float> found(static_cast<std::size_t>(element_count(matrix.shape)));
    values(matrix.name, std::as_writable_bytes(std::span(found)).data());
    return found;
  });
}

}  // namespace protrain::session
