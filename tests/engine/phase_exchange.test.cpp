#include "engine/iteration/phase_exchange.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <random>
#include <set>

#include "engine/iteration/batch_work.hpp"
#include "tests/engine/phase_fixture.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

std::vector<double> loads(const std::vector<MicrobatchList>& lists, const PhaseWork& work) {
  std::vector<double> found;
  for (std::size_t r = 0; r < lists.size(); ++r) {
    double sum = 0;
    for (const auto& microbatch : lists[r])
      for (const auto& part : microbatch.parts)
        for (const auto sample : part.samples)
          sum += work.samples[static_cast<std::size_t>(sample)];
    found.push_back(sum * work.shares[r]);
  }
  return found;
}

TEST_CASE("samples of all llm replicas are spread over all encoders, longest first", "[engine]") {
  const auto plan = replicas(2, 2);
  // Llm replica 2 trains all pictures, 3 has text alone.
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0, 1, 2})}, {one_part({0, 1, 2})}}},
                                 {ReplicaId{3}, {{one_part({3, 4})}, {one_part({3, 4})}}}};
  const auto work = work_of({5, 4, 3, 0, 0}, 2);
  const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
  REQUIRE(lists.size() == 2);
  // 5 to the first, 4 and 3 to the second; samples without pictures stay where their llm's number
  // points.
  CHECK((lists[0] == MicrobatchList{one_part({0})}));
  CHECK((lists[1] == MicrobatchList{one_part({1, 2, 3, 4})}));
}

TEST_CASE("what rounds before left uneven, later ones make up for", "[engine]") {
  const auto plan = replicas(2, 2);
  const std::vector<LlmCut> cuts{
      {ReplicaId{2}, {{one_part({0}), one_part({2})}, {one_part({0}), one_part({2})}}},
      {ReplicaId{3}, {{one_part({1}), one_part({3})}, {one_part({1}), one_part({3})}}}};
  const auto work = work_of({9, 1, 9, 1}, 2);
  const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
  CHECK((lists[0] == MicrobatchList{one_part({0}), one_part({3})}));
  CHECK((lists[1] == MicrobatchList{one_part({1}), one_part({2})}));
}

TEST_CASE("rounds that are spread at once are even together, and each stays one", "[engine]") {
  const auto plan = replicas(2, 2);
  const std::vector<LlmCut> cuts{
      {ReplicaId{2}, {{one_part({0}), one_part({2, 3})}, {one_part({0}), one_part({2, 3})}}},
      {ReplicaId{3}, {{one_part({1}), one_part({4})}, {one_part({1}), one_part({4})}}}};
  const auto work = work_of({1, 1, 3, 3, 2}, 2);
  const auto spread = [&](bool at_once) {
    return spread_phase(plan, ModuleGroupId{0}, cuts, work, {.at_once = at_once});
  };
  CHECK((loads(spread(false), work) == std::vector<double>{6, 4}));
  const auto lists = spread(true);
  CHECK((lists[0] == MicrobatchList{one_part({2, 4})}));
  CHECK((lists[1] == MicrobatchList{one_part({0, 1}), one_part({3})}));
}

TEST_CASE("a replica of half the speed gets half the work", "[engine]") {
  const auto plan = replicas(2, 2);
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0, 1, 2})}, {one_part({0, 1, 2})}}},
                                 {ReplicaId{3}, {{one_part({3, 4, 5})}, {one_part({3, 4, 5})}}}};
  PhaseWork work = work_of({1, 1, 1, 1, 1, 1}, 2);
  work.shares = {1, 0.5};  // The second's busiest stage takes half of it.
  const auto found = loads(spread_phase(plan, ModuleGroupId{0}, cuts, work, {}), work);
  CHECK(found[0] == 2);
  CHECK(found[1] == 2);
}

