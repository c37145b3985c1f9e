#include "engine/iteration/skipped_steps.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::engine {
namespace {

StepOutcome outcome(bool commit) {
  StepOutcome made;
  made.decision.commit = commit;
  made.decision.reason = "the loss is not finite";
  if (!commit) made.nonfinite_samples = {"s7"};
  return made;
}

TEST_CASE("steps that are not finite end a job when enough follow one another", "[engine]") {
  SkippedSteps skipped(2, 100);
  CHECK(skipped.add(1, outcome(false), 5, 10).ok());
  CHECK(skipped.add(2, outcome(true), 5, 10).ok());
  CHECK(skipped.add(3, outcome(false), 5, 10).ok());
  const auto over = skipped.add(4, outcome(false), 5, 10);
  REQUIRE_FALSE(over.ok());
  CHECK(over.error().message.find("2 steps in a row") != std::string::npos);
  CHECK(over.error().message.find("s7") != std::string::npos);
  CHECK(over.error().where == "step 4");
  CHECK(skipped.count() == 3);
}

TEST_CASE("a step without trained tokens does not hide that its neighbours are not finite",
          "[engine]") {
  SkippedSteps skipped(2, 100);
  CHECK(skipped.add(1, outcome(false), 5, 10).ok());
  CHECK(skipped.add(2, outcome(false), 0, 10).ok());
  CHECK_FALSE(skipped.add(3, outcome(false), 5, 10).ok());
}

TEST_CASE("an epoch without a trained token ends a job that might never end", "[engine]") {
  SkippedSteps skipped(1, 30);
  CHECK(skipped.add(1, outcome(false), 0, 10).ok());
  CHECK(skipped.add(2, outcome(true), 3, 10).ok());
  CHECK(skipped.add(3, outcome(false), 0, 10).ok());
  CHECK(skipped.add(4, outcome(false), 0, 10).ok());
  const auto over = skipped.add(5, outcome(false), 0, 10);
  REQUIRE_FALSE(over.ok());
  CHECK(over.error().code == Errc::bad_data);
  CHECK(over.error().message.find("last 30 samples") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
