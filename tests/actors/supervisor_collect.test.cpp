// How the trained model comes to the head: what becomes of a collection that a loss falls into.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_collect.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/saving_head.hpp"
#include "tests/actors/template_set.hpp"
#include "transport/transport.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// Trains the only step; then all nodes but these offer their tensors.
void offer_all(Head& head, const std::set<std::size_t>& but = {}) {
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 4; ++id)
    if (!but.contains(id)) head.tell(Offers{NodeId{id}, 1, {}});
}

/// All but this node take up the next layout, and offer their tensors again.
void offer_again(Head& head, std::size_t but) {
  for (std::size_t id = 0; id < 4; ++id)
    if (id != but) head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (std::size_t id = 0; id < 4; ++id)
    if (id != but) head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  const std::size_t before = head.recorder.collections.size();
  for (std::size_t id = 0; id < 4; ++id) {
    if (id == but) continue;
    CHECK(head.seen[id].collections.size() == 2);
    head.tell(Offers{NodeId{id}, 2, {}});
  }
  CHECK(head.recorder.collections.size() == before + 1);
}

// Window: final tensors are offered
TEST_CASE("what is said of a collection that is over does not end the job", "[actors][recovery]") {
  const Errc code = GENERATE(Errc::transport_failed, Errc::timed_out);
  const bool is_cut = GENERATE(true, false);
  Head head(1, [&](job::Job& job) { job.train.dump_gradients = !is_cut; });
  head.recorder.busy = true;
  head.start_training();
  offer_all(head);
  REQUIRE(head.recorder.collections.size() == 1);
  if (is_cut) {
    head.tell(lost_atom::value, NodeId{0}, NodeId{1}, EpochNumber{1}, std::string("reset"));
    head.pass(1s, {0, 1, 2, 3});
  } else {
    head.lose(1);  // Before its parameters were asked for.
  }
  REQUIRE(head.seen[2].configurations.size() == 2);
  const std::size_t lost = head.seen[1].stops.empty() ? 0 : 1;
  head.tell(failed_atom::value, Error{code, "nothing came from peer 1", "", ""});
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  for (std::size_t id = 0; id < 4; ++id) {
    CHECK(head.seen[id].saves.empty());
    if (id != lost) CHECK(head.seen[id].stops.empty());
  }
  offer_again(head, lost);
}

// Window: final tensors are offered
TEST_CASE("a device that never offers its tensors costs its node", "[actors][recovery]") {
  const bool is_needed = GENERATE(false, true);
  SavingHead saving(1, {}, [&](job::Job& job) {
    job.cluster.heartbeat_timeout_s = 10'000;
    job.train.stall_timeout_s = 20;
    if (is_needed) one_pipeline(job);
  });
  Head& head = saving.head;
  offer_all(head, {1});
  const std::string work =
      "the work does not return, behind step 1 on device 1, `parameters` of stage 1 (llm)";
  engine::LongWorks told;
  told.works.push_back({DeviceId{1}, 10, {1, 1}});
  told.works.back().work.error = {Errc::timed_out, work, {}, {}};
  head.tell(NodeId{1}, told);
  head.system.pass(25s);
  CHECK_FALSE(says(saving.log(), "has not offered"));
  head.system.pass(10s);
  CHECK(says(saving.log(),
             "node 1 (host, pid 101) has not offered its tensors of the trained model"));
  CHECK(says(saving.log(), "; " + work + " ("));
  head.system.pass(560s);  // What steps must not take, large models may.
  CHECK(head.seen[1].stops.empty());
  CHECK(head.recorder.collections.empty());
  const std::size_t saves = head.seen[0].saves.size();
  head.system.pass(6s);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  const std::string lost =
      "node 1 (host, pid 101) was lost: it has not offered its tensors of the trained model for 60";
  CHECK(says(head.seen[1].stops[0], lost));
  CHECK(says(head.seen[1].stops[0], "; " + work + " (61"));
  if (!is_needed) return offer_again(head, 1);
  CHECK(head.seen[0].saves.size() == saves + 1);  // What the others have of it.
  head.leave({0, 2, 3});
  head.system.pass(400ms);
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(says(head.ended->message, lost));
  CHECK(says(head.ended->message, "it cannot be done without: no other node has "));
}

