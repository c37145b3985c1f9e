#include "tests/torch_catch.hpp"

#include "actors/node/keeper_actor.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/state/checkpoint.hpp"
#include "runtime/state/checkpoint_keeping.hpp"
#include "tests/actors/fake_actors.hpp"
#include "tests/actors/test_system.hpp"
#include "tests/runtime/state/example_state.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::actors {
namespace {

/// What devices have written of `step-N`, before the keeper has it.
WrittenCheckpoint written(const std::filesystem::path& folder, std::int64_t step) {
  REQUIRE(state::write_example_checkpoint(folder / "aside", step).ok());
  const auto whole = state::checkpoint_folder(folder / "aside", step);
  WrittenCheckpoint checkpoint;
  checkpoint.number = step;
  checkpoint.partial = state::partial_folder(folder, step, 1);
  checkpoint.folder = state::checkpoint_folder(folder, step);
  checkpoint.resolved_job = "the job";
  checkpoint.manifest = state::Checkpoint::open(whole).value().manifest();
  checkpoint.manifest.files.pop_back();  // The job's file, which the keeper adds.
  std::filesystem::rename(whole, checkpoint.partial);
  return checkpoint;
}

TEST_CASE("the keeper removes older checkpoints, but for that of a job that failed", "[actors]") {
  const bool leaves_older = GENERATE(false, true);
  const testing::ScratchFolder scratch;
  TestSystem system;
  SupervisorSeen told;
  const auto supervisor = system.get().spawn(fake_supervisor, &told);
  const auto actor = system.get().spawn(keeper, std::int32_t{1}, supervisor);
  for (const std::int64_t step : {1, 2}) {
    WrittenCheckpoint checkpoint = written(scratch.path(), step);
    checkpoint.leaves_older = step == 2 && leaves_older;
    caf::anon_send(actor, std::make_shared<const WrittenCheckpoint>(std::move(checkpoint)));
    system.run();
  }
  const auto kept = state::checkpoints_in(scratch.path());
  CHECK(kept.contains(2));
  CHECK(kept.contains(1) == leaves_older);
  for (const auto& end :
       {caf::actor_cast<caf::actor>(actor), caf::actor_cast<caf::actor>(supervisor)})
    caf::anon_send_exit(end, caf::exit_reason::kill);
  system.run();
}

}  // namespace
}  // namespace troupe::actors
