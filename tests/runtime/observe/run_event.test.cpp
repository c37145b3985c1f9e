#include "runtime/observe/run_event.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include <nlohmann/json.hpp>

namespace troupe::observe {
namespace {

RunEvent head_lost() {
  RunEvent event;
  event.step = 57;
  event.generation = 4;
  event.kind = "head-lost";
  event.nodes = {NodeId{1}};
  event.why = "nothing was heard from it";
  event.incarnation = 3;
  event.tolerance_left = 1;
  return event;
}

TEST_CASE("the line of a lost head counts the head that took over", "[observe]") {
  const std::string line = event_line(head_lost());
  CHECK(line.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(line);
  CHECK(json.at("kind") == "head-lost");
  CHECK(json.at("step") == 57);
  CHECK(json.at("generation") == 4);
  CHECK(json.at("nodes") == nlohmann::json::parse("[1]"));
  CHECK(json.at("incarnation") == 3);
  CHECK(json.at("tolerance_left") == 1);
}

TEST_CASE("the line of an event under one head has no count of heads", "[observe]") {
  RunEvent event = head_lost();
  event.kind = "lost";
  event.incarnation = 0;
  CHECK_FALSE(nlohmann::json::parse(event_line(event)).contains("incarnation"));
}

TEST_CASE("a line beside the first of a change has no phases", "[observe]") {
  RunEvent event = head_lost();
  event.copy_ms = 12;
  CHECK(nlohmann::json::parse(event_line(event)).at("copy_ms") == 12);
  event.has_phases = false;
  CHECK_FALSE(nlohmann::json::parse(event_line(event)).contains("copy_ms"));
}

TEST_CASE("a line of a loss that no layout followed says when it was noticed, and no more",
          "[observe]") {
  RunEvent event = head_lost();
  event.detect_ms = 5;
  event.waited_ms = 7;
  event.has_layout = false;
  const auto line = nlohmann::json::parse(event_line(event));
  CHECK(line.at("detect_ms") == 5);
  CHECK(line.at("waited_ms") == 7);
  CHECK(line.contains("tolerance_left"));
  for (const char* key : {"decide_ms", "copy_ms", "copy_bytes", "replay_ms"})
    CHECK_FALSE(line.contains(key));
}

}  // namespace
}  // namespace troupe::observe