TEST_CASE("one part for each llm microbatch that is fed, the one needed first in front",
          "[engine]") {
  const auto plan = replicas(2, 2);
  // Of llm replica 2 sample 0 is deferred to the second llm microbatch; sample 5 is text.
  const std::vector<LlmCut> cuts{
      {ReplicaId{2}, {{one_part({0, 1, 5})}, {one_part({1, 5}), one_part({0})}}},
      {ReplicaId{3}, {{one_part({2, 3})}, {one_part({2, 3})}}}};
  const auto work = work_of({4, 4, 4, 4, 0, 0}, 2);
  const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {.splits_parts = true});
  // 0 and 2 on the first, 1 and 3 on the second.
  CHECK((lists[0] == MicrobatchList{{{{{2, 5}}, {{0}}}}}));
  CHECK((lists[1] == MicrobatchList{{{{{1}}, {{3}}}}}));
}

TEST_CASE("fewer encoders than llm replicas cut their share of a round for them", "[engine]") {
  const auto plan = replicas(2, 4);
  std::vector<LlmCut> cuts;
  for (std::int32_t r = 0; r < 4; ++r)
    cuts.push_back(
        {ReplicaId{2 + r}, {{one_part({2 * r, 2 * r + 1})}, {one_part({2 * r, 2 * r + 1})}}});
  const auto work = work_of(std::vector<double>(8, 1), 2);
  const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
  for (const auto& list : lists) {
    REQUIRE(list.size() == 2);  // Four llm replicas over two encoders.
    for (const auto& microbatch : list) CHECK(microbatch.parts[0].samples.size() == 2);
  }
  CHECK((lists[0] == MicrobatchList{one_part({0, 2}), one_part({4, 6})}));
}

TEST_CASE("every sample once, no replica above an even share and the largest sample",
          "[engine][property]") {
  std::mt19937_64 random(11);
  for (int turn = 0; turn < 300; ++turn) {
    const int encoders = 1 + static_cast<int>(random() % 5),
              llms = 1 + static_cast<int>(random() % 5);
    const auto plan = replicas(encoders, llms);
    std::vector<LlmCut> cuts;
    std::vector<double> weights;
    for (int r = 0; r < llms; ++r) {
      LlmCut cut{ReplicaId{encoders + r}, {}};
      for (std::size_t m = 0, count = random() % 4; m < count; ++m) {
        std::vector<std::int32_t> own;
        for (std::size_t i = 0, size = 1 + random() % 6; i < size; ++i) {
          own.push_back(static_cast<std::int32_t>(weights.size()));
          weights.push_back(random() % 3 == 0 ? 0.0 : 1.0 + static_cast<double>(random() % 100));
        }
        cut.cut.encoder.push_back(one_part(own));
        cut.cut.llm.push_back(one_part(own));
      }
      cuts.push_back(std::move(cut));
    }
    const auto work = work_of(weights, static_cast<std::size_t>(encoders));
    for (const bool splits : {false, true}) {
      const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {.splits_parts = splits});
      REQUIRE(lists.size() == static_cast<std::size_t>(encoders));
      std::multiset<std::int32_t> seen;
      for (const auto& list : lists)
        for (const auto& microbatch : list) {
          CHECK_FALSE(microbatch.parts.empty());
          CHECK((splits || microbatch.parts.size() == 1));
          for (const auto& part : microbatch.parts) {
            CHECK_FALSE(part.samples.empty());
            seen.insert(part.samples.begin(), part.samples.end());
          }
        }
      CHECK(seen.size() == weights.size());
      CHECK(std::set<std::int32_t>(seen.begin(), seen.end()).size() == weights.size());
      double total = 0, largest = 0;
      for (const double weight : weights) total += weight, largest = std::max(largest, weight);
      CHECK(largest_load(lists, work) <= total / encoders + largest + 1e-9);
    }
  }
}

