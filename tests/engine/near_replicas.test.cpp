#include "engine/iteration/near_replicas.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

namespace troupe::engine {
namespace {

using Loads = balancer::FirstToFinish<double>;
using Chosen = std::vector<std::size_t>;

Loads even(std::size_t replicas) { return Loads(std::vector<double>(replicas, 1)); }

TEST_CASE("samples stay where they are wanted while nobody ends too late", "[engine]") {
  // Node 0 has replica 0 and wants 5, 3 and 1; node 1 has replica 1 and wants 4 and 2.
  const std::vector<WantedSample> samples{{5, 0}, {4, 1}, {3, 0}, {2, 1}, {1, 0}};
  Loads loads = even(2);
  CHECK((keep_near(samples, {{0}, {1}}, 9, loads) == Chosen{0, 1, 0, 1, 0}));
  CHECK((loads.load(0) == 9 && loads.load(1) == 6));
}

TEST_CASE("a sample that would end too late goes to the first to finish", "[engine]") {
  const std::vector<WantedSample> samples{{5, 0}, {4, 1}, {3, 0}, {2, 1}, {1, 0}};
  Loads loads = even(2);
  CHECK((keep_near(samples, {{0}, {1}}, 8, loads) == Chosen{0, 1, 0, 1, 1}));  // 9 is too many.
  // The largest first: the 3 leaves, so that later ones may stay.
  Loads others = even(2);
  CHECK((keep_near(std::vector<WantedSample>{{5, 0}, {3, 0}, {1, 1}, {1, 0}}, {{0}, {1}}, 7,
                   others) == Chosen{0, 1, 1, 0}));
  // The 3 ends at 8 here and at 7 there.
  Loads tight = even(2);
  CHECK((keep_near(samples, {{0}, {1}}, 6, tight) == std::nullopt));
  CHECK((tight.load(0) == 0 && tight.load(1) == 0));  // As they were.
}

TEST_CASE("several replicas of a node share what it wants, those without go to anybody",
          "[engine]") {
  const std::vector<WantedSample> samples{{4, 0}, {3, 1}, {2, 0}, {2, 0}, {1, 1}};
  Loads loads = even(3);
  // Node 0 has replicas 0 and 2; node 1 has none: 3 goes to replica 1, then 1 to it or an equal.
  CHECK((keep_near(samples, {{0, 2}, {}}, 4, loads) == Chosen{0, 1, 2, 2, 1}));
}

TEST_CASE("a faster replica keeps more", "[engine]") {
  const std::vector<WantedSample> samples{{4, 0}, {4, 0}, {4, 0}};
  Loads loads(std::vector<double>{2, 1});
  CHECK((keep_near(samples, {{0, 1}}, 4, loads) == Chosen{0, 0, 1}));
}

TEST_CASE("what was there before counts, and is never given away", "[engine]") {
  Loads loads = even(2);
  loads.add(0, 6);
  CHECK(
      (keep_near(std::vector<WantedSample>{{3, 0}, {2, 0}}, {{0}, {1}}, 8, loads) == Chosen{1, 0}));
  CHECK((loads.load(0) == 8 && loads.load(1) == 3));
}

TEST_CASE("every sample has a replica, none ends too late, and only what must go leaves its node",
          "[engine][property]") {
  std::mt19937_64 random(3);
  int kept = 0, refused = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    const std::size_t nodes = 1 + random() % 4, replicas = nodes * (1 + random() % 3);
    std::vector<std::vector<std::size_t>> near(nodes);
    for (std::size_t r = 0; r < replicas; ++r) near[r % nodes].push_back(r);
    std::vector<WantedSample> samples;
    for (std::size_t i = 0, count = random() % 40; i < count; ++i)
      samples.push_back({1.0 + static_cast<double>(random() % 50), random() % nodes});
    std::sort(samples.begin(), samples.end(),
              [](const auto& a, const auto& b) { return a.work > b.work; });
    Loads plain = even(replicas), loads = even(replicas);
    double end = 0;
    for (const auto& sample : samples) {
      const std::size_t replica = plain.find(sample.work);
      plain.add(replica, sample.work);
      end = std::max(end, plain.load(replica));
    }
    const auto chosen = keep_near(samples, near, 1.05 * end, loads);
    if (!chosen) {
      ++refused;
      continue;
    }
    REQUIRE(chosen->size() == samples.size());
    std::vector<double> sums(replicas), wanted(nodes);
    double away = 0;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      sums[(*chosen)[s]] += samples[s].work;
      wanted[samples[s].node] += samples[s].work;
      if ((*chosen)[s] % nodes != samples[s].node) away += samples[s].work;
    }
    for (std::size_t r = 0; r < replicas; ++r) {
      CHECK(sums[r] <= 1.05 * end + 1e-9);
      CHECK(sums[r] == loads.load(r));
    }
    if (std::all_of(wanted.begin(), wanted.end(), [&](double w) { return w == 0; })) continue;
    ++kept;
    double plain_away = 0;  // Of a deal that does not look at nodes, on average.
    for (const auto& sample : samples)
      plain_away += sample.work * (1 - 1.0 / static_cast<double>(nodes));
    if (samples.size() > 8 * replicas) CHECK(away <= plain_away + 1e-9);
  }
  CHECK(kept > 1000);
  CHECK(refused < 600);
}

