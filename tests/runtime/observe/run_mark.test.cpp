#include "runtime/observe/run_mark.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>
#include <vector>

namespace troupe::observe {
namespace {

RunEvent event_of(const std::string& kind, std::vector<NodeId> nodes) {
  RunEvent event;
  event.step = 7;
  event.kind = kind;
  event.nodes = std::move(nodes);
  event.why = "it was killed";
  return event;
}

std::string name_of(const std::string& kind, std::vector<NodeId> nodes) {
  return run_mark(event_of(kind, std::move(nodes)), 0).value().name;
}

TEST_CASE("a mark says what happened to whom, and is of the whole job", "[observe]") {
  const auto mark = run_mark(event_of("lost", {NodeId{2}}), 12345);
  REQUIRE(mark.has_value());
  CHECK_FALSE(mark->node.valid());
  CHECK(mark->name == "lost: node 2");
  CHECK(mark->time_ns == 12345);
  CHECK(mark->step == 7);
  CHECK(mark->kind == "lost");
  CHECK(mark->why == "it was killed");
  CHECK(name_of("joined", {NodeId{1}, NodeId{4}}) == "joined: nodes 1 4");
  CHECK(name_of("drained", {NodeId{0}}) == "drained: node 0");
  CHECK(name_of("head-lost", {}) == "head-lost");
  CHECK(name_of("began-without", {NodeId{1}}) == "began-without: node 1");
}

TEST_CASE("all nodes of a layout are not whom it happened to", "[observe]") {
  CHECK(name_of("layout", {NodeId{0}, NodeId{1}}) == "layout");
  CHECK(name_of("resumed", {NodeId{0}, NodeId{1}}) == "resumed");
}

TEST_CASE("a checkpoint is no mark", "[observe]") {
  CHECK_FALSE(run_mark(event_of("checkpoint", {}), 0).has_value());
}

TEST_CASE("phases are all of an event's time but what passed while others trained", "[observe]") {
  RunEvent event = event_of("joined", {NodeId{1}});
  event.detect_ms = 1, event.decide_ms = 2, event.connect_ms = 4, event.copy_ms = 8;
  event.rebuild_ms = 16, event.decode_ms = 32, event.replay_ms = 64, event.warm_up_ms = 128;
  event.waited_ms = 256;
  CHECK(phases_ms(event) == 127 + 256);
  event.has_phases = false;
  CHECK(phases_ms(event) == 0);
}

}  // namespace
}  // namespace troupe::observe
