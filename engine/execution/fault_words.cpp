#include "engine/execution/fault_words.hpp"

#include <cstddef>

#include "runtime/vocabulary/joined.hpp"

namespace troupe::engine {

namespace {

/// So many samples of a part are named.
constexpr std::size_t kNamedSamplesMax = 3;

}  // namespace

std::string stage_with_layers(const ParallelPlan& plan, StageId id) {
  std::vector<std::string> layers;
  for (const LayerRun& run : plan.at(id).runs)
    layers.push_back(plan.model.at(run.module).name + " layers " +
                     std::to_string(run.layers.begin) + " to " +
                     std::to_string(run.layers.end - 1));
  return "stage " + std::to_string(id.index()) + " (" + joined(layers) + ")";
}

std::string part_words(const std::vector<std::string>& sample_ids, MicrobatchId microbatch) {
  std::vector<std::string> samples;
  for (const std::string& id : sample_ids) samples.push_back("'" + id + "'");
  return (samples.empty() ? "" : " for samples " + joined_up_to(kNamedSamplesMax, samples)) +
         " of microbatch " + std::to_string(microbatch.index());
}

}  // namespace troupe::engine