TEST_CASE("a sample with many pictures is shared among replicas, and goes to one llm part",
          "[engine]") {
  const auto plan = replicas(3, 1);
  // Sample 0 weighs 9 of 12 and goes in three pieces, units 4 to 6; unit 7 is of another group.
  const std::vector<LlmCut> cuts{
      {ReplicaId{3}, {{one_part({0, 1}), one_part({2, 3})}, {one_part({0, 1, 2, 3})}}}};
  PhaseWork work = work_of({9, 1, 1, 1}, 3);
  const std::vector<MicrobatchList> drawn{
      {one_part({0})}, {one_part({1, 2})}, {one_part({3})}, {one_part({0, 1, 2, 3})}};
  CHECK(phase_balance(plan, ModuleGroupId{0}, drawn, work).bound == 9.0 / 4);
  work.piece_work = work.piece_rows = {3, 3, 3, 0};
  work.cut = {{0, {4, 5, 6}}};
  auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {.splits_parts = true});
  CHECK((lists[0] == MicrobatchList{one_part({4, 1})}));
  CHECK((lists[1] == MicrobatchList{one_part({5}), one_part({2})}));
  CHECK((lists[2] == MicrobatchList{one_part({6}), one_part({3})}));
  CHECK(largest_load(lists, work) == 4);
  lists.push_back({one_part({0, 1, 2, 3})});
  const auto balance = phase_balance(plan, ModuleGroupId{0}, lists, work);
  CHECK(balance.drawn == 9.0 / 4);
  CHECK(balance.planned == 1);
  CHECK(balance.bound == 1);
  // All but what node 0 encodes leaves it, and of 12 it has room for 4.
  CHECK(far_rows(colocated(), ModuleGroupId{0},
                 std::vector<MicrobatchList>{
                     {one_part({4, 1})}, {one_part({5, 6, 2, 3})}, {one_part({0, 1, 2, 3})}, {}},
                 [&] {
                   auto two = work;
                   two.shares = {1, 1};
                   return two;
                 }())
            .planned == 8.0 / 12);
}

TEST_CASE("what an llm's node wants is encoded there, where that is as soon done", "[engine]") {
  const auto plan = colocated();  // On node 0 encoder 0 and llm 2, on node 1 encoder 1 and llm 3.
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0, 1, 2})}, {one_part({0, 1, 2})}}},
                                 {ReplicaId{3}, {{one_part({3, 4})}, {one_part({3, 4})}}}};
  PhaseWork work = work_of({3, 2, 1, 3, 3}, 2);
  work.rows = {30, 20, 10, 30, 30};
  auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
  // The largest first would have gone 3 | 3, 3 | 2, 1: one of node 1's on node 0.
  CHECK((lists[0] == MicrobatchList{one_part({0, 1, 2})}));
  CHECK((lists[1] == MicrobatchList{one_part({3, 4})}));
  const auto far = [&] {
    std::vector<MicrobatchList> all{lists[0], lists[1], cuts[0].cut.llm, cuts[1].cut.llm};
    return far_rows(plan, ModuleGroupId{0}, all, work);
  };
  CHECK((far() == FarRows{0, 0}));
  // Node 0 wants 9 of 12: 3 must leave it.
  work = work_of({3, 3, 3, 2, 1}, 2);
  work.rows = {30, 30, 30, 20, 10};
  lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
  CHECK((lists[0] == MicrobatchList{one_part({0, 1})}));
  CHECK((lists[1] == MicrobatchList{one_part({2, 3, 4})}));
  CHECK(far().planned == Catch::Approx(30.0 / 120));
  CHECK(far().bound == Catch::Approx(30.0 / 120));
}

TEST_CASE(
    "where not every sample fits near its llm, as many rows as can be are still encoded there",
    "[engine]") {
  const auto plan = colocated();
  // In the order of their work neither the first nor the second pair of twos has room at home.
  const std::vector<LlmCut> cuts{
      {ReplicaId{2}, {{one_part({0, 1, 2, 3})}, {one_part({0, 1, 2, 3})}}},
      {ReplicaId{3}, {{one_part({4, 5})}, {one_part({4, 5})}}}};
  const auto work = work_of({3, 3, 2, 2, 2, 2}, 2);
  const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
  CHECK((lists[0] == MicrobatchList{one_part({0, 2, 3})}));
  CHECK((lists[1] == MicrobatchList{one_part({1, 4, 5})}));
}

/// Samples of a replica, in order.
std::vector<std::int32_t> samples_of(const MicrobatchList& list) {
  std::vector<std::int32_t> found;
  for (const auto& microbatch : list)
    for (const auto& part : microbatch.parts)
      found.insert(found.end(), part.samples.begin(), part.samples.end());
  return found;
}

using Samples = std::vector<std::int32_t>;

