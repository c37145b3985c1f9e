#include "tests/engine/tiny_cluster.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <new>

#include "engine/execution/allocator_settings.hpp"
#include "engine/execution/memory_promise.hpp"
#include "tests/engine/hooked_stage.hpp"

namespace troupe::engine {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a promise holds a tenth more than it says, and no more", "[engine][errors]") {
  const MemoryPromise promise{Bytes{1'000'000'000}, Bytes{600'000'000}};
  CHECK(check_promise(promise, Bytes{500'000'000}, "in step 3 on device 1").ok());
  const Status broken = check_promise(promise, Bytes{501'000'000}, "in step 3 on device 1");
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().code == Errc::infeasible);
  CHECK(broken.error().where == "cluster.device_memory_gib");
  CHECK_THAT(broken.error().message, ContainsSubstring("activations take 501 MB in step 3"));
  CHECK_THAT(broken.error().message, ContainsSubstring("beside 600 MB of parameters"));
  CHECK_THAT(broken.error().message, ContainsSubstring("within 1.0 GB"));
  CHECK_THAT(broken.error().fix, ContainsSubstring("train.microbatches"));
  CHECK(check_promise({}, Bytes{1} * (std::int64_t{1} << 50), "").ok());
}

TEST_CASE("GPUs are shared out as their devices promise", "[engine]") {
  CHECK(memory_share(Bytes{20}, Bytes{80}, 1, 1) == Approx(0.25));
  CHECK(memory_share(Bytes{20}, Bytes{80}, 3, 2) == Approx(0.5));  // Two meet on one.
  CHECK(memory_share(Bytes{100}, Bytes{80}, 1, 1) == 1);
}

TEST_CASE("an allocator is told its share beside what the environment says", "[engine]") {
  const auto told = [](const char* cuda, const char* general) {
    const auto settings = settings_with_share(cuda, general, 0.25);
    return settings.variable + "=" + settings.text;
  };
  CHECK(told(nullptr, nullptr) == "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.250000");
  CHECK(told("", nullptr) == "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.250000");
  CHECK(told("expandable_segments:True", "backend:native") ==
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:0.250000");
  CHECK(told(nullptr, "expandable_segments:True") ==
        "PYTORCH_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:0.250000");
  CHECK(told("per_process_memory_fraction:0.5", nullptr) ==
        "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.5");
}

TEST_CASE("a device that holds more than its plan promised ends the step with the numbers",
          "[engine][errors]") {
  job::Job job = tiny_job();
  CHECK(memory_promise(job, make_parallel_plan(prepare(job).value()).value(), DeviceId{0}).device ==
        Bytes{});
  const auto run = [&](Bytes room_beside_state) {
    Cluster cluster(job, {}, [&](ExecutorOptions& options) {
      options.memory = {Bytes{2'000'000} + room_beside_state, Bytes{2'000'000}};
    });
    cluster.begin(0);
    return cluster.advance_to(Progress::committing);
  };
  CHECK(run(Bytes{100'000'000}).ok());
  // By hand: a tenth of 2 MB is slack, and so much less than nothing is left beside the state.
  const Status ended = run(Bytes{-190'000});
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::infeasible);
  CHECK_THAT(ended.error().message, ContainsSubstring("in step 1 on device "));
}

TEST_CASE("the state that a plan promises is that of a device's stages", "[engine]") {
  job::Job job = tiny_job();
  job.cluster.device_memory_gib = 1;
  const auto plan = make_parallel_plan(prepare(job).value()).value();
  std::int64_t both = 0;
  for (std::size_t device = 0; device < 4; ++device) {
    const auto promise = memory_promise(job, plan, DeviceId{device});
    CHECK(promise.device == Bytes{1024 * 1024 * 1024});
    CHECK(promise.state > Bytes{});
    if (device < 2) both += promise.state.count();
  }
  // Devices 0 and 1 hold the model once, as 2 and 3 do: value, gradient and two moments in fp64.
  std::int64_t elements = 0;
  for (const ParameterGroup& group : plan.groups) elements += group.elements;
  CHECK(both >= 4 * 8 * elements);
}

TEST_CASE("where memory runs out the plan's numbers are told", "[engine][errors]") {
  CHECK(promise_words({}).empty());
  CHECK(promise_words({Bytes{1'000'000'000}, Bytes{600'000'000}}) ==
        " (by its plan a device has 1.0 GB, of which 600 MB are parameters, gradients and "
        "optimizer)");
}

TEST_CASE("an error of no room gets the plan's numbers, and no other one", "[engine][errors]") {
  const MemoryPromise promise{Bytes{1'000'000'000}, Bytes{600'000'000}};
  const Error allocator{Errc::infeasible, "no room: CUDA out of memory", "here", {}};
  const Error told = with_promise(allocator, promise);
  CHECK(told.code == Errc::infeasible);
  CHECK(told.message == allocator.message + promise_words(promise));
  CHECK(told.where == "here");
  CHECK(told.fix == memory_fix(promise, true));
  const Error driver{Errc::infeasible, "no room: std::bad_alloc", {}, {}};
  CHECK(with_promise(driver, promise).fix == memory_fix(promise, false));
  CHECK(with_promise(driver, {}).message == driver.message);
  CHECK(with_promise(driver, {}).fix == kMemoryFix);
  for (const Error& other : {Error{Errc::timed_out, "it hangs", {}, {}},
                             Error{Errc::infeasible, "too many", {}, "have fewer"}})
    CHECK((with_promise(other, promise) == other));
}

TEST_CASE("where memory runs out beside a promise the fix names the key that gave it",
          "[engine][errors]") {
  const MemoryPromise promise{Bytes{1'000'000'000'000}, Bytes{600'000'000}};
  CHECK(memory_fix({}, true) == kMemoryFix);
  CHECK(memory_fix({}, false) == kMemoryFix);
  const auto run = [&](const std::function<void()>& thrower) {
    const job::Job job = tiny_job();
    std::vector<std::unique_ptr<HookedStage>> throwing;
    Cluster cluster(
        job, {}, [&](ExecutorOptions& options) { options.memory = promise; }, {}, {},
        [&](StageId stage, ModelStage& inner) -> StageProgram* {
          if (stage != StageId{1}) return &inner;
          throwing.push_back(std::make_unique<HookedStage>(inner, thrower));
          return throwing.back().get();
        });
    cluster.begin(0);
    const Status ended = cluster.advance_to(Progress::committing);
    REQUIRE_FALSE(ended.ok());
    INFO(ended.error().message);
    CHECK_THAT(ended.error().message, ContainsSubstring("(by its plan a device has 1000.0 GB"));
    return ended.error().fix;
  };
  CHECK(run([] { TORCH_CHECK(false, "CUDA out of memory. Tried to allocate 2 GiB"); }) ==
        memory_fix(promise, true));
  CHECK(run([] { throw std::bad_alloc(); }) == memory_fix(promise, false));
  CHECK_THAT(memory_fix(promise, true), ContainsSubstring("raise cluster.device_memory_gib"));
  CHECK_THAT(memory_fix(promise, false), ContainsSubstring("lower cluster.device_memory_gib"));
}

}  // namespace
}  // namespace troupe::engine
