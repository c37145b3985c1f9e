#include "scheduler/iteration/deliveries.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "runtime/vocabulary/sample_content.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/check/delivery_check.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::layers;
using testing::random_case;
using testing::sample;
using testing::text_of;

constexpr ModuleId kVision{0};

/// vision (2) on node 0, the llm (4) cut over nodes 1 and 2.
ParallelPlan three_nodes() {
  ModelGraph graph;
  graph.modules = {
      {"vision", ModuleKind::encoder, false, {ModuleId{1}}, layers("vision", 2), 32, 64},
      {"llm", ModuleKind::llm, false, {}, layers("llm", 4), 64, 64}};
  HandLayout layout;
  layout.pipelines = {{{0, 0, {{"vision", {}}}},
                       {1, 0, {{"llm", LayerRange{0, 2}}}},
                       {2, 0, {{"llm", LayerRange{2, 4}}}}}};
  return place_by_hand(graph, layout, {3, 1}).value();
}

/// A sample with a picture that node 1 alone sees, a text of nodes 0 and 2, and one of all nodes.
IterationInput three_samples(const ParallelPlan& plan) {
  IterationInput input;
  input.samples = {sample(1, 0, 10), sample(0, 0, 20), sample(0, 0, 30)};
  input.samples[0].media[0].columns = 12;
  input.samples[0].media[0].equal_frames = 2;
  input.samples[0].markers = {{kVision, 3}};
  input.samples[0].seen_by = {NodeId{1}};
  input.samples[0].decoder = NodeId{1};
  input.samples[1].seen_by = {NodeId{0}, NodeId{2}};
  input.samples[1].decoder = NodeId{2};
  input.microbatches = assign_by_count(plan, 3, 1);
  return input;
}

TEST_CASE("what a stage reads and its node does not see comes from who decodes it", "[scheduler]") {
  const auto plan = three_nodes();
  const auto input = three_samples(plan);
  const auto iteration = plan_iteration(plan, input).value();
  INFO(text_of(check(plan, iteration)));
  CHECK(check(plan, iteration).empty());
  // By hand: the picture to node 0; to node 1, where the llm begins, the text of sample 1; to
  // node 2, where it ends, that of sample 0. Sample 2 moves nowhere.
  const MessageEnd vision{StageId{0}, MicrobatchId{0}, PartId{0}};
  const MessageEnd begin{StageId{1}, MicrobatchId{0}, PartId{0}};
  const MessageEnd end{StageId{2}, MicrobatchId{0}, PartId{0}};
  const auto& item = input.samples[0].media[0].items[0];
  const Bytes picture{std::int64_t{item.input_rows} * 6};  // A byte for two values of 4.
  // Its text is 10 tokens, and a placeholder of its picture.
  REQUIRE(encoded_tokens(input.samples[0]) == 11);
  const std::vector<Delivery> expected{{DeviceId{1}, vision, kVision, {0}, picture},
                                       {DeviceId{2}, begin, {}, {1}, Bytes{20 * 4}},
                                       {DeviceId{1}, end, {}, {0}, Bytes{11 * 4}}};
  CHECK(iteration.deliveries == expected);
  // Who sends does so before all else; who receives, right before the forward.
  const auto kinds = [&](std::size_t device) {
    std::vector<ActionKind> found;
    for (const Action& action : iteration.actions[device]) found.push_back(action.kind);
    found.resize(3);
    return found;
  };
  using enum ActionKind;
  CHECK(kinds(0) == std::vector{receive_content, forward, send});
  CHECK(kinds(1) == std::vector{send_content, send_content, receive});
  CHECK(kinds(2) == std::vector{send_content, receive, receive_content});
}

