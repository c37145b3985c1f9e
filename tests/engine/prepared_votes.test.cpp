#include "engine/iteration/prepared_votes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <map>

namespace troupe::engine {
namespace {

Prepared prepared(std::int64_t step, std::int32_t device, std::vector<GroupNorm> norms,
                  std::vector<PartLoss> losses = {}) {
  return {step, 1, DeviceId{device}, std::move(norms), std::move(losses), {}};
}

PartLoss part_loss(std::int32_t pipeline, std::int32_t microbatch, double sum,
                   std::vector<std::string> nonfinite = {}) {
  return {ReplicaId{pipeline}, MicrobatchId{microbatch}, PartId{0}, sum, std::move(nonfinite)};
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("a step is decided when every device is prepared, once", "[engine]") {
  PreparedVotes votes(7, 1, 2);
  CHECK(votes.add(prepared(7, 0, {{GroupId{1}, 16, true}})));
  CHECK_FALSE(votes.add(prepared(7, 0, {})));  // A repeat.
  CHECK_FALSE(votes.add(prepared(6, 1, {})));  // Another step.
  CHECK_FALSE(votes.complete());
  CHECK(votes.add(prepared(7, 1, {{GroupId{0}, 9, true}}, {part_loss(0, 0, 12)})));
  REQUIRE(votes.complete());

  // By hand: loss 12 / 6 tokens = 2; norm sqrt(9 + 16) = 5, clipped to 1: 1 / (5 + 1e-6).
  const auto outcome = votes.outcome(6, {.learning_rate = 0.5, .max_grad_norm = 1});
  CHECK(outcome.decision.commit);
  CHECK(outcome.loss == 2);
  CHECK(outcome.grad_norm == 5);
  CHECK(std::abs(outcome.decision.clip - 0.2) < 1e-6);
  CHECK(outcome.decision.learning_rate == 0.5);
}

TEST_CASE("a report of an older configuration is dropped", "[engine]") {
  PreparedVotes votes(1, 2, 1);
  auto stale = prepared(1, 0, {});
  CHECK_FALSE(votes.add(stale));
  stale.epoch_number = 2;
  CHECK(votes.add(stale));
}

TEST_CASE("the sum of losses does not depend on who was first", "[engine]") {
  // 1e16 + 1 - 1e16 depends on the order; sorted by place it is always (1e16 + 1) - 1e16 = 0.
  const std::vector<PartLoss> parts{part_loss(0, 0, 1e16), part_loss(0, 1, 1),
                                    part_loss(1, 0, -1e16)};
  CHECK(total_loss({parts[0], parts[1], parts[2]}, 1) == 0);
  CHECK(total_loss({parts[2], parts[0], parts[1]}, 1) == 0);
  CHECK(total_loss({parts[1], parts[2], parts[0]}, 1) == 0);
}

TEST_CASE("every trained token weighs the same in the loss", "[engine]") {
  // Trained tokens 8, 16, 900, 100; each costs 1, those of the first microbatch 2: 1032 / 1024. A
  // mean of the microbatches' means would be (2 + 1 + 1 + 1) / 4 = 1.25.
  const std::vector<PartLoss> parts{part_loss(0, 0, 16), part_loss(0, 1, 16), part_loss(0, 2, 900),
                                    part_loss(0, 3, 100)};
  CHECK(decide_step(1, 1024, parts, {}, {}, {0.1, 1}).loss == 1032.0 / 1024);
}

TEST_CASE("a step is discarded with its reason", "[engine]") {
  const StepPolicy policy{0.1, 1};
  CHECK(decide_step(1, 0, {}, {}, {}, policy).decision.reason == "no trained tokens in the batch");

  const auto loss = decide_step(1, 4, {part_loss(0, 0, kNan, {"s3", "s5"})}, {}, {}, policy);
  CHECK_FALSE(loss.decision.commit);
  CHECK(loss.decision.reason == "the loss is not finite");
  CHECK(loss.nonfinite_samples == std::vector<std::string>{"s3", "s5"});

  const std::vector<GroupNorm> norms{{GroupId{0}, kNan, false}};
  CHECK(decide_step(1, 4, {part_loss(0, 0, 1)}, {}, norms, policy).decision.reason ==
        "a gradient is not finite");

  // What counts in no norm must be finite too, in every group and chunk.
  const auto contributed =
      decide_step(1, 4, {part_loss(0, 0, 1)}, {},
                  std::vector<GroupNorm>{{GroupId{0}, 4, false}, {GroupId{1}, 5, true}}, policy);
  CHECK_FALSE(contributed.decision.commit);
  CHECK(contributed.grad_norm == 3);
  CHECK(contributed.decision.reason == "what layers contribute to a parameter is not finite");

  const PartAuxiliary odd{"llm.balance", StageId{1}, MicrobatchId{0}, PartId{0}, kNan};
  CHECK(decide_step(1, 4, {part_loss(0, 0, 1)}, {odd}, {}, policy).decision.reason ==
        "the auxiliary loss 'llm.balance' is not finite");
}

TEST_CASE("what layers add to the loss is summed by name, whoever was first", "[engine]") {
  const auto part = [](const char* name, std::int32_t stage, std::int32_t microbatch,
                       double value) {
    return PartAuxiliary{name, StageId{stage}, MicrobatchId{microbatch}, PartId{0}, value};
  };
  const std::vector<PartAuxiliary> parts{part("a.x", 0, 0, 1e16), part("a.x", 0, 1, 1),
                                         part("a.x", 1, 0, -1e16), part("b.x", 0, 0, 3)};
  const std::map<std::string, double> sums{{"a.x", 0}, {"b.x", 3}};
  CHECK(auxiliary_totals({parts[0], parts[2], parts[3], parts[1]}) == sums);  // Else 1.
  CHECK(auxiliary_totals(parts) == sums);
  const auto outcome = decide_step(1, 4, {}, parts, {}, {0.1, 1});
  CHECK(outcome.auxiliary == sums);
  CHECK(outcome.loss == 0);
}

}  // namespace
}  // namespace troupe::engine
