#include "engine/contract/slices.hpp"

#include <iterator>
#include <memory>
#include <utility>

#include "engine/execution/plan_slices.hpp"
#include "scheduler/iteration/plan_iteration.hpp"

namespace troupe::engine {

namespace {

/// The microbatches of one pipeline for two that stand beside each other. Sample s becomes 2 s + 1
/// of the first one and 2 s of the second.
std::vector<MicrobatchList> for_two_pipelines(const std::vector<MicrobatchList>& own) {
  std::vector<MicrobatchList> all = own;
  all.insert(all.end(), own.begin(), own.end());
  for (std::size_t r = 0; r < all.size(); ++r)
    for (Microbatch& microbatch : all[r])
      for (Part& part : microbatch.parts)
        for (std::int32_t& sample : part.samples) sample = 2 * sample + (r < own.size() ? 1 : 0);
  return all;
}

}  // namespace

Result<std::unique_ptr<StageBench>> StageBench::doubled() const {
  std::unique_ptr<StageBench> bench(new StageBench(setup_));
  const std::vector<HandStage>& stages = setup_.job.parallel.layout.pipelines.front();
  std::vector<HandStage> elsewhere = stages;
  for (HandStage& stage : elsewhere) stage.node += setup_.job.cluster.nodes;
  if (auto cut = bench->cut({stages, std::move(elsewhere)}); !cut.ok()) return cut.error();
  scheduler::IterationInput input;
  for (const SampleShape& sample : planned_.iteration.samples)
    for (const char* prefix : {"other-", ""}) {
      data::DecodedSample content = *store_.find(sample.position);
      SampleShape& shape = input.samples.emplace_back(sample);
      shape.position = content.position = std::ssize(input.samples) - 1;
      shape.id = content.id = prefix + sample.id;
      // Of these nodes each sees all data.
      shape.seen_by.clear();
      shape.decoder = {};
      bench->store_.put(shape.position,
                        std::make_shared<const data::DecodedSample>(std::move(content)));
    }
  input.microbatches = for_two_pipelines(planned_.iteration.microbatches);
  input.schedule = scheduler::Schedule("split-1f1b");
  auto planned = scheduler::plan_iteration(bench->plan_, std::move(input));
  if (!planned.ok()) return std::move(planned).error();
  bench->planned_.iteration = std::move(planned).value();
  return bench;
}

Result<SlicedRounds> sliced_rounds(const StageBench& bench, StageId id) {
  const auto made = bench.doubled();
  if (!made.ok()) return made.error();
  const StageBench& both = *made.value();
  const IterationPlan slice = PlanSlices(both.iteration(), both.plan()).of(both.plan().node_of(id));
  const auto state = both.state(id);
  if (!state.ok()) return state.error();
  const auto stage = both.make(id, state.value());
  if (!stage.ok()) return stage.error();
  const StageRows inputs = both.draw_inputs(id);
  auto whole = both.round(*stage.value(), id, {}, inputs);
  if (!whole.ok()) return whole.error();
  auto sliced = run_round(*stage.value(), both.plan(), slice, both.store(), id, inputs, {});
  if (!sliced.ok()) return sliced.error();
  return SlicedRounds{std::move(whole).value(), std::move(sliced).value()};
}

}  // namespace troupe::engine
