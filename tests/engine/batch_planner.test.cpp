#include "tests/torch_catch.hpp"

#include "engine/iteration/batch_planner.hpp"

#include <algorithm>

#include "engine/execution/packing.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "scheduler/cost/roofline.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/engine/planner_fixture.hpp"

namespace troupe::engine {
namespace {

using Fixture = PlannerFixture;

TEST_CASE("samples are dealt by what they weigh", "[engine]") {
  auto job = tiny_job();
  job.train.global_batch_size = 5;  // Rows of pictures 4 0 4 0 4: three and two at best.
  Fixture fixture{prepare(job).value()};
  const auto planned = plan_tiny(fixture.planner, fixture.setup, fixture.plan, 0);
  REQUIRE(planned.ok());
  const IterationPlan& iteration = planned.value().iteration;
  std::vector<TokenCount> tokens;
  TokenCount sum = 0, largest = 0;
  for (std::size_t r = 0; r < fixture.plan.replicas.size(); ++r) {
    if (!fixture.plan.is_llm(ReplicaId{r})) continue;
    tokens.push_back(0);
    for (const auto& microbatch : iteration.microbatches[r])
      for (const auto& part : microbatch.parts)
        for (const auto sample : part.samples) {
          const auto own = iteration.samples[static_cast<std::size_t>(sample)].llm_tokens;
          tokens.back() += own;
          sum += own;
          largest = std::max(largest, own);
        }
  }
  REQUIRE(tokens.size() == 2);
  CHECK(2 * std::max(tokens[0], tokens[1]) <= sum + largest);
}

TEST_CASE("reports of several nodes join into one plan", "[engine]") {
  Fixture fixture;
  const auto planned = fixture.planner.plan(0, reports(fixture, 0));

  REQUIRE(planned.ok());
  const IterationPlan& iteration = planned.value().iteration;
  CHECK(planned.value().amended == 0);
  REQUIRE(iteration.samples.size() == 6);
  for (std::int64_t i = 0; i < 6; ++i) {
    const SampleShape& shape = iteration.samples[static_cast<std::size_t>(i)];
    CHECK(shape.llm_tokens == tiny_sample(i).llm_tokens);
    CHECK(shape.media.empty() == (i % 2 == 1));
  }
  CHECK(iteration.step == 1);
  CHECK(planned.value().dropped.empty());
  const scheduler::ModelFlops flops(fixture.setup.model, fixture.setup.modules());
  CHECK(planned.value().model_flops == flops.of(iteration.samples));
  CHECK(planned.value().model_flops > 0);
}

TEST_CASE("a sample that is bad on one node is dropped on all", "[engine]") {
  Fixture fixture;
  const auto planned = fixture.planner.plan(0, reports(fixture, 0, 4));

  REQUIRE(planned.ok());
  REQUIRE(planned.value().dropped.size() == 1);
  CHECK(planned.value().amended == 1);
  CHECK(planned.value().dropped[0].why.id == "s4");
  std::vector<std::string> ids;
  for (const auto& sample : planned.value().iteration.samples) ids.push_back(sample.id);
  CHECK(ids == std::vector<std::string>{"s0", "s1", "s2", "s3", "s5"});
  // The sample is not replaced: pipeline 1 trains two of its three.
  std::size_t second = 0;
  for (const auto& microbatch : planned.value().iteration.microbatches.back())
    second += microbatch.parts[0].samples.size();
  CHECK(second == 2);
}

TEST_CASE("a planned batch tells what nodes say of the index of lengths", "[engine]") {
  Fixture fixture;
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : fixture.planner.measures(0)) {
    lengths.push_back(tiny_lengths(fixture.setup, order));
    lengths.back().indexed = std::ssize(order.samples) - (node == NodeId{0} ? 1 : 0);
    if (node == NodeId{1}) lengths.back().notes = {"damaged"};
  }
  REQUIRE(fixture.planner.orders(0, lengths).ok());
  auto all = tiny_report(fixture.setup, fixture.plan, 0);
  all.notes = {"corrected"};
  const auto planned = fixture.planner.plan(0, {&all, 1}).value();
  CHECK(planned.measured == 6);  // Decoded ones are not counted again.
  CHECK(planned.indexed == 5);
  CHECK(planned.notes == std::vector<std::string>{"damaged", "corrected"});
}

TEST_CASE("what is bad by its header is dropped before anybody decodes it", "[engine]") {
  Fixture fixture;
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : fixture.planner.measures(0)) {
    auto report = tiny_lengths(fixture.setup, order);
    for (auto& sample : report.samples)
      if (sample.position == 2)
        sample.bad = true, sample.id = "s2", sample.bad_reason = "no header";
    lengths.push_back(std::move(report));
  }
  const auto orders = fixture.planner.orders(0, lengths).value();
  for (const auto& [node, order] : orders)
    for (const auto& sample : order.samples) CHECK(sample.position != 2);
  const auto all = tiny_report(fixture.setup, fixture.plan, 0);  // Tells of it all the same.
  const auto planned = fixture.planner.plan(0, {&all, 1}).value();
  REQUIRE(planned.dropped.size() == 1);
  CHECK(planned.dropped[0].why.reason == "no header");
  CHECK(planned.iteration.samples.size() == 5);
  CHECK(planned.amended == 0);
}

