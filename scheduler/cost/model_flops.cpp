#include "scheduler/cost/model_flops.hpp"

#include <cassert>
#include <utility>

#include "runtime/vocabulary/module_rows.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/iteration/redistribution.hpp"

namespace troupe::scheduler {

namespace {

/// What one sample brings to a layer, and which gradients it wants there.
struct LayerLoad {
  double rows = 0;
  double pairs = 0;
  bool trains = false;
  bool trained_before = false;
};

/// Pairs of rows that attend in one layer, for the sequences of a sample.
double pairs_of(const LayerWork& work, const SampleShape& sample,
                std::span<const TokenCount> lengths) {
  if (work.attention && work.attention->by_modality) return seen_pairs(token_sample(sample));
  double pairs = 0;
  for (const TokenCount length : lengths)
    pairs += work.attention_pairs(static_cast<double>(length));
  return pairs;
}

double flops_of(const LayerWork& work, const LayerLoad& load) {
  const double products = 2 * work.used_weights * load.rows;
  const double entry = 2 * work.entry_weights * load.rows;
  const double attention = work.attention_flops() * load.pairs;
  double flops = products + attention;
  if (load.trains) flops += products;
  // Scores and values are two products, each differentiated for both of its factors.
  if (load.trains || load.trained_before) flops += products - entry + 2 * attention;
  if (load.trained_before) flops += entry;
  return flops;
}

}  // namespace

ModelFlops::ModelFlops(ModelGraph graph, const std::vector<ModuleConfig>& modules)
    : graph_(std::move(graph)), works_(model_works(graph_, modules)) {
  for (std::size_t m = 0; m < works_.size(); ++m)
    assert(works_[m].size() == graph_.modules[m].layers.size());
}

double ModelFlops::of(std::span<const SampleShape> samples) const {
  const RowFlow flow(graph_, samples);
  double flops = 0;
  for (std::size_t m = 0; m < works_.size(); ++m) {
    const ModuleId module{m};
    for (std::size_t s = 0; s < samples.size(); ++s) {
      if (output_rows(graph_, module, samples[s]) == 0) continue;
      const auto lengths = sequence_lengths(graph_, samples[s], module);
      for (std::size_t l = 0; l < works_[m].size(); ++l) {
        const LayerId layer{module, static_cast<std::int32_t>(l)};
        const LayerWork& work = works_[m][l];
        LayerLoad load{0, pairs_of(work, samples[s], lengths), trains(graph_, layer),
                       flow.wants_gradient(module, layer.layer, static_cast<std::int32_t>(s))};
        for (const TokenCount length : lengths) load.rows += static_cast<double>(length);
        if (is_head(graph_, layer)) load.rows = static_cast<double>(samples[s].trained_tokens);
        flops += flops_of(work, load);
      }
    }
  }
  return flops;
}

}  // namespace troupe::scheduler