TEST_CASE("who has least to send decodes, of the layout's nodes that see a sample", "[scheduler]") {
  const auto plan = three_nodes();
  auto samples = three_samples(plan).samples;
  samples.push_back(samples[1]);
  samples[0].seen_by = {NodeId{1}, NodeId{2}, NodeId{7}};  // Node 7 is not of the layout.
  samples[2].seen_by = {NodeId{0}, NodeId{1}, NodeId{2}, NodeId{7}};
  samples[1].seen_by = samples[3].seen_by = {NodeId{1}, NodeId{2}};
  REQUIRE(choose_decoders(plan, samples).ok());
  // By hand: node 1 gets the picture, as the lower of two without bytes, and node 2, with 20
  // tokens, still has less when the last one comes.
  CHECK(samples[0].decoder == NodeId{1});
  CHECK(samples[1].decoder == NodeId{2});
  CHECK(samples[3].decoder == NodeId{2});
  CHECK(samples[0].seen_by == std::vector{NodeId{1}, NodeId{2}});
  // All of the layout see the third one: nobody has to decode it for others.
  CHECK((samples[2].seen_by.empty() && !samples[2].decoder.valid()));
  const auto free = of_no_layout(samples);
  CHECK((free[0].seen_by.empty() && !free[0].decoder.valid()));

  samples[1].seen_by = {NodeId{7}};
  const auto refused = choose_decoders(plan, samples);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK(refused.error().message ==
        "no node of the layout sees the source of sample '" + samples[1].id + "'");
}

TEST_CASE("what who decodes has to send is counted as it moves", "[scheduler]") {
  const auto plan = three_nodes();
  auto samples = three_samples(plan).samples;
  for (auto& sample : samples) sample.seen_by = {NodeId{1}, NodeId{2}};
  // By hand, node 1 gets the picture, 8 rows of 6 bytes with a text of 44, and node 2 a text of
  // 120, so that node 1 has less when the third comes.
  samples[1].llm_tokens = 30;
  REQUIRE(choose_decoders(plan, samples).ok());
  CHECK(samples[1].decoder == NodeId{2});
  CHECK(samples[2].decoder == NodeId{1});
  samples[0].media[0].equal_frames = 0;  // 8 rows of 48 bytes: now node 2 has.
  REQUIRE(choose_decoders(plan, samples).ok());
  CHECK(samples[2].decoder == NodeId{2});
}

TEST_CASE("where all nodes see all samples nothing is delivered", "[scheduler]") {
  const auto plan = three_nodes();
  auto input = three_samples(plan);
  for (auto& sample : input.samples) sample.seen_by.clear();
  CHECK(plan_iteration(plan, input).value().deliveries.empty());
}

TEST_CASE("a sample that nobody decodes where it is read is refused", "[scheduler][errors]") {
  const auto plan = three_nodes();
  const auto refused = [&](NodeId decoder) {
    auto input = three_samples(plan);
    input.samples[0].decoder = decoder;
    const auto made = plan_iteration(plan, input);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == Errc::invalid_argument);
    CHECK(made.error().message.find("node 0, which does not see") != std::string::npos);
  };
  refused({});         // Nobody was named.
  refused(NodeId{2});  // It does not see it itself.
  auto input = three_samples(plan);
  input.samples[0].seen_by = {NodeId{1}, NodeId{7}};
  input.samples[0].decoder = NodeId{7};  // It has no device here.
  CHECK_FALSE(plan_iteration(plan, input).ok());
}