TEST_CASE("a sample that decodes to other lengths keeps its place", "[engine]") {
  Fixture fixture;
  auto all = reports(fixture, 0);
  Fixture other;
  const auto expected = other.planner.plan(0, reports(other, 0)).value().iteration;
  for (auto& report : all)
    for (auto& sample : report.samples)
      if (sample.position == 3 && sample.has_text) sample.text_tokens += 5;
  const auto planned = fixture.planner.plan(0, all).value();
  CHECK(planned.amended == 1);
  CHECK(planned.dropped.empty());
  CHECK(planned.iteration.samples[3].llm_tokens == expected.samples[3].llm_tokens + 5);
  CHECK((planned.iteration.microbatches == expected.microbatches));
}

TEST_CASE("a batch that decoding finds too large is handed on as it was decoded",
          "[engine][errors]") {
  Fixture fixture;
  const auto device = scheduler::find_device("H100-80G").value();
  fixture.setup.costs = planning_costs(fixture.setup, computed_profile(fixture.setup, device),
                                       Bytes{std::int64_t{1} << 30})
                            .value();
  auto options = planner_options(fixture.setup, 16, 1);
  options.max_seq_len = 0;
  BatchPlanner planner(fixture.plan, options);
  measured(planner, fixture.setup, 0);
  BatchReport all = tiny_report(fixture.setup, fixture.plan, 0);
  all.samples[1].text_tokens += 100'000'000;
  const auto planned = planner.plan(0, {&all, 1});
  REQUIRE_FALSE(planned.ok());
  CHECK(planned.error().code == Errc::infeasible);
  const auto refused = planner.take_refused();
  REQUIRE(refused);
  REQUIRE(refused->samples.size() == 6);
  CHECK(refused->samples[1].llm_tokens > 100'000'000);
}

TEST_CASE("a batch whose samples all turn out bad is planned empty", "[engine]") {
  Fixture fixture;
  auto all = reports(fixture, 0);
  for (auto& report : all)
    for (auto& sample : report.samples) sample.bad = true;
  const auto planned = fixture.planner.plan(0, all);
  REQUIRE(planned.ok());
  CHECK(planned.value().iteration.samples.empty());
  CHECK(planned.value().dropped.size() == 6);
}

TEST_CASE("the last batch of an epoch is smaller and loses nobody", "[engine][property]") {
  Fixture fixture;  // 16 records in batches of 6: 6, 6, 4.
  const auto planned = fixture.planner.plan(2, reports(fixture, 2));

  REQUIRE(planned.ok());
  CHECK(planned.value().iteration.samples.size() == 4);
  CHECK(planned.value().iteration.samples.front().position == 12);
}

TEST_CASE("positions count on through the epochs", "[engine]") {
  Fixture fixture;  // 16 records in batches of 6: batch 3 is the first of the second epoch.
  const auto planned = fixture.planner.plan(3, reports(fixture, 3));

  REQUIRE(planned.ok());
  CHECK(planned.value().iteration.samples.front().position == 16);
  CHECK(planned.value().iteration.step == 4);
}

TEST_CASE("of two faults of a sample the lower node's is named, whoever was first", "[engine]") {
  Fixture fixture;
  auto all = reports(fixture, 0);
  for (auto& sample : all[3].samples)
    if (sample.position == 4) sample.bad = true, sample.bad_reason = "text";
  for (auto& sample : all[2].samples)
    if (sample.position == 4) sample.bad = true, sample.bad_reason = "picture";

  for (int turn = 0; turn < 2; ++turn) {
    measured(fixture.planner, fixture.setup, 0);
    const auto planned = fixture.planner.plan(0, all);
    REQUIRE(planned.ok());
    REQUIRE(planned.value().dropped.size() == 1);
    CHECK(planned.value().dropped[0].why.reason == "picture");
    std::reverse(all.begin(), all.end());
  }
}