TEST_CASE("a source's samples are encoded where it is, if their rows are fewer bytes", "[engine]") {
  const auto plan = colocated();  // Llm 2 on node 0, llm 3 on node 1, as the encoders.
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0, 2})}, {one_part({0, 2})}}},
                                 {ReplicaId{3}, {{one_part({1, 3})}, {one_part({1, 3})}}}};
  PhaseWork work = work_of({1, 1.01, 1, 1}, 2);  // The largest chooses first.
  work.rows = {10, 10, 10, 10};
  const auto first = [&] {
    return samples_of(spread_phase(plan, ModuleGroupId{0}, cuts, work, {})[0]);
  };
  CHECK(first() == Samples{0, 2});
  // Node 0 alone sees 1, whose pixels are 100 bytes: its rows, and those of 2, which makes room,
  // are 10 each.
  work.apart = {{1, {{NodeId{0}}, 100}}};
  CHECK(first() == Samples{0, 1});
  work.apart = {{1, {{NodeId{0}}, 5}}};  // Fewer than its rows.
  CHECK(first() == Samples{0, 2});
  work.bytes_per_row = 0.25;  // Now 2.5 bytes.
  CHECK(first() == Samples{0, 1});
  work.apart = {{1, {{NodeId{1}}, 100}}};  // Where it is wanted.
  CHECK(first() == Samples{0, 2});
  work.apart = {{1, {{NodeId{7}}, 100}}};  // Nobody encodes there.
  CHECK(first() == Samples{0, 2});
}

TEST_CASE("what an llm's node sees and no encoder there could read is encoded where it is, too",
          "[engine]") {
  const auto plan = replicas(2, 2);  // Encoders on nodes 0 and 1, llms on nodes 2 and 3.
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0, 2})}, {one_part({0, 2})}}},
                                 {ReplicaId{3}, {{one_part({1, 3})}, {one_part({1, 3})}}}};
  PhaseWork work = work_of({1, 1.01, 1, 1.01}, 2);
  const auto second = [&] {
    return samples_of(spread_phase(plan, ModuleGroupId{0}, cuts, work, {})[1]);
  };
  // The largest first, each encoder has one of either size.
  CHECK(second() == Samples{2, 3});
  // The second encoder sees both that the second llm does: else one of them moved, whose 100 bytes
  // no exchange of whole shares would spare.
  const ApartUnit both{{NodeId{1}, NodeId{3}}, 100};
  work.apart = {{1, both}, {3, both}};
  CHECK(second() == Samples{1, 3});
}

TEST_CASE("phases know which samples few nodes see, and what a row weighs", "[engine]") {
  auto plan = colocated();
  SampleShape shape;
  shape.media = {{ModuleId{0}, {{16, 16, 4, 4, 4}}, 10}};
  shape.llm_tokens = 9;
  const SampleShape seen = shape;
  shape.seen_by = {NodeId{1}};
  const std::vector<SampleShape> samples{seen, shape};
  const std::vector<SamplePiece> pieces;
  const SampleUnits units(samples, pieces);
  const auto phase = [&] { return phase_works(plan, units, nullptr, 2).front(); };
  REQUIRE(phase().apart.size() == 1);
  const ApartUnit apart = phase().apart.at(1);
  CHECK((apart.seen_by == std::vector{NodeId{1}}));
  CHECK(apart.content == 16 * 10 * 4);
  // The projector's rows, and as many gradients, of two bytes a number.
  const auto width = static_cast<double>(plan.model.at(ModuleId{1}).output_width);
  REQUIRE(width > 0);
  CHECK(phase().bytes_per_row == 2 * 2 * width);
  for (auto& module : plan.model.modules) module.freeze = module.kind != ModuleKind::llm;
  CHECK(phase().bytes_per_row == 2 * width);
}

TEST_CASE("replicas take each other's shares where fewer bytes move for it", "[engine]") {
  const auto plan = colocated();
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0})}, {one_part({0})}}},
                                 {ReplicaId{3}, {{one_part({1})}, {one_part({1})}}}};
  PhaseWork work = work_of({1, 1}, 2);
  work.rows = {10, 10};
  const auto lists = [&] { return spread_phase(plan, ModuleGroupId{0}, cuts, work, {}); };
  // Each would stay with its llm: 100 bytes of pixels for 1, where rows of both are 20.
  work.apart = {{1, {{NodeId{0}}, 100}}};
  CHECK(samples_of(lists()[0]) == Samples{1});
  CHECK(samples_of(lists()[1]) == Samples{0});
  work.apart = {{1, {{NodeId{0}}, 15}}};
  CHECK(samples_of(lists()[0]) == Samples{0});
  // Nobody ends later for it.
  work.apart = {{1, {{NodeId{0}}, 100}}};
  work.shares = {1, 0.5};
  work.samples = {1, 2};
  const auto found = loads(lists(), work);
  CHECK(std::max(found[0], found[1]) == 1);
}

