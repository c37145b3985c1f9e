#include "tests/torch_catch.hpp"

#include "engine/profiling/nominal_profile.hpp"

#include <algorithm>

#include "scheduler/cost/cost_model.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

scheduler::DeviceSpec h100() { return scheduler::find_device("H100-80G").value(); }

const scheduler::LayerProfile& kind_of(const scheduler::Profile& profile, const std::string& kind) {
  return *std::find_if(profile.profiles.begin(), profile.profiles.end(),
                       [&](const auto& made) { return made.kind == kind; });
}

TEST_CASE("a computed profile says so and serves every layer", "[engine]") {
  const auto setup = prepare(tiny_job()).value();
  const auto profile = computed_profile(setup, h100(), {{1, 1}, {2, 1}, {1, 2}});
  CHECK(profile.device == "H100-80G (computed)");
  CHECK(profile.speeds.origin == scheduler::CostOrigin::computed);
  const auto costs = scheduler::CostModel::create(setup.model, profile).value();
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    CHECK(costs.origin(ModuleId{m}) == scheduler::CostOrigin::computed);
    CHECK(costs.parallelisms(ModuleId{m}).size() == 3);
  }
}

TEST_CASE("a projector that takes its width from the llm has both of its matrices", "[engine]") {
  // 24 columns in, 16 hidden and 16 out, as the job says nothing else: 24 x 16 + 16 x 16 elements
  // of 8 bytes.
  const auto setup = prepare(tiny_job()).value();
  const auto profile = computed_profile(setup, h100());
  CHECK(kind_of(profile, "projector.mlp").parameters == Bytes{640 * 8});
}

TEST_CASE("the nominal core is slower than a GPU in everything", "[engine]") {
  const auto setup = prepare(tiny_job()).value();
  const auto core = nominal_profile(setup);
  const auto gpu = computed_profile(setup, h100());
  CHECK(core.device == "cpu (computed)");
  CHECK(core.speeds.network.gigabytes_per_s < gpu.speeds.network.gigabytes_per_s);
  CHECK(core.speeds.reduce_gigabytes_per_s < gpu.speeds.reduce_gigabytes_per_s);
  CHECK(core.speeds.optimizer_elements_per_s < gpu.speeds.optimizer_elements_per_s);
  const auto& slow = kind_of(core, "llm.block").points.back().linear;
  const auto& fast = kind_of(gpu, "llm.block").points.back().linear;
  CHECK(slow.forward_ms > fast.forward_ms);
}

}  // namespace
}  // namespace troupe::engine
