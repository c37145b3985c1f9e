#include "tests/torch_catch.hpp"

#include "engine/execution/made_stages.hpp"
#include "engine/execution/stage_filter.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/layout/choose_layout.hpp"

#include <ATen/ops/equal.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/state/seeded_store.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "tests/engine/tiny_job.hpp"

// Kinds stay for the rest of the process, so that all of them stand in one case.

namespace troupe::engine {
namespace {

using Made = Result<std::unique_ptr<StageProgram>>;

/// Counts what was made, around the engine's own stage.
struct Counting : StageFilter {
  using StageFilter::StageFilter;
};

TEST_CASE("a stage is made by the kind that has its families", "[engine]") {
  const JobSetup setup = prepare(tiny_job()).value();
  const ParallelPlan plan = make_parallel_plan(setup).value();
  const auto stage = [&](std::size_t id) -> Made {
    const auto store = seeded_store(setup, plan, plan.at(StageId{id}).devices.front()).value();
    return make_stage({plan, StageId{id}, setup.modules(), setup.layers, store});
  };
  const auto is_counting = [](const Made& made) {
    return dynamic_cast<Counting*>(made.value().get()) != nullptr;
  };
  static WorkInHand hand;  // Kinds that stay look at it.
  const auto all_of = [&](std::size_t device) {
    const auto store = seeded_store(setup, plan, DeviceId{device}).value();
    return make_stages({plan, {}, setup.modules(), setup.layers, store}, DeviceId{device}, 7, hand);
  };
  // Of each pipeline an encoder with its projector comes first, then the llm's stages.
  const auto made = all_of(2);
  REQUIRE(made.ok());
  REQUIRE(made.value().size() == 2);
  CHECK(made.value().contains(StageId{2}));
  CHECK(made.value().contains(StageId{3}));
  REQUIRE_FALSE(is_counting(stage(0)));
  CHECK(stage_kind_of(plan, StageId{0}, setup.modules()).empty());
  CHECK(check_stage_kinds(plan, setup.modules(), true).ok());
  CHECK(stage_kind_lines(plan, setup.modules()).empty());
  CHECK(offloads(plan, StageId{0}, setup.modules()));
  CHECK_FALSE(offloads(plan, StageId{1}, setup.modules()));  // No plan asks the llm's.

  const auto counting = [](const StageRequest& request) -> Made {
    auto inner = built_in_stage(request);
    if (!inner.ok()) return inner;
    return std::unique_ptr<StageProgram>(std::make_unique<Counting>(std::move(inner).value()));
  };
  REQUIRE(register_stage({"seers", {"qwen2-vl"}, counting}).ok());
  CHECK(is_counting(stage(0)));
  CHECK(stage_kind_of(plan, StageId{0}, setup.modules()) == "seers");
  CHECK(stage_kind_of(plan, StageId{1}, setup.modules()).empty());
  CHECK(stage_kind_lines(plan, setup.modules()) ==
        std::vector<std::string>{"stage kind 'seers' runs 2 of 5 stages: vision 0-2, projector"});
  CHECK_FALSE(offloads(plan, StageId{0}, setup.modules()));  // The kind does not say that it can.
  const auto kept = check_stage_kinds(plan, setup.modules(), true);
  REQUIRE_FALSE(kept.ok());
  CHECK(kept.error().where == "scheduler.offload_encoders");
  CHECK(kept.error().message.starts_with("stage kind 'seers' keeps what a forward leaves"));
  CHECK(kept.error().fix.find("StageFilter") != std::string::npos);
  CHECK(check_stage_kinds(plan, setup.modules()).ok());  // Nothing is to be put away.
  CHECK_FALSE(is_counting(stage(1)));
  CHECK(is_counting(stage(2)));
  CHECK_FALSE(is_counting(stage(3)));
  CHECK_FALSE(is_counting(stage(4)));

  CHECK(register_stage({"seers", {"whisper"}, counting}).error().message ==
        "stage kind 'seers' is there already");
  CHECK(register_stage({"others", {"whisper", "qwen2-vl"}, counting}).error().message ==
        "stage kind 'others' wants qwen2-vl, which 'seers' has already");
  CHECK(register_stage({"all", {}, counting}).error().code == Errc::invalid_argument);
  CHECK(register_stage({"No Name", {"mlp"}, counting}).error().code == Errc::invalid_argument);
  CHECK(register_stage({"empty", {"mlp"}, {}}).error().code == Errc::invalid_argument);
  CHECK(stage_kind_names() == std::vector<std::string>{"seers"});

  static std::string function;          // That is called meanwhile: one that hangs has a name.
  static std::optional<LongWork> work;  // And its stage, where a device makes all that it has.
  REQUIRE(register_stage({"readers",
                          {"llama"},
                          [](const StageRequest&) -> Made {
                            const auto call = plugins::oldest_user_call();
                            function = call ? call->function : "nobody's";
                            work = hand.longer_than(0);
                            return Error{Errc::infeasible, "has no memory left", "gpu 3", {}};
                          }})
              .ok());
  CHECK(stage(1).error().message == "stage kind 'readers' has no memory left");
  CHECK(stage(1).error().where == "gpu 3");
  CHECK(function == "`make` of stage kind 'readers'");
  CHECK_FALSE(plugins::oldest_user_call());
  const auto none = all_of(1);
  REQUIRE_FALSE(none.ok());
  const std::string where =
      ", as layout 7 comes up on device 1, `make` of stage 1 (llm layers 0 to 3)";
  CHECK(none.error().message == "stage kind 'readers' has no memory left" + where);
  CHECK(none.error().where == "gpu 3");
  REQUIRE(work);
  CHECK(work->device == DeviceId{1});
  CHECK(work->seconds >= 0);
  CHECK(work->work.step == 0);
  CHECK(work->work.epoch_number == 7);
  CHECK(work->work.thrown == "the work does not return");
  CHECK(work->work.error.code == Errc::timed_out);
  CHECK(work->work.error.message ==
        "the work does not return" + where + " by stage kind 'readers'");
  CHECK(work->work.error.fix.find("raise cluster.join_timeout_s") != std::string::npos);
  CHECK_FALSE(hand.longer_than(0));
  CHECK(check_stage_kinds(plan, setup.modules()).ok());
  CHECK_FALSE(offloads(plan, StageId{1}, setup.modules()));
  REQUIRE(register_stage({"projectors", {"mlp"}, counting, true}).ok());
  CHECK(check_stage_kinds(plan, setup.modules()).error().code == Errc::infeasible);
  CHECK(stage(2).error().message == check_stage_kinds(plan, setup.modules()).error().message);

  CHECK(check_stage_families().ok());
  REQUIRE(register_stage({"misspelt", {"lama"}, counting}).ok());
  const auto unknown = check_stage_kinds(plan, setup.modules());
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message ==
        "stage kind 'misspelt' is for family 'lama', which is not there");
  CHECK(unknown.error().fix == "did you mean `llama`?");
  CHECK(check_stage_families().error().message == unknown.error().message);
}

}  // namespace
}  // namespace troupe::engine
