#include "engine/nominal_profile.hpp"

#include <set>

#include "scheduler/roofline.hpp"
#include "scheduler/stage_graph.hpp"

namespace troupe::engine {

namespace {

/// Columns of the rows that a module gets from the modules before it; 0 for an encoder.
std::int64_t input_width(const ModelGraph& model, ModuleId module) {
  const auto before = scheduler::predecessors(model, module);
  return before.empty() ? 0 : model.at(before.front()).output_width;
}

}  // namespace

scheduler::DeviceSpec nominal_cpu() {
  return {"cpu (computed)", 0.02, 0.05, 0.025, 10, Bytes{std::int64_t{16} << 30}, 5};
}

Result<scheduler::Profile> nominal_profile(const JobSetup& setup,
                                           const scheduler::DeviceSpec& device) {
  scheduler::Profile profile;
  profile.device = device.name;
  scheduler::RooflineOptions options;
  options.dtype = setup.job.train.dtype;
  options.launch_ms = 0.01;
  std::set<std::string> known;
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    const ModuleSpec& spec = setup.model.modules[m];
    for (const auto& config : setup.modules()) {
      if (config.name != spec.name) continue;
      const auto works = scheduler::layer_works(config, input_width(setup.model, ModuleId{m}));
      if (works.size() != spec.layers.size())
        return Error{Errc::internal,
                     "module '" + spec.name + "' has " + std::to_string(spec.layers.size()) +
                         " layers, its computed profile " + std::to_string(works.size()),
                     {},
                     {}};
      std::vector<scheduler::LayerWork> fresh;
      for (std::size_t i = 0; i < works.size(); ++i) {
        profile.layers.push_back({spec.layers[i].name, works[i].kind});
        if (known.insert(works[i].kind).second) fresh.push_back(works[i]);
      }
      for (auto& entry : scheduler::computed_profiles(fresh, device, {{1, 1}}, options))
        profile.profiles.push_back(std::move(entry));
    }
  }
  return profile;
}

}  // namespace troupe::engine
