#include "engine/iteration/step_note.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::engine {
namespace {

TEST_CASE("a note brings a job's progress one step further", "[engine][takeover]") {
  JobProgress progress;
  progress.step = 3;
  progress.tokens = 30;
  progress.bad = {{"b", 0}, {"d", 2}};
  StepNote note;
  note.step = 4;
  note.tokens = 42;
  note.skipped = {2, 1, 7};
  note.deals = {{3, {{1, 2}}}};
  note.bad = {{"c", 3}, {"b", 3}, {"a", 3}};
  apply_note(progress, note);
  CHECK(progress.step == 4);
  CHECK(progress.tokens == 42);
  CHECK(progress.skipped == note.skipped);
  CHECK((progress.deals == note.deals));
  // In order, and each with the batch that found it first.
  CHECK((progress.bad == std::vector<BadSampleNote>{{"a", 3}, {"b", 0}, {"c", 3}, {"d", 2}}));
}

}  // namespace
}  // namespace troupe::engine
