#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "scheduler/auto_layout.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::FourLayers;
using testing::model_of;
using testing::sample;
using testing::text_llm;
using testing::vision_audio_llm;

TEST_CASE("what cannot be is refused with the nearest choice", "[scheduler][errors]") {
  FourLayers four;
  SECTION("contradictory pipelines") {
    // Only one module here: the contradiction is with the cluster.
    four.request.pins["llm"].dp = 3;
    CHECK(four.refuse().code == Errc::infeasible);
    CHECK_THAT(four.refuse().fix, ContainsSubstring("dp = 2"));
  }
  SECTION("stages that the devices cannot have") {
    four.request.pins["llm"] = {{}, {}, 3, {}};
    CHECK_THAT(four.refuse().message, ContainsSubstring("parallel.llm.pp = 3"));
    CHECK_THAT(four.refuse().fix, ContainsSubstring("parallel.llm.pp = "));
  }
  SECTION("more stages than layers") {
    four.request.pins["llm"].pp = 9;
    CHECK_THAT(four.refuse().fix, ContainsSubstring("pp = 4"));
  }
  SECTION("tensor parallel stages that nothing runs") {
    four.request.pins["llm"].tp = 2;
    CHECK(four.refuse().code == Errc::infeasible);
    four.request.planned_only = true;
    CHECK_THAT(four.refuse().message, ContainsSubstring("leaves the node"));
    four.request.cluster = {1, 4};
    CHECK(four.refuse().code == Errc::not_found);
  }
  SECTION("an unknown module") {
    four.request.pins["lm"].dp = 1;
    CHECK_THAT(four.refuse().fix, ContainsSubstring("parallel.llm"));
  }
  SECTION("a layer larger than a device") {
    four.request.device_memory = Bytes{100};
    CHECK_THAT(four.refuse().message, ContainsSubstring("layer llm.layers.3 alone needs"));
  }
  SECTION("a model larger than the cluster") {
    four.request.device_memory = Bytes{300};
    CHECK_THAT(four.refuse().message, ContainsSubstring("no layout fits"));
  }
  SECTION("more devices than layers and samples") {
    four.request.cluster = {9, 1};
    CHECK_THAT(four.refuse().fix, ContainsSubstring("nearest choice: 8 devices"));
    four.request.planned_only = true;
    // Two whole pipelines of one sample each are as fast as any longer ones.
    CHECK(four.choose().reasons.back().choice == "2 of 9 devices");
    CHECK_THAT(four.choose().reasons.back().why, ContainsSubstring("no more than with fewer"));
  }
  SECTION("fault tolerance beyond the nodes") {
    four.request.fault_tolerance = 2;
    CHECK_THAT(four.refuse().fix, ContainsSubstring("cluster.fault_tolerance = 1"));
  }
  SECTION("no samples") {
    four.request.samples.clear();
    CHECK(four.refuse().code == Errc::invalid_argument);
  }
  SECTION("an unknown schedule") {
    four.request.schedule = "1f2b";
    CHECK_THAT(four.refuse().fix, ContainsSubstring("1f1b"));
  }
}

TEST_CASE("pins of different modules may not contradict", "[scheduler][errors]") {
  const auto model = model_of(vision_audio_llm(), {1});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples = {sample(1, 1)};
  request.cluster = {6, 1};
  request.global_batch = 6;
  request.pins["vision"].dp = 2;
  request.pins["llm"].dp = 3;
  const auto error = auto_layout(request).error();
  CHECK(error.code == Errc::infeasible);
  CHECK_THAT(error.message, ContainsSubstring("contradict each other"));
}

TEST_CASE("a model of too many layers is refused at once", "[scheduler][errors]") {
  const CostModel model = model_of(text_llm(kAutoLayoutLayersMax + 1), {1});
  FourLayers four;
  four.request.model = &model;
  const auto refused = auto_layout(four.request);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK_THAT(refused.error().fix, ContainsSubstring("nearest choice: 4096 layers in llm"));
}

}  // namespace
}  // namespace troupe::scheduler
