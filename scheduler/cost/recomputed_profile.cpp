#include "scheduler/cost/recomputed_profile.hpp"

#include <map>
#include <string>

#include "runtime/vocabulary/recomputation.hpp"

namespace troupe::scheduler {

namespace {

/// Per kind that is recomputed: width of its rows.
std::map<std::string, std::int64_t> recomputed_kinds(const ModelGraph& graph,
                                                     const Profile& profile) {
  std::map<std::string, std::string> kind_of;
  for (const auto& entry : profile.layers) kind_of[entry.layer] = entry.kind;
  std::map<std::string, std::int64_t> widths;
  for (const ModuleSpec& module : graph.modules)
    for (std::size_t l = 0; l < module.layers.size(); ++l)
      if (is_recomputed(static_cast<std::int32_t>(l), module.layers.size()))
        if (const auto kind = kind_of.find(module.layers[l].name); kind != kind_of.end())
          widths.emplace(kind->second, module.hidden_width);
  return widths;
}

}  // namespace

Profile with_recomputation(const ModelGraph& graph, Profile profile, double element_bytes) {
  const auto widths = recomputed_kinds(graph, profile);
  for (LayerProfile& entry : profile.profiles) {
    const auto width = widths.find(entry.kind);
    if (width == widths.end()) continue;
    const double row = element_bytes * static_cast<double>(width->second) /
                       static_cast<double>(entry.parallelism.cp);
    for (ProfilePoint& point : entry.points) {
      for (PartCost* part : {&point.linear, &point.attention}) {
        part->input_grad_ms += part->forward_ms;
        part->activation_bytes = 0;
      }
      point.linear.activation_bytes = row * static_cast<double>(point.tokens);
    }
  }
  return profile;
}

}  // namespace troupe::scheduler