/// Rows of samples that are not where they are wanted; replicas are near as `near` says.
double far(const std::vector<WantedSample>& samples,
           const std::vector<std::vector<std::size_t>>& near, const Chosen& chosen) {
  double rows = 0;
  for (std::size_t s = 0; s < samples.size(); ++s)
    if (std::ranges::find(near[samples[s].node], chosen[s]) == near[samples[s].node].end())
      rows += samples[s].bytes;
  return rows;
}

double last_end(const std::vector<WantedSample>& samples, Loads loads, const Chosen& chosen) {
  double end = 0;
  for (std::size_t s = 0; s < samples.size(); ++s) loads.add(chosen[s], samples[s].work);
  for (std::size_t r = 0; r < loads.size(); ++r) end = std::max(end, loads.end(r));
  return end;
}

Chosen drawn(const std::vector<WantedSample>& samples,
             const std::vector<std::vector<std::size_t>>& near, double end_max, Chosen chosen,
             const Loads& before, std::int64_t looks = 10'000) {
  const Chosen given = chosen;
  const bool has_moved = draw_near(samples, near, end_max, before, looks, chosen);
  CHECK(has_moved == (chosen != given));
  return chosen;
}

TEST_CASE("a far sample goes to its node, alone where there is room, else for another",
          "[engine]") {
  const std::vector<std::vector<std::size_t>> near{{0}, {1}, {2}};
  // Alone.
  CHECK((drawn({{3, 0, 5}}, near, 3, {1}, even(3)) == Chosen{0}));
  CHECK((drawn({{3, 0, 5}}, near, 2.9, {1}, even(3)) == Chosen{1}));
  // Each for the other.
  const std::vector<WantedSample> two{{3, 0, 5}, {3, 1, 5}};
  CHECK((drawn(two, near, 3, {1, 0}, even(3)) == Chosen{0, 1}));
  CHECK((drawn(two, near, 3, {1, 0}, even(3), 0) == Chosen{1, 0}));  // Nothing was looked at.
  // For one that has fewer rows, and not for one that has as many.
  CHECK((drawn({{3, 0, 5}, {3, 0, 4}}, near, 3, {1, 0}, even(3)) == Chosen{0, 1}));
  CHECK((drawn({{3, 0, 5}, {3, 0, 5}}, near, 3, {1, 0}, even(3)) == Chosen{1, 0}));
  // For one that is wanted at a third node: replica 1 would not take it.
  Loads busy = even(3);
  busy.add(1, 2);
  const std::vector<WantedSample> three{{2, 0, 5}, {3, 2, 5}};
  CHECK((drawn(three, near, 4, {1, 0}, busy) == Chosen{0, 2}));
  // A faster replica has room for it.
  CHECK((drawn({{3, 0, 5}}, near, 1.5, {1}, Loads(std::vector<double>{2, 2, 2})) == Chosen{0}));
}

TEST_CASE("of changes the one that brings most is made, for the sample with the most rows first",
          "[engine]") {
  // Replica 0 has room for one of the two.
  const std::vector<WantedSample> samples{{3, 0, 4}, {3, 0, 6}};
  Loads busy = even(2);
  busy.add(0, 3);
  CHECK((drawn(samples, {{0}, {1}}, 6, {1, 1}, busy) == Chosen{1, 0}));
  // It comes first: after one look nobody makes way for it any more.
  CHECK((drawn(samples, {{0}, {1}}, 6, {1, 1}, busy, 1) == Chosen{1, 0}));
}

