// The calls of a Session between steps: parameters, adapters, exports and checkpoints.
#include <optional>
#include <span>

#include "base/error.h"
#include "session/checkpoint.h"
#include "session/export.h"
#include "session/report.h"
#include "session/session.h"

namespace protrain::session {

std::size_t Session::find_parameter(const std::string &name, std::size_t count) const {
  const std::optional<std::size_t> p = machine_.parameters().find(name);
  require(p.has_value(), Code::arg, name, "the model has no parameter {}", name);
  const std::size_t elements = machine_.parameters().elements(*p);
  require(count == elements, Code::shape, name, "parameter {} has {} elements, not {}", name, elements, count);
  return *p;
}

void Session::read_parameter(const std::string &name, float *out, std::size_t count) {
  guarded([&] {
    std::size_t p = 0;
    meet(Call::read, [&] { return p = find_parameter(name, count); });
    settle();
    machine_.parameters().read(p, 0, 0, std::as_writable_bytes(std::span(out, count)));
  });
}

void Session::write_parameter(const std::string &name, const float *values, std::size_t count) {
  guarded([&] {
    std::size_t p = 0;
    meet(Call::write, [&] { return p = find_parameter(name, count); });
    settle();
    machine_.parameters().write_together({{p, 0, std::as_bytes(std::span(values, count))}});
  });
}

void Session::read_flat_parameters(float *out, std::size_t count) {
  guarded([&] {
    meet_flat(Call::read, count);
    machine_.parameters().read_all(machine_.parameters().shown(), {out, count});
  });
}

void Session::write_flat_parameters(const float *values, std::size_t count) {
  guarded([&] {
    meet_flat(Call::write, count);
    std::vector<Parameters::NewValues> changes;
    for (const std::size_t p : machine_.parameters().shown()) {
      const std::span<const float> own(values, machine_.parameters().elements(p));
      changes.push_back({p, 0, std::as_bytes(own)});
      values += own.size();
    }
    machine_.parameters().write_together(changes);
  });
}

// Begins a call that reads or writes all parameters that the session shows. Their values lie one after the other in a
// buffer of `count` elements.
void Session::meet_flat(Call call, std::size_t count) {
  meet(call, [&] {
    require(count == flat_parameters_elements(), Code::shape, "values",
            "the parameters have {} elements together, not {}", flat_parameters_elements(), count);
    return parameter_count();
  });
  settle();
}

void Session::read_grad(const std::string &name, float *out, std::size_t count) {
  const std::span<float> values(out, count);
  guarded([&] {
    std::size_t p = 0;
    double factor = 1;
    meet(Call::read_grad, [&] {
      require_training("has no gradients");
      p = find_parameter(name, count);
      require(draft().kept[p], Code::arg, name,
              "the gradient of {} is not kept; create the session with keep_gradients={}", name, name);
      factor = account_.gradient_factor(name);
      return p;
    });
    machine_.parameters().read_grad(p, values);
    if (factor == 1) return;
    for (float &value : values) value *= static_cast<float>(factor);
  });
}

void Session::export_model(const std::string &path) { write_export(path, session::export_model); }

void Session::export_adapters(const std::string &directory) {
  require_adapters();
  write_export(directory, session::export_adapters);
}

// Reads all values before the ranks agree on the change, so that a file which cannot be read changes nothing. If the
// session keeps a moving average of the weights, the average begins anew at the loaded values.
void Session::load_adapters(const std::string &directory) {
  guarded([&] {
    std::vector<AdapterValues> loaded;
    meet(Call::write, [&] {
      require_adapters();
      std::vector<passes::Adapter> adapters = draft().adapters;
      const draft::AdapterFile file = draft::AdapterFile::open(directory);
      file.give(adapters);
      loaded = read_adapters(file, adapters, draft().adapters, machine_.parameters());
      return parameter_count();
    });
    const bool averages = draft().settings.optimizer.average > 0;
    std::vector<Parameters::NewValues> changes;
    for (const auto &[parameter, values] : loaded) {
      changes.push_back({parameter, 0, std::as_bytes(std::span(values))});
      if (averages) changes.push_back({parameter, kAverageArray, std::as_bytes(std::span(values))});
    }
    settle();
    machine_.parameters().write_together(changes);
  });
}

void Session::use_adapters(bool use) {
  guarded([&] {
    meet(Call::use_adapters, [&] {
      require_adapters();
      return std::size_t{use};
    });
    settle();
    outputs_.forget();
    machine_.parameters().use_adapters(use);
  });
}

void Session::require_adapters_in_use() const {
  require(machine_.parameters().uses_adapters(), Code::state, "adapters",
          "they are switched off, and only evaluations and predictions are possible; switch them on first");
}

void Session::require_adapters() const {
  require(!draft().adapters.empty(), Code::state, "adapters",
          "the session has none; create it with the option lora or adapter");
}

void Session::write_export(const std::string &path, Export *write) {
  guarded([&] {
    meet(Call::export_model, [&] {
      require_training("exports nothing");
      return std::size_t{0};
    });
    settle();
    const run::Store::Sweep sweep(machine_.store());
    ranks_.on_rank_0(machine_.parameters(), [&](const state::Read &read) {
      write({draft(), machine_.parameters(), read, account_.counters().steps > account_.counters().skipped}, path);
      return std::string();
    });
  });
}

std::string Session::save(const std::string &directory) {
  const std::string path = guarded([&] {
    const auto prepare = [&] {
      require_training("has no optimizer state to save");
      account_.require_complete("session", "; save before it or after its last batch");
      return std::size_t{0};
    };
    meet(Call::save, prepare);
    settle();
    const run::Store::Sweep sweep(machine_.store());
    return session::save(machine_, account_.counters(), ranks_, directory);
  });
  log_line([&] { return saved_json(step_count(), path); });
  return path;
}

}  // namespace protrain::session