TEST_CASE("each rule about deliveries finds its planted fault", "[scheduler]") {
  const auto plan = three_nodes();
  const auto sound = plan_iteration(plan, three_samples(plan)).value();
  const auto finds = [&](const std::function<void(IterationPlan&)>& change, FaultKind kind,
                         const std::string& why) {
    auto bad = sound;
    change(bad);
    const auto faults = check(plan, bad);
    INFO(text_of(faults) << "expected: " << why);
    CHECK(std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
      return fault.kind == kind && fault.why.find(why) != std::string::npos;
    }));
  };
  finds([](auto& bad) { bad.deliveries[0].samples.clear(); }, FaultKind::missing,
        "0 deliveries bring it");
  finds([](auto& bad) { bad.deliveries[0].samples.clear(); }, FaultKind::unknown,
        "it carries nothing");
  finds([](auto& bad) { bad.deliveries.push_back(bad.deliveries[1]); }, FaultKind::duplicate,
        "2 deliveries bring it");
  finds([](auto& bad) { bad.deliveries[1].samples.push_back(2); }, FaultKind::unknown,
        "nothing calls for text");
  finds([](auto& bad) { bad.deliveries[2].encoder = kVision; }, FaultKind::unknown,
        "nothing calls for media");
  finds([](auto& bad) { bad.deliveries[1].from = DeviceId{0}; }, FaultKind::dependency,
        "node 0 does not decode");
  finds([](auto& bad) { bad.samples[0].decoder = NodeId{2}; }, FaultKind::dependency,
        "node 1 does not decode");
  finds([](auto& bad) { bad.deliveries[0].bytes += Bytes{4}; }, FaultKind::dependency, "bytes");
  // As values, which are eight times as much.
  finds([](auto& bad) { bad.deliveries[0].bytes = bad.deliveries[0].bytes * 8; },
        FaultKind::dependency, "it says 384 bytes, its samples have 48");
  finds([](auto& bad) { bad.deliveries[0].from = DeviceId{9}; }, FaultKind::unknown,
        "does not exist");
  finds([](auto& bad) { bad.deliveries[0].destination.part = PartId{3}; }, FaultKind::unknown,
        "does not exist");
  finds([](auto& bad) { bad.deliveries[0].samples = {5}; }, FaultKind::unknown, "does not exist");
  const auto without = [](std::size_t device, ActionKind kind) {
    return [=](IterationPlan& bad) {
      auto& list = bad.actions[device];
      list.erase(std::find_if(list.begin(), list.end(),
                              [&](const Action& action) { return action.kind == kind; }));
    };
  };
  finds(without(1, ActionKind::send_content), FaultKind::missing, "it is in no list");
  finds(without(0, ActionKind::receive_content), FaultKind::missing, "it is in no list");
}

TEST_CASE("the simulator waits for what is delivered", "[scheduler]") {
  const auto plan = three_nodes();
  auto input = three_samples(plan);
  SimulationCosts costs;
  costs.network = {0, 1e-6};  // A byte takes a millisecond.
  costs.bytes_per_element = 0;
  const auto step_ms = [&] {
    return simulate(plan, plan_iteration(plan, input).value(), costs).value().step_ms;
  };
  const auto& item = input.samples[0].media[0].items[0];
  // The picture leaves node 1 first, then 44 bytes of text; node 2's 80 bytes leave beside them.
  const double sent = item.input_rows * 6 + 44;
  CHECK(step_ms() == Catch::Approx(sent));
  input.samples[0].media[0].equal_frames = 0;  // Of these no pixels are known: they move as values.
  CHECK(step_ms() == Catch::Approx(item.input_rows * 12 * 4 + 44));
  for (auto& sample : input.samples) sample.seen_by.clear();
  CHECK(step_ms() == 0);
}

TEST_CASE("content goes once to each stage that reads it, in any layout", "[scheduler][property]") {
  int delivered = 0;
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    const auto made = random_case(seed);
    const auto iteration = plan_iteration(made.plan, made.input).value();
    INFO("seed " << seed);
    delivered += iteration.deliveries.empty() ? 0 : 1;
    std::set<std::pair<ModuleId, std::int32_t>> media;
    for (const Delivery& delivery : iteration.deliveries) {
      const NodeId to = made.plan.node_of(delivery.destination.stage);
      const NodeId from = made.plan.devices[delivery.from.index()].node;
      for (const auto unit : delivery.samples) {
        CHECK_FALSE(iteration.sample(unit).is_seen_by(to));
        CHECK(iteration.sample(unit).decoder == from);
        // No media twice.
        if (delivery.encoder.valid()) CHECK(media.emplace(delivery.encoder, unit).second);
      }
    }
    const auto faults = check(made.plan, iteration);
    INFO(text_of(faults));
    REQUIRE(faults.empty());
  }
  CHECK(delivered > 100);
}

}  // namespace
}  // namespace troupe::scheduler
