#include "app/replay/run_costs.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "tests/support/scratch_folder.hpp"

namespace troupe::app {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

// Three losses and a join with two steps of warm-up, as a run writes them. Later lines of their
// generations take 100 ms.
constexpr const char* kEvents =
    R"({"kind":"resumed","step":1,"generation":1,"copy_ms":900}
{"kind":"lost","step":10,"generation":2,"detect_ms":0,"decide_ms":2,"connect_ms":1,"copy_ms":30,"rebuild_ms":9,"replay_ms":110}
{"kind":"lost","step":20,"generation":3,"detect_ms":3000,"decide_ms":4,"connect_ms":0,"copy_ms":50,"rebuild_ms":20,"replay_ms":130}
{"kind":"lost","step":30,"generation":4,"detect_ms":0,"decide_ms":3,"connect_ms":2,"copy_ms":40,"rebuild_ms":10,"decode_ms":55,"replay_ms":125}
{"kind":"joined","step":40,"generation":5,"detect_ms":0,"decide_ms":6,"connect_ms":0,"copy_ms":7,"rebuild_ms":8,"replay_ms":90,"warm_up_ms":260,"warm_up_steps":2,"warm_up_bytes":1000}
{"kind":"lost","step":50,"gen)";

std::string metrics() {
  std::string text;
  for (int step = 1; step < 45; ++step) {
    const int generation = 1 + step / 10;
    const bool is_first = step % 10 == 0;
    text += R"({"step":)" + std::to_string(step) + R"(,"step_ms":)" + (is_first ? "500" : "100") +
            R"(,"profile_step_ms":80,"epoch_number":)" + std::to_string(generation) + "}\n";
  }
  return text;
}

TEST_CASE("a run's medians are what changes cost", "[app]") {
  const auto costs = parse_run_costs(kEvents, metrics(), "events.jsonl").value();
  CHECK(costs.losses == 3);
  CHECK(costs.joins == 1);
  REQUIRE(costs.loss);
  CHECK(costs.loss->detect_ms == 0);
  CHECK(costs.loss->decide_ms == 3);
  CHECK(costs.loss->copy_ms == 40);
  CHECK(costs.loss->rebuild_ms == 12);     // Of 10, 20 and 12: new connections count.
  CHECK(costs.loss->first_step_ms == 30);  // Of 10, 30 and 80.
  CHECK(costs.loss->is_copy_whole);
  REQUIRE(costs.join);
  CHECK(costs.join->decide_ms == 6);
  CHECK(costs.join->first_step_ms == 0);  // It was faster than a usual one.
  REQUIRE(costs.turnover_ms);
  CHECK(*costs.turnover_ms == Approx(30));  // 260 ms, two steps of 100.
  REQUIRE(costs.pace);
  CHECK(*costs.pace == Approx(1.25));
}

TEST_CASE("a join in the change that a loss began has no costs of its own", "[app]") {
  const auto costs =
      parse_run_costs(
          // Nor a loss that ended the job.
          "{\"kind\":\"lost\",\"step\":9,\"generation\":2,\"detect_ms\":6,\"tolerance_left\":0}\n"
          "{\"kind\":\"lost\",\"step\":2,\"generation\":2,\"decide_ms\":6,\"copy_ms\":50}\n"
          "{\"kind\":\"joined\",\"step\":2,\"generation\":2,\"nodes\":[1],\"tolerance_left\":1}\n",
          "", "e")
          .value();
  REQUIRE(costs.loss);
  CHECK(costs.loss->copy_ms == 50);
  CHECK(costs.losses == 1);
  CHECK(costs.joins == 0);
  CHECK_FALSE(costs.join);
}

TEST_CASE("what a run does not tell stays open", "[app]") {
  const auto costs =
      parse_run_costs("{\"kind\":\"joined\",\"step\":2,\"decide_ms\":6}\n", "", "e").value();
  CHECK_FALSE(costs.loss);
  CHECK(costs.join->decide_ms == 6);
  CHECK_FALSE(costs.turnover_ms);
  CHECK_FALSE(costs.pace);
}

TEST_CASE("costs come from a run that had some", "[app][errors]") {
  const auto quiet = parse_run_costs("{\"kind\":\"layout\",\"step\":2}\n", "", "e");
  REQUIRE_FALSE(quiet.ok());
  CHECK(quiet.error().code == Errc::bad_data);
  CHECK_THAT(quiet.error().message, ContainsSubstring("neither lost"));
  const auto broken = parse_run_costs("{\"kind\":\"lost\"}\nnothing\n", "", "e");
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().where == "e:2");
  const testing::ScratchFolder folder;
  const auto missing = read_run_costs(folder.path());
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Errc::not_found);
}

TEST_CASE("a run's folder is read", "[app]") {
  const testing::ScratchFolder folder;
  std::ofstream(folder / "events.jsonl") << kEvents;
  CHECK(read_run_costs(folder.path()).value().losses == 3);
  CHECK_FALSE(read_run_costs(folder.path()).value().pace);
  std::ofstream(folder / "metrics.jsonl") << metrics();
  CHECK(read_run_costs(folder.path()).value().pace);
}

}  // namespace
}  // namespace troupe::app
