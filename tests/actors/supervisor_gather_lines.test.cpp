// Lines of steps that a lost head did not come to write, under the head that gathers its nodes.

#include "actors/supervisor/supervisor_gather.hpp"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/actors/taking_over.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("steps that the head before did not write are written from what nodes kept",
          "[actors][takeover]") {
  TakingOver taking;
  taking.recorded_step = 2;
  for (std::size_t id = 0; id < 4; ++id) taking.head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  const auto& steps = taking.head.recorder.steps;
  REQUIRE(steps.size() == 2);
  CHECK(steps[0]->metrics.step == 3);
  CHECK(steps[0]->metrics.loss == 3);
  CHECK((steps[1]->ids == std::vector<std::string>{"s4"}));
}

TEST_CASE("steps that nobody remembers any more are named", "[actors][takeover]") {
  const testing::ScratchFolder scratch;
  TakingOver taking;
  taking.recorded_step = 2;
  taking.head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, scratch / "log"}).value();
  for (std::size_t id = 0; id < 4; ++id) {
    NodeHolding holding = taking.at_step(id, 30);
    holding.verdicts.erase(holding.verdicts.begin(), holding.verdicts.end() - kVerdictsKept);
    taking.head.join_with(holding);
  }
  taking.pass(1s);
  REQUIRE(taking.head.recorder.steps.size() == kVerdictsKept);
  std::ifstream stream(scratch / "log");
  const std::string log{std::istreambuf_iterator<char>(stream), {}};
  CHECK(says(log, "nobody knows any more what steps 3 to 14 trained"));
}

}  // namespace
}  // namespace troupe::actors