TEST_CASE("a position that no node reported is an error", "[engine][errors]") {
  Fixture fixture;
  auto some = reports(fixture, 0);
  some.pop_back();
  some.pop_back();

  const auto planned = fixture.planner.plan(0, some);

  REQUIRE_FALSE(planned.ok());
  CHECK(planned.error().message.find("position 3") != std::string::npos);
}

TEST_CASE("a sequence beyond the limit is dropped once its rows are known", "[engine]") {
  Fixture fixture;
  auto options = planner_options(fixture.setup, 16, 1);
  options.max_seq_len = tiny_sample(1).llm_tokens;  // Pictures add three rows and a placeholder.
  BatchPlanner strict(fixture.plan, options);

  const auto orders = measured(strict, fixture.setup, 0);
  CHECK(orders.at(NodeId{0}).samples.empty());  // Nobody decodes what is too long.
  const auto planned = strict.plan(0, reports(fixture, 0));

  REQUIRE(planned.ok());
  REQUIRE(planned.value().dropped.size() == 3);
  for (const auto& dropped : planned.value().dropped) {
    CHECK(dropped.why.kind == data::BadKind::too_long);
    CHECK_FALSE(dropped.why.fix.empty());
  }
}

TEST_CASE("a batch that was ordered before a step was measured is predicted by what it taught",
          "[engine]") {
  auto job = tiny_job();
  auto setup = prepare(job).value();
  const auto device = scheduler::find_device("H100-80G").value();
  setup.costs = planning_costs(setup, computed_profile(setup, device), device.memory).value();
  Fixture fixture{setup, make_parallel_plan(setup).value()};
  const auto decoded = [&](std::int64_t batch) { return tiny_report(setup, fixture.plan, batch); };
  measured(fixture.planner, setup, 0);
  measured(fixture.planner, setup, 1);
  const auto report = decoded(0);
  const auto first = fixture.planner.plan(0, {&report, 1}).value();
  CHECK(first.prediction.calibrated_step_ms == first.prediction.profile_step_ms);
  const auto slow = [](StageId) { return 4.0; };
  fixture.planner.learn(first, measured_events(fixture.plan, *setup.costs, first.iteration, slow),
                        4 * first.prediction.calibrated_step_ms);
  const auto next = decoded(1);
  const auto second = fixture.planner.plan(1, {&next, 1}).value();
  CHECK(second.prediction.calibrated_step_ms > 1.5 * second.prediction.profile_step_ms);
}

/// Samples per pipeline, in a batch of 24, after twelve steps in which pipeline 1 measured five
/// times what was predicted.
std::pair<std::size_t, std::size_t> dealt_to_a_slow_pipeline(bool correction) {
  auto job = tiny_job();
  job.train.global_batch_size = 24;
  job.balancer.adaptive_correction = correction;
  auto setup = prepare(job).value();
  const auto device = scheduler::find_device("H100-80G").value();
  setup.costs = planning_costs(setup, computed_profile(setup, device), device.memory).value();
  const auto plan = make_parallel_plan(setup).value();
  BatchPlanner planner(plan, planner_options(setup, 600, 1));
  for (std::int64_t batch = 0; batch < 12; ++batch) {
    const auto planned = plan_tiny(planner, setup, plan, batch).value();
    const auto factor = [&](StageId stage) {
      return plan.pipeline_of(stage) == PipelineId{1} ? 5.0 : 1.0;
    };
    planner.learn(planned, measured_events(plan, *setup.costs, planned.iteration, factor),
                  planned.prediction.calibrated_step_ms);
  }
  // The llm's heads, on nodes 1 and 3, read every sample of their pipelines.
  const auto orders = measured(planner, setup, 12);
  return {orders.at(NodeId{1}).samples.size(), orders.at(NodeId{3}).samples.size()};
}

TEST_CASE("a pipeline that is measured slow gets fewer samples, with the switch alone",
          "[engine]") {
  const auto predicted = dealt_to_a_slow_pipeline(false);
  const auto measured = dealt_to_a_slow_pipeline(true);
  CHECK(predicted.first + predicted.second == 24);
  CHECK(measured.first + measured.second == 24);
  CHECK(measured.second >= 1);
  CHECK(2 * measured.second <= predicted.second);
}

}  // namespace
}  // namespace troupe::engine