TEST_CASE("inside a node rows stay on their device where nobody ends later for it", "[engine]") {
  auto plan = colocated();
  plan.devices[1] = {plan.devices[0].node, 1};  // Two devices of one node.
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0})}, {one_part({0})}}},
                                 {ReplicaId{3}, {{one_part({1})}, {one_part({1})}}}};
  PhaseWork work = work_of({1, 2}, 2);
  const auto lists = [&] { return spread_phase(plan, ModuleGroupId{0}, cuts, work, {}); };
  // The larger sample is dealt first, to the first replica: it is the second one's llm's.
  CHECK(samples_of(lists()[0]) == Samples{1});
  work.inside_node = 0.1;
  CHECK(samples_of(lists()[0]) == Samples{0});
  CHECK(samples_of(lists()[1]) == Samples{1});
}

TEST_CASE("what a byte takes inside a node follows the profile's links", "[engine]") {
  scheduler::DeviceSpeeds speeds;
  CHECK(inside_node_share(speeds) == 0);
  speeds.network.gigabytes_per_s = 25;
  CHECK(inside_node_share(speeds) == 0);
  speeds.node.gigabytes_per_s = 100;
  CHECK(inside_node_share(speeds) == 0.25);
  speeds.node.gigabytes_per_s = 5;
  CHECK(inside_node_share(speeds) == 1);
}

TEST_CASE("no two replicas could take each other's shares for fewer bytes", "[engine][property]") {
  std::mt19937_64 random(12);
  const auto plan = colocated();
  int moved = 0;
  for (int turn = 0; turn < 300; ++turn) {
    std::vector<LlmCut> cuts;
    std::vector<double> weights, rows;
    std::vector<NodeId> wanted;
    PhaseWork work;
    for (int r = 0; r < 2; ++r) {
      Samples own;
      for (std::size_t i = 0, size = 1 + random() % 4; i < size; ++i) {
        const auto sample = static_cast<std::int32_t>(weights.size());
        own.push_back(sample);
        weights.push_back(1.0 + static_cast<double>(random() % 5));
        rows.push_back(static_cast<double>(1 + random() % 9));
        wanted.emplace_back(r);
        if (random() % 2 == 0)
          work.apart[sample] = {{NodeId{static_cast<std::int32_t>(random() % 2)}},
                                static_cast<double>(random() % 40)};
      }
      cuts.push_back({ReplicaId{2 + r}, {{one_part(own)}, {one_part(own)}}});
    }
    work.samples = weights;
    work.rows = rows;
    work.shares = {1, 1};
    const auto lists = spread_phase(plan, ModuleGroupId{0}, cuts, work, {});
    // The shares in this order on nodes 0 and 1.
    const auto bytes = [&](const std::vector<Samples>& shares) {
      double sum = 0;
      for (std::int32_t node = 0; node < 2; ++node)
        for (const auto sample : shares[static_cast<std::size_t>(node)]) {
          if (wanted[static_cast<std::size_t>(sample)] != NodeId{node})
            sum += rows[static_cast<std::size_t>(sample)];
          if (const auto apart = work.apart.find(sample);
              apart != work.apart.end() && apart->second.seen_by.front() != NodeId{node})
            sum += apart->second.content;
        }
      return sum;
    };
    std::vector<Samples> shares;
    for (const auto& list : lists) shares.push_back(samples_of(list));
    const double planned = bytes(shares);
    std::swap(shares[0], shares[1]);
    CHECK(planned <= bytes(shares));
    moved += planned > 0 ? 1 : 0;
    CHECK((spread_phase(plan, ModuleGroupId{0}, cuts, work, {}) == lists));
  }
  CHECK(moved > 100);
}

}  // namespace
}  // namespace troupe::engine
