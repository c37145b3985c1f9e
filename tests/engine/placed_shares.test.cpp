#include "tests/torch_catch.hpp"

#include "engine/iteration/placed_shares.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "balancer/ranks/place_shares.hpp"
#include "tests/engine/phase_fixture.hpp"
#include "tests/engine/samples_of_lists.hpp"

namespace troupe::engine {
namespace {

using Loads = balancer::FirstToFinish<double>;

/// On every device of nodes of these sizes an encoder and an llm.
ParallelPlan on_nodes(const std::vector<std::size_t>& sizes) {
  ParallelPlan plan;
  plan.module_groups = {{"vision", {}}, {"llm", {}}};
  for (std::size_t node = 0; node < sizes.size(); ++node)
    for (std::size_t local = 0; local < sizes[node]; ++local) {
      const DeviceId device{plan.devices.size()};
      plan.devices.push_back({NodeId{node}, static_cast<std::int32_t>(local)});
      for (std::size_t group = 0; group < 2; ++group) {
        const ReplicaId replica{plan.replicas.size()};
        const StageId stage{plan.stages.size()};
        plan.replicas.push_back({ModuleGroupId{group}, PipelineId{0}, {stage}});
        plan.stages.push_back({replica, {}, {device}});
      }
    }
  return plan;
}

/// The llm of each device, which trains the sample of its number.
std::vector<LlmCut> a_sample_each(std::size_t devices) {
  std::vector<LlmCut> cuts;
  for (std::size_t d = 0; d < devices; ++d) {
    const auto own = one_part({static_cast<std::int32_t>(d)});
    cuts.push_back({ReplicaId{2 * d + 1}, {{own}, {own}}});
  }
  return cuts;
}

/// A round as it was dealt, over nodes of one to four devices.
struct Round {
  ParallelPlan plan;
  std::vector<LlmCut> cuts;
  PhaseWork work;
  std::vector<std::vector<std::size_t>> near;
  std::vector<DealtUnit> units;

  Round(std::mt19937_64& random, std::size_t replicas) {
    std::vector<std::size_t> sizes;
    for (std::size_t left = replicas; left > 0; left -= sizes.back())
      sizes.push_back(std::min(left, 1 + random() % 4));
    plan = on_nodes(sizes);
    cuts = a_sample_each(replicas);
    near.resize(sizes.size());
    for (std::size_t r = 0; r < replicas; ++r) near[plan.devices[r].node.index()].push_back(r);
    for (std::size_t r = 0; r < replicas; ++r) work.shares.push_back(random() % 4 == 0 ? 0.5 : 1);
    work.bytes_per_row = 2;
    work.inside_node = random() % 2 == 0 ? 0.1 : 0;
    for (std::size_t s = 0; s < replicas; ++s)
      for (std::size_t left = 1 + random() % 5; left > 0; --left) add(random, s);
  }

  void add(std::mt19937_64& random, std::size_t share) {
    const auto unit = static_cast<std::int32_t>(work.samples.size());
    const double rows = static_cast<double>(1 + random() % 9);
    const std::size_t cut = random() % cuts.size();
    const std::size_t home = plan.devices[cut].node.index();
    work.samples.push_back(static_cast<double>(1 + random() % 5));
    work.rows.push_back(rows);
    if (random() % 4 == 0)
      work.apart[unit] = {{NodeId{random() % near.size()}}, static_cast<double>(random() % 20)};
    units.push_back({share, unit, cut, {work.samples.back(), home, 2 * rows}});
  }

  Loads none() const {
    std::vector<double> speeds;
    for (const double share : work.shares) speeds.push_back(1 / share);
    return Loads(speeds);
  }

  double last_end(const std::vector<std::size_t>& places) const {
    Loads loads = none();
    for (const DealtUnit& unit : units) loads.add(places[unit.share], unit.wanted.work);
    double end = 0;
    for (std::size_t r = 0; r < loads.size(); ++r) end = std::max(end, loads.end(r));
    return end;
  }

  /// What the links carry, counted unit by unit.
  double bytes(const std::vector<std::size_t>& places) const {
    double sum = 0;
    for (const DealtUnit& unit : units) {
      const auto u = static_cast<std::size_t>(unit.unit);
      const DeviceSlot &from = plan.devices[places[unit.share]], &to = plan.devices[unit.cut];
      const double way = from == to ? 0 : from.node == to.node ? work.inside_node : 1;
      sum += way * work.rows[u] * work.bytes_per_row;
      const auto apart = work.apart.find(unit.unit);
      if (apart != work.apart.end() && apart->second.seen_by.front() != from.node)
        sum += apart->second.content;
    }
    return sum;
  }

