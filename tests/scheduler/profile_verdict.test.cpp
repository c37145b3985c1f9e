#include "scheduler/cost/profile_verdict.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

/// An encoder of one layer before an llm of two, each a kind of its own.
ModelGraph two_kinds() {
  ModelGraph graph;
  graph.modules = {{"vision", ModuleKind::encoder, false, {ModuleId{1}}, {{"v.0", 5}}, 8, 8},
                   {"llm", ModuleKind::llm, false, {}, {{"llm.0", 5}, {"llm.1", 5}}, 8, 8}};
  return graph;
}

/// Forward, input and weight gradient take a hundredth of a millisecond per token each; measured a
/// little off at 64 tokens, as clocks are.
LayerProfile linear(const std::string& kind) {
  LayerProfile profile{kind, {1, 1}, CostOrigin::measured, Bytes{20}, {}};
  for (const TokenCount x : {16, 64, 256, 1024}) {
    const double ms = (x == 64 ? 0.0101 : 0.01) * static_cast<double>(x);
    profile.points.push_back({x, {ms, ms, ms, 0}, {}});
  }
  return profile;
}

Profile profile_of_two() {
  return {"test",
          {{"v.0", "seeing"}, {"llm.0", "talking"}, {"llm.1", "talking"}},
          {linear("seeing"), linear("talking")}};
}

CostModel costs_of(const Profile& profile) {
  return CostModel::create(two_kinds(), profile).value();
}

SampleShape sample(TokenCount text, std::int32_t picture) {
  SampleShape shape;
  shape.llm_tokens = shape.trained_tokens = text;
  if (picture > 0)
    shape.media = {ModuleMedia{ModuleId{0}, {MediaShape{picture, picture, picture}}}};
  return shape;
}

/// The encoder's forward at 64 tokens is thrice what the others say.
Profile with_a_bad_encoder() {
  auto profile = profile_of_two();
  profile.profiles[0].points[1].linear.forward_ms *= 3;
  return profile;
}

TEST_CASE("a mean sample's time stands by module and by kind", "[scheduler]") {
  const auto costs = costs_of(profile_of_two());
  // 100 tokens: two layers of 3 x 1 ms, the first without an input gradient where no picture comes
  // before it; 200 rows of a picture: 2 ms forward and 2 of weight gradient. Mean of both samples.
  const auto alone = mean_sample(costs, std::vector{sample(100, 0)}).value();
  CHECK(alone.module_ms[0] == 0);
  CHECK(alone.module_ms[1] == Approx(alone.total_ms));
  const auto mixed = mean_sample(costs, std::vector{sample(100, 0), sample(100, 200)}).value();
  CHECK(mixed.module_ms[0] == Approx(2).epsilon(0.01));
  CHECK(mixed.kind_ms.at("seeing") == Approx(2).epsilon(0.01));
  CHECK(mixed.kind_ms.at("talking") == Approx(mixed.module_ms[1]));
  CHECK(mixed.total_ms == Approx(mixed.module_ms[0] + mixed.module_ms[1]));
  CHECK(mean_sample(costs, {}).value().total_ms == 0);
}

TEST_CASE("a profile is as good as what its samples take is known", "[scheduler]") {
  const auto costs = costs_of(with_a_bad_encoder());
  const auto text = mean_sample(costs, std::vector{sample(1000, 0)}).value();
  const auto good = profile_verdict(costs, text, {});
  CHECK(good.word == "good");
  CHECK(*good.expected_error < 0.02);
  const auto pictures = mean_sample(costs, std::vector{sample(10, 1000)}).value();
  const auto poor = profile_verdict(costs, pictures, {});
  CHECK(poor.word == "poor");
  CHECK_THAT(poor.why, ContainsSubstring("seeing (forward)"));
  CHECK_THAT(poor.why, ContainsSubstring("--force"));
  // Without data both kinds weigh alike.
  const auto errors = costs.errors();
  const auto alike = profile_verdict(costs, {}, {});
  CHECK(*alike.expected_error == Approx((errors[0].left_out.mean + errors[1].left_out.mean) / 2));
}

TEST_CASE("what was disturbed, computed or never left out is not called good", "[scheduler]") {
  auto profile = profile_of_two();
  const auto judge = [&](ProfileDoubts doubts) {
    return profile_verdict(costs_of(profile), {}, doubts);
  };
  CHECK(judge({kNoisyShare, false}).word == "good");
  CHECK(judge({kNoisyShare + 0.01, false}).word == "noisy");
  CHECK_THAT(judge({0, true}).why, ContainsSubstring("see the warning"));
  for (auto& kind : profile.profiles) kind.points.resize(3);
  CHECK(judge({}).word == "unknown");
  CHECK_FALSE(judge({}).expected_error);
  profile.profiles[1].origin = CostOrigin::computed;
  CHECK(judge({}).word == "computed");
}

}  // namespace
}  // namespace troupe::scheduler
