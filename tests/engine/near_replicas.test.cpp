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

}  // namespace
}  // namespace troupe::engine
