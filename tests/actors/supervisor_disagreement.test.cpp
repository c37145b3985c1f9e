// Jobs whose holders have not the same after a step.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_steps.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdint>
#include <string>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

// Window: holders disagree after a step
TEST_CASE("of holders that disagree most save the step, and the job ends", "[actors][errors]") {
  const bool is_whole = GENERATE(true, false);  // The others have all of the model.
  SavingHead saving(9, {}, placed(is_whole));
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  saving.prepare(2);
  for (std::size_t device = 0; device < 4; ++device)
    head.finished(device, 2, 1, device == 2 ? 8 : 7);
  CHECK(head.recorder.steps.size() == 2);
  CHECK(head.ended.has_value() != is_whole);
  if (is_whole) {
    REQUIRE(head.seen[0].saves.size() == 1);
    CHECK(saving.order().step == 2);
    CHECK(saving.order(2).shards.empty());
    saving.write();
    saving.keep();
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message,
             "disagree after step 2: 3 nodes have the same, but not node 2; " +
                 std::string(is_whole ? "what differs is not saved; step 2 is saved: the same "
                                        "command with --resume goes on from there ("
                                      : "nothing is saved: those that agree have not all of the "
                                        "model")));
}

TEST_CASE("what nobody can say to be right is not saved by a job that is to stop either",
          "[actors][errors]") {
  SavingHead saving;
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  saving.prepare(2);
  head.tell(stop_atom::value, std::int32_t{SIGTERM});
  for (std::size_t device = 0; device < 4; ++device)
    head.finished(device, 2, 1, device < 2 ? 8 : 7);
  CHECK(head.seen[0].saves.empty());
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "; nothing is saved: no more than half of the nodes"));
}

}  // namespace
}  // namespace troupe::actors