// Window: final tensors are offered
TEST_CASE("tensors of a node that falls silent are not waited for", "[actors][recovery]") {
  const bool is_silent = GENERATE(true, false);
  std::vector<float> values(3);
  Head head(1, [](job::Job& job) { job.cluster.heartbeat_timeout_s = 2; });
  head.recorder.busy = true;
  head.start_training();
  offer_all(head);
  const auto tag = transport::make_tag(1, transport::TagKind::state, 0, 0);
  const auto receive = head.resources.transport->receive(3, tag, {values.data(), 12, nullptr});
  head.pass(200ms, {0, 1, 2, 3});
  head.pass(1s, {0, 1, 2});
  CHECK_FALSE(receive.done());
  if (!is_silent) {  // What it had sent may still come: who carries it sees the end of it.
    head.lose(3);
    CHECK_FALSE(receive.done());
    return;
  }
  head.pass(2s, {0, 1, 2});
  REQUIRE(receive.done());
  const Status failed = receive.wait(transport::within(0ms));
  REQUIRE_FALSE(failed.ok());
  CHECK(says(failed.error().message, "node 3 (host, pid 103) was lost: "));
  REQUIRE(head.seen[3].stops.size() == 1);  // It hears so when it wakes.
  CHECK(says(head.seen[3].stops[0], "goes on without this node: node 3 (host, pid 103) was lost"));
  head.tell(failed_atom::value, failed.error());  // As the recorder does then.
  REQUIRE(head.seen[0].configurations.size() == 2);
  offer_again(head, 3);
}

// Window: final tensors are offered
TEST_CASE("who takes the place of one that was lost while the model is written stays",
          "[actors][recovery]") {
  Head head(1, [](job::Job& job) { job.cluster.heartbeat_timeout_s = 2; });
  head.recorder.busy = true;
  head.start_training();
  offer_all(head);
  head.pass(200ms, {0, 1, 2, 3});
  head.pass(3s, {0, 1, 2});
  REQUIRE(head.seen[3].stops.size() == 1);
  REQUIRE(head.join("another") == "3");
  bool is_ready = false, is_needed = false;
  SECTION("and still opens its data") {}
  SECTION("and is ready") { is_ready = true; }
  SECTION("and is waited for") { is_needed = true; }
  if (is_ready) head.ready(3);
  if (is_needed) head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {3}}};
  // Without the tensors of the one before, which nobody has any more, the model is not whole.
  head.tell(failed_atom::value, Error{Errc::transport_failed, "peer 3 is lost", "", ""});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[3].stops.size() == 1);
  CHECK(head.seen[3].configurations.size() == (is_ready ? 2 : 1));
  REQUIRE(head.seen[0].configurations.size() == (is_needed ? 1 : 2));
  if (is_needed) return;
  std::vector<std::size_t> nodes{0, 1, 2};
  if (is_ready) nodes.push_back(3);
  for (const std::size_t id : nodes)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  CHECK(head.seen[0].collections.size() == 2);
}

// Window: final tensors are offered
TEST_CASE("two nodes lost while the model is written do no harm", "[actors][recovery]") {
  Head head(1);
  head.recorder.busy = true;
  head.start_training();
  offer_all(head);
  head.lose(3);
  head.lose(2);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.size() == 1);  // Theirs may have come.
  caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});
  head.leave({0, 1});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 0);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}, NodeId{2}}));
}

// Window: final tensors are offered
TEST_CASE("a loss while the model is written is told of with one that a layout follows",
          "[actors][recovery]") {
  Head head(1);
  head.recorder.busy = true;
  head.start_training();
  offer_all(head);
  head.lose(3);
  head.tell(lost_atom::value, NodeId{1}, NodeId{2}, EpochNumber{1}, std::string("reset"));
  head.pass(1s, {0, 1, 2});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[2].stops.size() == 1);
  REQUIRE(head.seen[0].configurations.size() == 2);
  for (const std::size_t id : {0u, 1u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : {0u, 1u}) head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "lost");
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}, NodeId{2}}));
  CHECK(says(head.recorder.events[0].why, "node 3 (host, pid 103) was lost: was killed"));
  CHECK(says(head.recorder.events[0].why, "node 2 (host, pid 102) was lost: it answers, but"));
  // What is missing now is not missing for want of node 3.
  for (const std::size_t id : {0u, 1u}) head.tell(Offers{NodeId{id}, 2, {}});
  head.tell(failed_atom::value, Error{Errc::transport_failed, "nothing came", "", ""});
  CHECK(head.seen[0].configurations.size() == 2);
}

// Window: final tensors are offered
TEST_CASE("no layout counts on what went while the model was written", "[actors][recovery]") {
  Head head(1);
  head.recorder.busy = true;
  head.start_training();
  head.tell(templates_of(head.resources.setup));
  offer_all(head);
  head.lose(3);
  head.lose(1);  // With it the last copy of half of the llm goes.
  head.tell(lost_atom::value, NodeId{0}, NodeId{2}, EpochNumber{1}, std::string("reset"));
  head.pass(1s, {0, 2});
  for (const std::size_t id : {0u, 2u}) CHECK(head.seen[id].configurations.size() == 1);
}

