#include "runtime/vocabulary/sample_pieces.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe {
namespace {

const ModuleId kVision{0}, kAudio{2}, kLlm{4};

/// Text; three pictures of 4, 2 and 6 rows; a picture and two windows.
std::vector<SampleShape> samples() {
  std::vector<SampleShape> made(3);
  for (std::size_t s = 0; s < made.size(); ++s) {
    made[s].position = 10 + static_cast<std::int64_t>(s);
    made[s].id = "s" + std::to_string(s);
    made[s].llm_tokens = 20;
    made[s].trained_tokens = 5;
  }
  made[1].media = {{kVision, {{16, 16, 4, 4, 4, 0}, {8, 8, 2, 2, 4, 1}, {24, 24, 6, 4, 6, 2}}}};
  made[2].media = {{kVision, {{16, 16, 4, 4, 4, 0}}},
                   {kAudio, {{10, 5, 5, 0, 0, 0}, {6, 3, 3, 0, 0, 0}}}};
  return made;
}

TEST_CASE("without pieces units are the samples themselves", "[vocabulary]") {
  const auto all = samples();
  const SampleUnits units(all, {});
  CHECK(units.size() == 3);
  CHECK(units.whole() == 3);
  CHECK(units.shapes().data() == all.data());
  CHECK(units.piece(2) == nullptr);
  CHECK(units.sample_of(2) == 2);
  CHECK(units.rows_before(1) == 0);
}

TEST_CASE("pieces stand behind the samples, with their items alone", "[vocabulary]") {
  const auto all = samples();
  const std::vector<SamplePiece> pieces{
      {1, kVision, 0, 1}, {1, kVision, 1, 2}, {2, kAudio, 1, 1}, {2, kVision, 0, 1}};
  const SampleUnits units(all, pieces);
  REQUIRE(units.size() == 7);
  CHECK(units.whole() == 3);
  CHECK((units.shape(1) == all[1]));
  const SampleShape& last_two = units.shape(4);
  CHECK(last_two.id == "s1");
  CHECK(last_two.position == 11);
  CHECK(last_two.llm_tokens == 0);
  CHECK(last_two.trained_tokens == 0);
  REQUIRE(last_two.media.size() == 1);
  CHECK((last_two.media[0] ==
         ModuleMedia{kVision, {all[1].media[0].items[1], all[1].media[0].items[2]}}));
  CHECK(units.shape(5).output_rows(kAudio) == 3);
  CHECK(units.shape(5).items(kVision) == nullptr);
  CHECK(units.sample_of(4) == 1);
  CHECK(units.sample_of(6) == 2);
  CHECK(units.piece(6) == &pieces[3]);
  CHECK(units.rows_before(3) == 0);
  CHECK(units.rows_before(4) == 4);
  CHECK(units.rows_before(5) == 5);
  CHECK(units.rows_before(6) == 0);
}

TEST_CASE("an iteration has a sample of each unit, also of a piece", "[vocabulary]") {
  IterationPlan iteration;
  iteration.samples = samples();
  iteration.pieces = {{1, kVision, 0, 1}, {2, kAudio, 1, 1}};
  CHECK(iteration.sample(2).id == "s2");
  CHECK(iteration.sample(3).id == "s1");
  CHECK(iteration.sample(4).id == "s2");
  CHECK(iteration.sample(4).media.size() == 2);  // All of it.
}

TEST_CASE("a piece of what is not there is not sound", "[vocabulary][errors]") {
  const auto all = samples();
  CHECK(is_sound({1, kVision, 0, 3}, all));
  CHECK(is_sound({1, kVision, 2, 1}, all));
  for (const SamplePiece bad :
       {SamplePiece{1, kVision, 0, 4}, SamplePiece{1, kVision, 2, 2}, SamplePiece{1, kVision, 3, 1},
        SamplePiece{1, kVision, -1, 2}, SamplePiece{1, kVision, 0, 0},
        SamplePiece{1, kVision, 1, -1}, SamplePiece{1, kAudio, 0, 1}, SamplePiece{1, kLlm, 0, 1},
        SamplePiece{1, ModuleId{}, 0, 1}, SamplePiece{0, kVision, 0, 1},
        SamplePiece{3, kVision, 0, 1}, SamplePiece{-1, kVision, 0, 1},
        SamplePiece{1, kVision, 1, 2'147'483'647}})
    CHECK_FALSE(is_sound(bad, all));
}

}  // namespace
}  // namespace troupe
