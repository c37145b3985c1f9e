#include "tests/torch_catch.hpp"

#include "engine/contract/moves.hpp"

#include <ATen/ops/ones.h>

#include <cmath>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/engine/faulty_job.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("a late device runs work on another thread, and host memory is filled behind it",
          "[engine]") {
  const auto late = late_device();
  std::thread::id thread;
  at::Tensor host;
  double early = 0;
  const Status ran = in_work(*late, [&]() -> Status {
    thread = std::this_thread::get_id();
    host = late->to_host(at::ones({1}, at::kDouble));
    early = host.item<double>();
    return Done{};
  });
  REQUIRE(ran.ok());
  CHECK((thread != std::this_thread::get_id()));
  CHECK(std::isnan(early));
  CHECK(host.item<double>() == 1);
  const Status failed = in_work(*late, []() -> Status { throw std::runtime_error("too far"); });
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message == "throws: too far");
}

TEST_CASE("a state that moves to another device and back gives what it gives where it stays",
          "[engine]") {
  const auto bench = StageBench::create(tiny_job(), {});
  REQUIRE(bench.ok());
  for (const StageId id : {StageId{0}, StageId{1}}) {
    const auto state = bench.value()->state(id);
    REQUIRE(state.ok());
    auto stage = bench.value()->make(id, state.value());
    REQUIRE(stage.ok());
    const auto inputs = bench.value()->draw_inputs(id);
    const auto rounds =
        moved_rounds(*bench.value(), id, inputs, std::move(stage).value(), state.value());
    REQUIRE(rounds.ok());
    REQUIRE(rounds.value().size() == 2);
    CHECK(rounds.value().front().to == "a device that completes work late");
    for (const MovedRound& one : rounds.value()) CHECK(same_bits(one.stayed, one.moved));
    // Both steps have moved it.
    CHECK_FALSE(same_bits(rounds.value()[0].stayed, rounds.value()[1].stayed));
  }
}

TEST_CASE("what a stage keeps of a place or of a thread has the name of its promise", "[engine]") {
  CHECK(broken_by_stage("keeps a weight") == "moved");
  CHECK(broken_by_stage("keeps a constant") == "moved");
  CHECK(broken_by_stage("peeks") == "offload");
  CHECK(broken_by_stage("keeps its thread") == "offload, moved");
}

TEST_CASE("a breach says on which device", "[engine][errors]") {
  CHECK(first_breach("keeps a constant").found ==
        "moved to a device that completes work late: rows hold numbers that are not finite");
  CHECK(first_breach("peeks").found ==
        "on a device that completes work late, the gradient of rows hold numbers that are not "
        "finite");
  CHECK(first_breach("keeps its thread").found ==
        "on a device that completes work late, forward of microbatch 0: throws: too far");
}

}  // namespace
}  // namespace troupe::engine