/// A job each of whose nodes alone has a part of the model, which is being written; so is a
/// checkpoint.
struct WrittenAndSaved {
  WrittenAndSaved()
      : saving(
            1, [](job::Checkpointing& x) { x.every_steps = 1; }, one_pipeline) {
    saving.head.recorder.busy = true;
    offer_all(saving.head);
    REQUIRE(saving.head.seen[0].saves.size() == 1);
  }

  /// What it could not receive the recorder says.
  void fail_to_come() {
    saving.head.tell(failed_atom::value, Error{Errc::transport_failed, "peer 3 is lost", "", ""});
  }

  /// Who is left of nodes 0, 1 and 2 writes what lives, of which the job's end tells.
  void save_part(const std::set<std::size_t>& lost, const std::string& last_held) {
    REQUIRE(saving.head.seen[0].saves.size() == 2);
    saving.write(lost);
    REQUIRE(saving.head.keeper.written.size() == 1);
    CHECK(saving.head.keeper.written[0].folder.filename() == "step-1.incomplete-2");
    saving.keep();
    REQUIRE(saving.head.ended);
    INFO(saving.head.ended->message);
    CHECK(saving.head.ended->exit_code == kResumable);
    CHECK(says(saving.head.ended->message, "; what is left of step 1 is saved ("));
    CHECK(says(saving.head.ended->message, "(last held by " + last_held + ")"));
  }

  SavingHead saving;
};

// Window: final tensors are offered
TEST_CASE("no save waits for who was lost with a last copy while the model was written",
          "[actors][recovery]") {
  WrittenAndSaved job;
  Head& head = job.saving.head;
  head.lose(3);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].saves.size() == 1);
  CHECK(says(job.saving.log(), "no checkpoint of step 1: no other node has llm."));
  SECTION("the model came whole: the job is done") {
    head.tell(save_atom::value);  // Nor where somebody asks for one.
    CHECK(head.seen[0].saves.size() == 1);
    caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});
    head.leave({0, 1, 2});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 0);
  }
  SECTION("it did not: the others save what lives") {
    job.fail_to_come();
    job.save_part({3}, "node 3 (host, pid 103)");
  }
  SECTION("the job is to stop: so they do") {
    head.tell(stop_atom::value, std::int32_t{SIGTERM});
    job.save_part({3}, "node 3 (host, pid 103)");
    CHECK(says(head.ended->message, "stopped by SIGTERM"));
  }
}

// Window: final tensors are offered
TEST_CASE("what lives is saved without all that were lost while the model was written",
          "[actors][recovery]") {
  WrittenAndSaved job;
  for (const std::size_t id : {3u, 2u}) job.saving.head.lose(id);
  job.fail_to_come();
  job.save_part({2, 3}, "node 2 (host, pid 102) and node 3 (host, pid 103)");
}

// Window: final tensors are offered
TEST_CASE("who takes the place of one lost with a last copy stays until the others have saved",
          "[actors][recovery]") {
  WrittenAndSaved job;
  Head& head = job.saving.head;
  head.pass(400ms, {0, 1, 2, 3});  // The one before was welcomed earlier.
  head.lose(3);
  REQUIRE(head.join("another") == "3");
  job.fail_to_come();
  CHECK(head.seen[0].saves.size() == 2);
  CHECK(head.seen[3].stops.empty());
  job.saving.write({3});
  job.saving.keep();
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "; what is left of step 1 is saved ("));
}

// Window: final tensors are offered
TEST_CASE("a loss behind the written model costs at most its last checkpoint",
          "[actors][recovery]") {
  const bool is_needed = GENERATE(false, true);
  SavingHead saving(
      1, [](job::Checkpointing& x) { x.every_steps = 1; }, placed(!is_needed));
  Head& head = saving.head;
  offer_all(head);
  REQUIRE(head.recorder.collections.size() == 1);
  for (const NodeSeen& node : head.seen) CHECK(node.stops.empty());  // The checkpoint is not done.
  head.lose(3);
  for (const NodeSeen& node : head.seen) CHECK(node.configurations.size() == 1);
  CHECK(says(saving.log(), "no checkpoint of step 1: no other node has llm.") == is_needed);
  if (!is_needed) {
    REQUIRE(head.seen[0].saves.size() == 2);
    saving.write({3});
    saving.keep();
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 0);
  CHECK(head.recorder.collections.size() == 1);
}

}  // namespace
}  // namespace troupe::actors
