// A job small enough to follow by hand: a vision encoder, its projector and an llm, two pipelines
// on four nodes, and decoded samples that need no files.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/execution/sample_store.hpp"
#include "engine/iteration/batch_planner.hpp"
#include "engine/setup/job_setup.hpp"
#include "models/llama/family.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "runtime/data/reading/encode_text.hpp"
#include "runtime/data/reading/image_patches.hpp"

namespace troupe::engine {

inline job::Job tiny_job() {
  job::Job job;
  job.job.seed = 3;
  ModuleConfig vision{"vision", ModuleKind::encoder, "qwen2-vl", "projector", false, {}, 0.02, {}};
  vision.config =
      models::VisionConfig{.depth = 1, .embed_dim = 16, .num_heads = 2, .hidden_size = 24};
  ModuleConfig projector{"projector", ModuleKind::projector, "mlp", "llm", false, {}, 0.02, {}};
  projector.config = models::ProjectorConfig{};
  ModuleConfig llm{"llm", ModuleKind::llm, "llama", "", false, {}, 0.02, {}};
  llm.config = models::LlmConfig{.num_hidden_layers = 2,
                                 .hidden_size = 16,
                                 .intermediate_size = 24,
                                 .num_attention_heads = 2,
                                 .num_key_value_heads = 1};
  job.modules = {vision, projector, llm};
  job.parallel.mode = job::LayoutMode::manual;
  job.parallel.layout.pipelines = {
      {{0, 0, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}},
      {{2, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}}, {3, 0, {{"llm", LayerRange{2, 4}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 4;
  job.train.global_batch_size = 6;
  job.train.microbatches = 2;
  job.train.dtype = Dtype::fp64;
  return job;
}

/// A sample at `position`, with a picture of 4 x 4 patches where the position is even.
inline data::DecodedSample tiny_sample(std::int64_t position) {
  data::DecodedSample sample;
  sample.id = "s" + std::to_string(position);
  sample.where = "samples.json:" + std::to_string(position);
  sample.position = position;
  const bool image = position % 2 == 0;
  const std::vector<data::Turn> turns{
      {data::Role::user, std::string(image ? "<image>" : "") + "what?"},
      {data::Role::assistant, "number " + std::to_string(position)}};
  sample.text = data::encode_text(turns);
  sample.trained_tokens = sample.text.trained_tokens();
  sample.llm_tokens = static_cast<TokenCount>(sample.text.tokens.size());
  if (image) {
    std::vector<std::uint8_t> pixels(16 * 588);
    for (std::size_t i = 0; i < pixels.size(); ++i)  // About -0.9 to 0.9 when they are normalised.
      pixels[i] =
          static_cast<std::uint8_t>(65 + (i * 37 + static_cast<std::size_t>(position)) % 101);
    sample.images.push_back({data::patches_of(pixels, 4, 4, 2)});
    sample.llm_tokens += 3;  // One placeholder becomes four rows.
  }
  return sample;
}

/// What a node that decodes all of a batch of tiny samples reports.
inline BatchReport tiny_report(const JobSetup& setup, const ParallelPlan& plan,
                               std::int64_t batch) {
  BatchOrder order{1, batch, 0, {}};
  std::vector<data::DecodeOutcome> outcomes;
  const std::int64_t size = setup.job.train.global_batch_size;
  for (std::int64_t i = batch * size; i < (batch + 1) * size; ++i) {
    order.samples.push_back({i, all_encoders(plan.model), true});
    outcomes.emplace_back(tiny_sample(i));
  }
  return report_on(NodeId{0}, order, outcomes, setup, 0);
}

/// The same of lengths.
inline BatchReport tiny_lengths(const JobSetup& setup, const BatchOrder& order) {
  std::vector<data::MeasureOutcome> lengths;
  for (const auto& sample : order.samples)
    lengths.emplace_back(
        data::shape_of(tiny_sample(sample.position), setup.data, media_modules(setup)));
  return report_lengths(NodeId{0}, order, lengths, 0);
}

/// Measures, decodes and plans a batch of tiny samples, none of which is bad.
inline Result<PlannedBatch> plan_tiny(BatchPlanner& planner, const JobSetup& setup,
                                      const ParallelPlan& plan, std::int64_t batch) {
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : planner.measures(batch))
    lengths.push_back(tiny_lengths(setup, order));
  if (auto ordered = planner.orders(batch, lengths); !ordered.ok()) return ordered.error();
  const BatchReport report = tiny_report(setup, plan, batch);
  return planner.plan(batch, {&report, 1});
}

/// Plans a batch of 600 tiny samples; fills `store` with its samples.
inline Result<PlannedBatch> plan_tiny_batch(const JobSetup& setup, const ParallelPlan& plan,
                                            SampleStore& store, std::int64_t batch = 0) {
  BatchPlanner planner(plan, planner_options(setup, 600, 1));
  const BatchReport report = tiny_report(setup, plan, batch);
  for (const auto& sample : report.samples)
    store.put(sample.position,
              std::make_shared<const data::DecodedSample>(tiny_sample(sample.position)));
  return plan_tiny(planner, setup, plan, batch);
}

}  // namespace troupe::engine