TEST_CASE("a pass over far samples is ended, however many changes were looked at", "[engine]") {
  // Node 0 has replicas 0 and 2, each with room for one of the two.
  const std::vector<WantedSample> samples{{3, 0, 5}, {3, 0, 4}};
  CHECK((drawn(samples, {{0, 2}, {1}}, 3, {1, 1}, even(3), 1) == Chosen{0, 2}));
}

TEST_CASE("who made way for another is drawn home in its turn", "[engine]") {
  // Replicas 0 and 2 are near to node 0; there is room of 4, 7 and 3. The 4 goes to replica 0 for
  // the first 3, which has no room but on 1; it then goes to 2 for the other, which is wanted on 1.
  const std::vector<WantedSample> samples{{4, 0, 5}, {3, 0, 4}, {3, 1, 3}};
  const Loads loads(std::vector<double>{4, 7, 3});
  CHECK((drawn(samples, {{0, 2}, {1}}, 1, {1, 0, 2}, loads) == Chosen{0, 2, 1}));
}

TEST_CASE("two others make way for a far sample", "[engine]") {
  // Of 17 replicas 0 and 1 have room for 4 each, the others none.
  std::vector<double> rooms(17, 1.0 / 64);
  rooms[0] = rooms[1] = 4;
  const std::vector<WantedSample> samples{{4, 0, 9}, {2, 1, 1}, {2, 1, 1}};
  CHECK((drawn(samples, {{0}, {1}}, 1, {1, 0, 0}, Loads(rooms)) == Chosen{0, 1, 1}));
}

TEST_CASE("who makes way may need another to make way", "[engine]") {
  // Each has room for what is on the one before. What the 4 brings, the last 3 takes away.
  const std::vector<WantedSample> samples{{3, 0, 9}, {4, 1, 4}, {3, 1, 4}};
  const std::vector<std::vector<std::size_t>> near{{0}, {1}, {2}};
  const Loads loads(std::vector<double>{4, 4, 3});
  CHECK((drawn(samples, near, 1, {2, 0, 1}, loads) == Chosen{0, 1, 2}));
  CHECK((drawn(samples, near, 1, {2, 0, 1}, loads, 3) == Chosen{2, 0, 1}));  // Too few looks.
  // Among many replicas there would be too much to look at.
  std::vector<double> many(17, 1.0 / 64);
  std::ranges::copy(std::vector<double>{4, 4, 3}, many.begin());
  CHECK((drawn(samples, near, 1, {2, 0, 1}, Loads(many)) == Chosen{2, 0, 1}));
}

TEST_CASE("no change is left that brings rows near, and few where the best placement has none",
          "[engine][property]") {
  std::mt19937_64 random(7);
  double before = 0, after = 0, least = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const std::size_t nodes = 2 + random() % 2, replicas = nodes == 2 ? 2 * (1 + random() % 2) : 3;
    std::vector<std::vector<std::size_t>> near(nodes);
    for (std::size_t r = 0; r < replicas; ++r) near[r % nodes].push_back(r);
    std::vector<WantedSample> samples;
    for (std::size_t i = 0, count = 3 + random() % 4; i < count; ++i)
      samples.push_back({1.0 + static_cast<double>(random() % 20), random() % nodes,
                         static_cast<double>(random() % 30)});
    Loads plain = even(replicas);
    Chosen chosen;
    for (const auto& sample : samples) {
      chosen.push_back(plain.find(sample.work));
      plain.add(chosen.back(), sample.work);
    }
    const double end = 1.1 * last_end(samples, even(replicas), chosen);
    const Chosen found = drawn(samples, near, end, chosen, even(replicas));
    CHECK(last_end(samples, even(replicas), found) <= end);
    CHECK(far(samples, near, found) <= far(samples, near, chosen));
    before += far(samples, near, chosen);
    after += far(samples, near, found);
    double best = far(samples, near, found);
    Chosen every(samples.size(), 0);
    for (bool more = true; more;) {
      if (last_end(samples, even(replicas), every) <= end)
        best = std::min(best, far(samples, near, every));
      std::size_t place = 0;
      while (place < every.size() && ++every[place] == replicas) every[place++] = 0;
      more = place < every.size();
    }
    least += best;
  }
  CHECK(before > 2 * least);
  CHECK(after < 1.02 * least);  // Without chains 1.2.
}

}  // namespace
}  // namespace troupe::engine
