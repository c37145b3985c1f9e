#include "engine/contract/stage_bench.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "engine/execution/stage_kinds.hpp"
#include "engine/state/seeded_store.hpp"
#include "scheduler/layout/place_by_hand.hpp"

namespace troupe::engine {

namespace {

constexpr std::int64_t kLookedAt = 100;
constexpr std::uint64_t kInputSeed = 17;

/// The same model, one stage on one node per encoder and for the llm, a batch of two microbatches.
job::Job one_stage_each(job::Job job, std::int64_t samples) {
  std::vector<HandStage> stages;
  for (const ModuleKind kind : {ModuleKind::encoder, ModuleKind::llm})
    for (const ModuleConfig& module : job.modules)
      if (module.kind == kind)
        stages.push_back({static_cast<std::int32_t>(stages.size()), 0, {{module.name, {}}}});
  job.cluster = {};
  job.cluster.nodes = job.cluster.local_nodes = static_cast<std::int32_t>(stages.size());
  job.parallel = {};
  job.parallel.mode = job::LayoutMode::manual;
  job.parallel.layout.pipelines = {std::move(stages)};
  job.scheduler = {};
  job.balancer = {};
  job.balancer.policy = "in-order";
  job.train.dtype = Dtype::fp64;
  job.train.global_batch_size = samples;
  job.train.microbatches = 2;
  return job;
}

/// What a sample has: encoders with media, one bit each.
std::uint64_t media_of(const SampleShape& shape) {
  std::uint64_t bits = 0;
  for (const auto& media : shape.media) bits |= std::uint64_t{1} << media.module.index();
  return bits;
}

}  // namespace

Result<std::unique_ptr<StageBench>> StageBench::create(const job::Job& job, std::int64_t samples) {
  auto setup = prepare(one_stage_each(job, samples));
  if (!setup.ok()) return std::move(setup).error();
  std::unique_ptr<StageBench> bench(new StageBench(std::move(setup).value()));
  JobSetup& own = bench->setup_;
  auto plan =
      scheduler::place_by_hand(own.model, own.job.parallel.layout, {own.job.cluster.nodes, 1});
  if (!plan.ok()) return std::move(plan).error();
  bench->plan_ = std::move(plan).value();
  if (auto taken = bench->take_samples(samples); !taken.ok()) return taken.error();
  if (auto planned = bench->plan_batch(); !planned.ok()) return planned.error();
  bench->draw_inputs();
  return bench;
}

Status StageBench::take_samples(std::int64_t count) {
  auto dataset = data::Dataset::open(setup_.data);
  if (!dataset.ok()) return std::move(dataset).error();
  std::vector<data::DecodedSample> good;
  for (std::int64_t i = 0; i < std::min(dataset.value().size(), kLookedAt); ++i) {
    auto outcome = data::decode_sample(dataset.value(), dataset.value()[i], setup_.data);
    if (auto* sample = std::get_if<data::DecodedSample>(&outcome))
      good.push_back(std::move(*sample));
  }
  if (good.size() < 2)
    return Error{Errc::bad_data,
                 std::to_string(good.size()) + " good samples in the first " +
                     std::to_string(std::min(dataset.value().size(), kLookedAt)) + " records",
                 "data.sources", "`troupe data check` says what is wrong with the others"};
  std::ranges::stable_sort(good, {}, &data::DecodedSample::llm_tokens);
  // One of each mixture of media first, then the shortest.
  std::set<std::uint64_t> seen;
  const auto modules = media_modules(setup_);
  std::ranges::stable_partition(good, [&](const data::DecodedSample& sample) {
    return seen.insert(media_of(data::shape_of(sample, setup_.data, modules))).second;
  });
  if (static_cast<std::int64_t>(good.size()) > count) good.resize(static_cast<std::size_t>(count));
  samples_ = std::move(good);
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    samples_[i].position = static_cast<std::int64_t>(i);
    store_.put(samples_[i].position, std::make_shared<const data::DecodedSample>(samples_[i]));
  }
  setup_.job.train.global_batch_size = static_cast<std::int64_t>(samples_.size());
  return Done{};
}

Status StageBench::plan_batch() {
  const auto count = static_cast<std::int64_t>(samples_.size());
  BatchPlanner planner(plan_, planner_options(setup_, count, 1));
  const auto modules = media_modules(setup_);
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : planner.measures(0)) {
    std::vector<data::MeasureOutcome> own;
    for (const OrderedSample& sample : order.samples)
      own.emplace_back(data::shape_of(samples_[static_cast<std::size_t>(sample.position)],
                                      setup_.data, modules));
    lengths.push_back(report_lengths(node, order, own, 0));
  }
  if (auto ordered = planner.orders(0, lengths); !ordered.ok()) return ordered.error();
  BatchOrder order{1, 0, 0, {}};
  std::vector<data::DecodeOutcome> outcomes;
  for (std::int64_t i = 0; i < count; ++i) {
    order.samples.push_back({i, all_encoders(plan_.model), true});
    outcomes.emplace_back(samples_[static_cast<std::size_t>(i)]);
  }
  const BatchReport report = report_on(NodeId{0}, order, outcomes, setup_, 0);
  auto planned = planner.plan(0, {&report, 1});
  if (!planned.ok()) return std::move(planned).error();
  planned_ = std::move(planned).value();
  return Done{};
}

void StageBench::draw_inputs() {
  auto generator = at::detail::createCPUGenerator(kInputSeed);
  const auto& iteration = planned_.iteration;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    StageRows& own = inputs_.emplace_back();
    for (std::size_t i = 0; i < iteration.messages.size(); ++i) {
      const Message& message = iteration.messages[i];
      const auto draw = [&] {
        return at::randn({message.rows, message.width}, generator, at::kDouble);
      };
      if (message.destination.stage == StageId{s}) own.rows[iteration.id_of(i)] = draw();
      if (message.source.stage == StageId{s} && message.has_backward)
        own.gradients[iteration.id_of(i)] = draw();
    }
  }
}

Result<std::unique_ptr<StageProgram>> StageBench::make(StageId id) const {
  auto store = seeded_store(setup_, plan_, plan_.at(id).devices.front());
  if (!store.ok()) return std::move(store).error();
  return make_stage({plan_, id, setup_.modules(), setup_.layers, store.value()});
}

std::vector<LayerId> StageBench::trained_layers(StageId id) const {
  std::set<LayerId> layers;
  for (const ParameterGroup& group : plan_.groups)
    for (const ParameterUse& use : group.uses)
      if (use.stage == id) layers.insert(use.layer);
  return {layers.begin(), layers.end()};
}

bool StageBench::has_module(StageId id, const std::string& module) const {
  return std::ranges::any_of(plan_.at(id).runs, [&](const LayerRun& run) {
    return plan_.model.at(run.module).name == module;
  });
}

std::string StageBench::layer_name(LayerId layer) const {
  return plan_.model.at(layer.module).layers[static_cast<std::size_t>(layer.layer)].name;
}

}  // namespace troupe::engine
