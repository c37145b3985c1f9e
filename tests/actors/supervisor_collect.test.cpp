// How the trained model comes to the head: what becomes of a collection that a loss falls into.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_collect.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <string>

#include "tests/actors/saving_head.hpp"

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

}  // namespace
}  // namespace troupe::actors
