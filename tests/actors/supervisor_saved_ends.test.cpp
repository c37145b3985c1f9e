// Jobs that end by an error while all of their nodes are there: what they have is saved first.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_end.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

// Window: a peer is missed that the head reaches
TEST_CASE("nodes that do not reach each other, and cannot be done without, save what they have",
          "[actors][recovery]") {
  SavingHead saving(
      9, [](job::Checkpointing&) {}, one_pipeline);
  Head& head = saving.head;
  const bool has_trained = GENERATE(true, false);
  if (has_trained) saving.run_step(1);
  head.plan(has_trained ? 1 : 0);
  const auto miss = [&head](std::size_t reporter, std::size_t peer) {
    head.tell(lost_atom::value, NodeId{reporter}, NodeId{peer}, EpochNumber{1},
              std::string("reset"));
    head.pass(800ms, {0, 1, 2, 3});
  };
  miss(1, 3);
  CHECK(head.ended.has_value() != has_trained);
  if (has_trained) {
    REQUIRE(head.seen[0].saves.size() == 1);
    CHECK(saving.order().step == 1);  // The other step is not decided.
    miss(3, 1);
    CHECK_FALSE(head.ended);
    saving.write();
    saving.keep();
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == (has_trained ? 75 : 1));
  CHECK(says(head.ended->message,
             "node 1 (host, pid 101) lost its connection to node 3 (host, "
             "pid 103), and both answer the head; going on without one of "
             "them was tried: no other node has "));
  CHECK(says(head.ended->message, has_trained
                                      ? "fix: step 1 is saved: the same command goes on from there"
                                      : "fix: look at the network between these machines"));
}

/// A stage throws in step 2, in the first layout or the second.
engine::FailedWork thrown_in_step_2(EpochNumber epoch = 1) {
  engine::FailedWork failed{2, epoch};
  failed.samples = {"s1"};
  failed.thrown = "too tired";
  failed.error = {Errc::internal, "too tired, in step 2 for samples 's1'", {}, "let it sleep"};
  return failed;
}

TEST_CASE("what a stage throws ends a job with its code, once the others' work is saved",
          "[actors][errors]") {
  SavingHead saving(
      9, [](job::Checkpointing&) {}, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  engine::FailedWork failed = thrown_in_step_2();
  bool may_save = true;
  SECTION("it throws") {}
  SECTION("it never returns, and its thread would hear of no order") {
    failed.error.code = Errc::timed_out;
    may_save = false;
  }
  SECTION("its device fails, and reads nothing of what it has") {
    failed.by_device = true;
    may_save = false;
  }
  head.tell(NodeId{1}, failed);
  CHECK(head.ended.has_value() != may_save);
  if (may_save) {
    head.tell(NodeId{2}, thrown_in_step_2());  // The first reason stands.
    CHECK_FALSE(head.ended);
    CHECK(saving.order().step == 1);
    saving.write();
    saving.keep();
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);  // Who begins it again has it throw again.
  const std::string saved = "; step 1 is saved: the same command goes on from there";
  CHECK(says(head.ended->message, "node 1 (host, pid 101): too tired, in step 2 for samples 's1'" +
                                      (may_save ? saved : "\n  fix")));
  CHECK(says(head.ended->message, "\n  fix: let it sleep"));
}

// Window: a stage throws
TEST_CASE("a step that fails again ends the job once what came before it is saved",
          "[actors][recovery][errors]") {
  SavingHead saving(
      9, [](job::Checkpointing&) {},
      [](job::Job& job) {
        job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}},
                                         {{1, 0, {{"vision", {}}, {"llm", {}}}}},
                                         {{2, 0, {{"vision", {}}, {"llm", {}}}}},
                                         {{3, 0, {{"vision", {}}, {"llm", {}}}}}};
      });
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  head.tell(NodeId{1}, thrown_in_step_2());
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  head.plan(1);
  head.tell(NodeId{2}, thrown_in_step_2(2));
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  saving.write({1});
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "step 2 fails again where it is trained again: node 2"));
  CHECK(says(head.ended->message, "; step 1 is saved: the same command goes on from there"));
}

}  // namespace
}  // namespace troupe::actors
