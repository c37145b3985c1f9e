// What nodes say of their devices beside a step: that one is lost, or gets into no group of calls.

#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <utility>
#include <vector>

#include "actors/supervisor/supervisor_stalls.hpp"
#include "tests/actors/head_fixture.hpp"
#include "tests/actors/on_each_node.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// All of the model on each node; who is missed is waited for.
void and_wait(job::Job& job) {
  on_each_node(job);
  job.recovery.wait_for_nodes_s = 10;
}

/// This node's device is of no use any more, in this layout.
void fail_device(Head& head, std::size_t node, EpochNumber epoch, Errc code, std::string why) {
  engine::FailedWork failed{0, epoch};
  failed.error = {code, std::move(why), {}, {}};
  failed.by_device = true;
  head.tell(NodeId{node}, failed);
}

/// These nodes have their state of the newest layout.
void fetch(Head& head, EpochNumber epoch, const std::vector<std::size_t>& nodes) {
  for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
}

// Window: a layout does not come up
TEST_CASE("a device that is lost beside a step takes nothing from the time of the next layout",
          "[actors][recovery]") {
  Head head(9, and_wait);
  head.start_training();
  head.plan(0);
  const bool is_known_to_be_lost = GENERATE(false, true);
  if (is_known_to_be_lost) {  // Its node; the others finish the step first.
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
    head.lose(3);
  }
  fail_device(head, 3, 1, Errc::internal, "CUDA error: uncorrectable ECC error");
  if (is_known_to_be_lost)
    for (std::size_t device = 0; device < 3; ++device) head.finished(device, 1);
  REQUIRE(head.seen[0].configurations.size() == 2);
  fetch(head, 2, {0, 2});
  head.system.pass(2300ms);
  CHECK_FALSE(head.ended);  // Of this layout nobody was late before.
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0], "it did not fetch its state of layout 2 within 2 s"));
  CHECK(head.seen[0].configurations.size() == 3);
}

// Window: a layout does not come up
TEST_CASE("openings that fail while a job waits for others blame nobody", "[actors][recovery]") {
  Head head(9, and_wait);
  head.join_all();
  fetch(head, 1, {0, 1, 2, 3});
  fail_device(head, 2, 1, Errc::timed_out, "NCCL group 'rows' cannot be opened");
  REQUIRE(head.seen[2].stops.size() == 1);
  fetch(head, 2, {0, 1, 3});
  head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {3}}};
  head.leave({3});  // Nobody else sees the data: others are waited for.
  head.pass(400ms, {0, 1});
  CHECK_FALSE(head.ended);
  for (const std::size_t id : {0u, 1u})
    fail_device(head, id, 2, Errc::timed_out, "NCCL group 'rows' cannot be opened");
  head.pass(1s, {0, 1});
  CHECK_FALSE(head.ended);
  for (const std::size_t id : {0u, 1u}) CHECK(head.seen[id].stops.empty());
  head.join("host", 3);
  head.ready(3);
  head.pass(400ms, {0, 1, 3});
  CHECK(head.seen[0].configurations.size() == 3);
}

}  // namespace
}  // namespace troupe::actors