  std::optional<std::vector<std::size_t>> place(double end_max) const {
    return PlacedShares(plan, ModuleGroupId{0}, cuts, work).place(units, near, end_max, none());
  }

  std::vector<std::size_t> as_dealt() const {
    std::vector<std::size_t> places;
    for (std::size_t r = 0; r < work.shares.size(); ++r) places.push_back(r);
    return places;
  }
};

TEST_CASE("shares of any number of replicas go where links carry less, and nobody ends later",
          "[engine][property]") {
  std::mt19937_64 random(31);
  for (const std::size_t replicas : {2u, 5u, 40u, 64u, 65u, 130u})
    for (int turn = 0; turn < 5; ++turn) {
      const Round round(random, replicas);
      const auto dealt = round.as_dealt();
      const double end = round.last_end(dealt);
      const auto places = round.place(end);
      CAPTURE(replicas, turn);
      CHECK((places || replicas < 40));
      if (!places) continue;
      auto sorted = *places;
      std::ranges::sort(sorted);
      REQUIRE(sorted == dealt);
      CHECK(round.bytes(*places) < round.bytes(dealt));
      CHECK(round.last_end(*places) <= end * (1 + 1e-9));
      // Other nodes, and who simulates the step, come to the same.
      const Round same = round;
      CHECK((same.place(end) == places));
    }
}

TEST_CASE("few shares are where links carry least", "[engine][property]") {
  std::mt19937_64 random(32);
  int moved = 0;
  for (int turn = 0; turn < 60; ++turn) {
    const Round round(random, 1 + random() % 6);
    auto other = round.as_dealt();
    const double end = round.last_end(other), dealt = round.bytes(other);
    double least = dealt;
    do {
      if (round.last_end(other) <= end) least = std::min(least, round.bytes(other));
    } while (std::next_permutation(other.begin(), other.end()));
    const auto places = round.place(end);
    CHECK(std::abs((places ? round.bytes(*places) : dealt) - least) <= 1e-9 * dealt);
    moved += places ? 1 : 0;
  }
  CHECK(moved > 15);
}

TEST_CASE("hardly any far bytes among many are not worth a search", "[engine]") {
  for (const bool many : {false, true}) {
    // Every node's encoder has what its llm wants, but for two of them.
    const std::size_t replicas = many ? 400 : balancer::kPlacedAtOnce;
    const auto plan = on_nodes(std::vector<std::size_t>(replicas, 1));
    const auto cuts = a_sample_each(replicas);
    const auto work = work_of(std::vector<double>(replicas, 1), replicas);
    std::vector<std::vector<std::size_t>> near;
    std::vector<DealtUnit> units;
    for (std::size_t r = 0; r < replicas; ++r) {
      const std::size_t wanted = r == 0 ? 9u : r == 9 ? 0u : r;
      near.push_back({r});
      units.push_back({r, static_cast<std::int32_t>(wanted), wanted, {1, wanted, 1}});
    }
    const PlacedShares placed(plan, ModuleGroupId{0}, cuts, work);
    const Loads none(std::vector<double>(replicas, 1));
    CHECK(placed.place(units, near, 1, none).has_value() != many);
    if (!many) continue;
    // Of 400 bytes 2 are 0.5 %, 12 are 3 %.
    for (std::size_t r = 10; r < 20; ++r) {
      const std::size_t wanted = r % 2 == 0 ? r + 1 : r - 1;
      units[r] = {r, static_cast<std::int32_t>(wanted), wanted, {1, wanted, 1}};
    }
    const auto places = placed.place(units, near, 1, none);
    REQUIRE(places);
    for (const DealtUnit& unit : units) CHECK((*places)[unit.share] == unit.cut);
  }
}

TEST_CASE("more replicas than are placed at once take each other's shares too", "[engine]") {
  const std::size_t replicas = balancer::kPlacedAtOnce + 6;
  const auto plan = on_nodes(std::vector<std::size_t>(replicas, 1));
  const auto cuts = a_sample_each(replicas);
  PhaseWork work = work_of(std::vector<double>(replicas, 1), replicas);
  work.rows.assign(replicas, 10);
  // Odd samples would be encoded by their neighbours, which see their 15 bytes of pixels, and the
  // neighbours' samples by them: 20 bytes of rows. As it is, these 15 move.
  for (std::size_t s = 1; s < replicas; s += 2)
    work.apart[static_cast<std::int32_t>(s)] = {{NodeId{s - 1}}, 15};
  const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
  for (std::size_t r = 0; r < replicas; ++r)
    CHECK(all_of(lists[r]) == std::vector{static_cast<std::int32_t>(r)});
}

}  // namespace
}  // namespace troupe::engine
