#include "session/export.h"

#include "base/error.h"

namespace protrain::session {

namespace {

draft::Values values_of(const Parameters &parameters, const state::Read &read) {
  return [&](const std::string &name, std::byte *out) {
    const std::optional<std::size_t> p = parameters.find(name);
    if (p) read(*p, 0, 0, {out, parameters.elements(*p) * sizeof(float)});
    return p.has_value();
  };
}

}  // namespace

void export_model(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                  const std::string &path) {
  draft::export_model({.file = *draft.file,
                       .graph = draft.first().forward,
                       .splits = draft.splits,
                       .ties = draft.ties,
                       .adapters = draft.adapters,
                       .rounded = draft.rounded,
                       .as_computed = draft.settings.export_as_computed},
                      values_of(parameters, read), path);
}

void export_adapters(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                     const std::string &directory) {
  require(!draft.adapters.empty(), Code::state, "adapters",
          "the session has none; create it with the option lora or adapter");
  for (const std::size_t p : parameters.shown())
    require(
        passes::find_matrix(draft.adapters, parameters.name(p)) != nullptr, Code::unsupported, parameters.name(p),
        "the session changes this too, and a file of adapters cannot hold it; export the model, or save a checkpoint");
  const draft::Values values = values_of(parameters, read);
  draft::write_adapters(directory, draft.adapters, [&](const passes::AdapterMatrix &matrix) {
    std::vector<float> found(static_cast<std::size_t>(element_count(matrix.shape)));
    values(matrix.name, std::as_writable_bytes(std::span(found)).data());
    return found;
  });
}

}  // namespace protrain::session
