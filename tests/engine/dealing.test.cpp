#include "engine/dealing.hpp"

#include <catch2/catch_test_macros.hpp>
#include <numeric>

namespace troupe::engine {
namespace {

using Counts = std::vector<std::int64_t>;

TEST_CASE("nothing known deals evenly, longer runs first", "[engine]") {
  const Dealing dealing(3, 2);
  CHECK((dealing.counts(0, 8) == Counts{3, 3, 2}));
  CHECK((dealing.counts(0, 2) == Counts{1, 1, 0}));
}

TEST_CASE("a pipeline of half the speed gets half the samples", "[engine]") {
  Dealing dealing(2, 2);
  // Pipeline 0 does 2 units of work per ms, pipeline 1 one: 8 x 0.5 = 4 x 1.
  dealing.note(0, {{12, 6}, {12, 12}});
  CHECK((dealing.counts(2, 12) == Counts{8, 4}));
}

TEST_CASE("a deal looks at batches that were planned before it was ordered, and at no later one",
          "[engine]") {
  Dealing dealing(2, 3);
  dealing.note(0, {{12, 6}, {12, 12}});
  CHECK((dealing.counts(2, 12) == Counts{6, 6}));
  const auto third = dealing.counts(3, 12);
  CHECK((third == Counts{8, 4}));
  dealing.note(1, {{12, 60}, {12, 12}});
  CHECK((dealing.counts(3, 12) == third));
  // Sums, the older batch at 0.9: pipeline 0 has 22.8 in 65.4, pipeline 1 22.8 in 22.8, and
  // 3 x 65.4/22.8 = 8.6 is nearest to 9 x 1.
  CHECK((dealing.counts(4, 12) == Counts{3, 9}));
}

TEST_CASE("a pipeline that slows down after a long time is seen within twenty batches",
          "[engine]") {
  Dealing dealing(2, 1);
  std::int64_t batch = 0;
  for (; batch < 1000; ++batch) dealing.note(batch, {{12, 12}, {12, 12}});
  CHECK((dealing.counts(batch, 12) == Counts{6, 6}));
  for (; batch < 1020; ++batch) dealing.note(batch, {{12, 12}, {12, 36}});
  CHECK((dealing.counts(batch, 12) == Counts{9, 3}));
}

TEST_CASE("a job that goes on deals as it would have, from what it has saved", "[engine]") {
  Dealing whole(2, 3), resumed(2, 3);
  std::vector<DealNote> saved;
  for (std::int64_t batch = 0; batch < 6; ++batch) {
    whole.note(batch, {{12, 6.0 + static_cast<double>(batch)}, {12, 12}});
    saved.push_back({batch, whole.known(batch)});
  }
  saved.erase(saved.begin(), saved.begin() + 2);  // Deals look back by 3.
  resumed.restore(saved);
  for (std::int64_t batch = 6; batch < 12; ++batch) {
    CHECK(resumed.counts(batch, 100) == whole.counts(batch, 100));
    for (Dealing* dealing : {&whole, &resumed}) dealing->note(batch, {{9, 3}, {9, 8}});
  }
  CHECK(whole.known(99).empty());

  Dealing other(3, 3);  // Shares of other pipelines say nothing.
  other.restore(saved);
  CHECK((other.counts(6, 9) == Counts{3, 3, 3}));
}

TEST_CASE("a batch that leaves a pipeline idle teaches nothing", "[engine]") {
  Dealing dealing(2, 1);
  dealing.note(0, {{12, 6}, {0, 0}});
  CHECK((dealing.counts(1, 12) == Counts{6, 6}));
}

TEST_CASE("every sample is dealt once, whatever was noted", "[engine][property]") {
  Dealing dealing(4, 2);
  for (std::int64_t batch = 0; batch < 40; ++batch) {
    const auto counts = dealing.counts(batch, 4 + batch % 13);
    CHECK(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == 4 + batch % 13);
    std::vector<Dealing::Share> shares;
    for (std::int64_t p = 0; p < 4; ++p)
      shares.push_back({1.0 + static_cast<double>((batch * 7 + p * 5) % 11),
                        1.0 + static_cast<double>((batch * 3 + p) % 17)});
    dealing.note(batch, shares);
  }
}

}  // namespace
}  // namespace troupe::engine
