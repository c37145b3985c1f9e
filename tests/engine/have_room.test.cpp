// What encoders keep at once, and deals that have room for it.

#include "tests/torch_catch.hpp"

#include "engine/iteration/have_room.hpp"

#include <algorithm>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/index.hpp"
#include "tests/engine/phase_fixture.hpp"
#include "tests/engine/samples_of_lists.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("microbatches of a round that share one of the llm out are kept together", "[engine]") {
  // The first llm trains 0, 1 and 6, which has no media, and then 4; the second 2 and 3, then 5.
  const std::vector<LlmCut> cuts{
      {ReplicaId{1}, {{one_part({0, 1, 6}), one_part({4})}, {one_part({0, 1, 6}), one_part({4})}}},
      {ReplicaId{2}, {{one_part({2, 3}), one_part({5})}, {one_part({2, 3}), one_part({5})}}}};
  auto work = work_of({1, 1, 1, 1, 1, 1, 0}, 1);
  work.room_shares = {{0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0}};
  work.room_kinds = {0};
  const auto fits = [&](const MicrobatchList& list) {
    return have_room(std::vector<MicrobatchList>{list}, encoded_for(cuts, work), work, false);
  };
  // As it was cut, and with each llm's share in two: 0.8 for one llm, then 0.8 for the other.
  CHECK(fits({one_part({0, 1}), one_part({2, 3, 6})}));
  CHECK(fits({one_part({0}), one_part({1}), one_part({2}), one_part({3})}));
  CHECK_FALSE(fits({one_part({0, 1, 2})}));
  // 1.6: the first waits for the second, and that for the third.
  CHECK_FALSE(fits({one_part({0}), one_part({1, 2}), one_part({3})}));
  // 1.2: the one between is there too.
  CHECK_FALSE(fits({one_part({0}), one_part({2}), one_part({1})}));
  // The next round comes behind this one.
  CHECK(fits({one_part({0}), one_part({1}), one_part({4}), one_part({5})}));
}

TEST_CASE("of what is offloaded one microbatch of a round is there at a time", "[engine]") {
  // Both llms share the round out, so that all is kept together: 1.2, of which 0.6 leave.
  const std::vector<LlmCut> cuts{{ReplicaId{1}, {{one_part({0, 2})}, {one_part({0, 2})}}},
                                 {ReplicaId{2}, {{one_part({1})}, {one_part({1})}}}};
  auto work = work_of({1, 1, 1}, 1);
  work.room_shares = {{0.4, 0.4, 0.4}};
  work.room_kinds = {0};
  const auto fits = [&](const MicrobatchList& list) {
    return have_room(std::vector<MicrobatchList>{list}, encoded_for(cuts, work), work, true);
  };
  const MicrobatchList apart{one_part({0}), one_part({1}), one_part({2})};
  CHECK_FALSE(fits(apart));
  work.staying_shares = {{0.2, 0.2, 0.2}};
  CHECK(fits(apart));  // 3 x 0.2 beside 0.2.
  work.staying_shares = {{0.3, 0.3, 0.3}};
  CHECK(fits(apart));  // 3 x 0.3 beside 0.1.
  work.staying_shares = {{0.35, 0.35, 0.35}};
  CHECK_FALSE(fits(apart));                  // 1.1.
  CHECK_FALSE(fits({one_part({0, 1, 2})}));  // All of one is there at once.
}

TEST_CASE("pieces are kept as their sample is", "[engine]") {
  const std::vector<LlmCut> cuts{{ReplicaId{1}, {{one_part({0})}, {one_part({0})}}},
                                 {ReplicaId{2}, {{one_part({1})}, {one_part({1})}}}};
  auto work = work_of({1, 2}, 1);
  work.piece_work = work.piece_rows = {1, 1};
  work.cut[1] = {2, 3};
  work.room_shares = {{0.8, 0.9, 0.6, 0.6}};
  work.room_kinds = {0};
  const auto fits = [&](const MicrobatchList& list) {
    return have_room(std::vector<MicrobatchList>{list}, encoded_for(cuts, work), work, false);
  };
  CHECK(fits({one_part({0}), one_part({1})}));
  CHECK(fits({one_part({0}), one_part({2})}));
  CHECK_FALSE(fits({one_part({2}), one_part({3})}));
}

TEST_CASE("in windows it counts what other replicas have of the same microbatch", "[engine]") {
  const std::vector<LlmCut> cuts{{ReplicaId{2}, {{one_part({0, 1})}, {one_part({0, 1})}}},
                                 {ReplicaId{3}, {{one_part({2, 3})}, {one_part({2, 3})}}}};
  auto work = work_of({1, 1, 1, 1}, 2);
  work.room_shares = {{0.6, 0.6, 0.6, 0.6}};
  work.room_kinds = {0, 0};
  const auto fits = [&](const MicrobatchList& first, const MicrobatchList& second, bool windows) {
    const std::vector<MicrobatchList> lists{first, second};
    return have_room(lists, encoded_for(cuts, work), work, windows);
  };
  const MicrobatchList first{one_part({0}), one_part({2})};
  for (const bool windows : {false, true})
    CHECK(fits(first, {one_part({1}), one_part({3})}, windows));
  // The second has what the second llm wants in front, so that both places are one window.
  CHECK(fits(first, {one_part({3})}, false));
  CHECK_FALSE(fits(first, {one_part({3})}, true));
}

/// What encoders 0 and 1 get of two rounds, which come to 60 and to 100.
struct Rounds {
  ParallelPlan plan = replicas(2, 2);
  PhaseWork work = work_of({40, 20, 30, 20, 20, 15, 15, 0}, 2);
  std::vector<LlmCut> cuts{
      {ReplicaId{2}, {{one_part({0, 1}), one_part({2, 3, 4})}, {one_part({0, 1, 2, 3, 4})}}},
      {ReplicaId{3}, {{one_part({7}), one_part({5, 6})}, {one_part({5, 6, 7})}}}};

  /// Both replicas have room for so much of a round.
  Result<std::vector<MicrobatchList>> within(double room) {
    work.room_shares.assign(1, {});
    for (const double rows : work.rows) work.room_shares[0].push_back(rows / room);
    work.room_kinds = {0, 0};
    return spread_within_rooms(plan, ModuleGroupId{0}, cuts, work, {});
  }
  bool fit(const std::vector<MicrobatchList>& lists) const {
    return have_room(lists, encoded_for(cuts, work), work, false);
  }
};

TEST_CASE("what has no room in a round goes to who has some", "[engine]") {
  Rounds rounds;
  const auto free = spread_phase(rounds.plan, ModuleGroupId{0}, rounds.cuts, rounds.work, {});
  // The second makes up for the first round, and gets 65 of the next.
  CHECK((free[0] == MicrobatchList{one_part({0}), one_part({3, 5})}));
  CHECK((free[1] == MicrobatchList{one_part({1, 7}), one_part({2, 4, 6})}));
  CHECK((rounds.within(70).value() == free));
  CHECK(rounds.fit(free));
  // Of 55 it has 10 too much: 15 is enough.
  const auto bounded = rounds.within(55).value();
  CHECK((bounded[0] == MicrobatchList{one_part({0}), one_part({3, 5, 6})}));
  CHECK((bounded[1] == MicrobatchList{one_part({1, 7}), one_part({2, 4})}));
  CHECK_FALSE(rounds.fit(free));
  CHECK(rounds.fit(bounded));
}

TEST_CASE("where no deal has room for a round, who lacks what is told", "[engine][errors]") {
  Rounds rounds;
  const auto none = rounds.within(45);  // Twice that is less than 100.
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == Errc::infeasible);
  CHECK(none.error().where == "cluster.device_memory_gib");
  // 30 and 15 fill the first; of 20 and 20 the second has no room for the last 15.
  CHECK_THAT(none.error().message,
             ContainsSubstring("replica 1 of " + rounds.plan.module_groups[0].name));
  CHECK_THAT(none.error().message, ContainsSubstring("55 rows in round 1"));
  CHECK_THAT(none.error().message, ContainsSubstring("room for that of 45"));
  CHECK_THAT(none.error().fix, ContainsSubstring("train.microbatches"));
}

/// One round of llms for two encoders, whose rooms have these shares taken by samples, each of
/// which is as much work; `staying`: of that, where some is offloaded.
Result<std::vector<MicrobatchList>> spread_for(
    const std::vector<std::vector<std::int32_t>>& of_llms, const std::vector<double>& room_shares,
    const std::vector<double>& staying = {}, bool in_windows = false) {
  std::vector<LlmCut> cuts;
  for (const auto& own : of_llms)
    cuts.push_back(
        {ReplicaId{2 + static_cast<int>(cuts.size())}, {{one_part(own)}, {one_part(own)}}});
  auto phase = work_of(std::vector<double>(room_shares.size(), 30), 2);
  phase.room_shares = {room_shares};
  if (!staying.empty()) phase.staying_shares = {staying};
  phase.room_kinds = {0, 0};
  return spread_within_rooms(replicas(2, static_cast<int>(of_llms.size())), ModuleGroupId{0}, cuts,
                             phase, {.in_windows = in_windows});
}

TEST_CASE("what is kept one behind the other needs no room together", "[engine]") {
  // 1.6 of a room for each encoder, of which 0.8 at once: one sample for each of two llms.
  const auto lists = spread_for({{0}, {1}, {2}, {3}}, {0.8, 0.8, 0.8, 0.8}).value();
  CHECK((lists[0] == MicrobatchList{one_part({0}), one_part({2})}));
  CHECK((lists[1] == MicrobatchList{one_part({1}), one_part({3})}));
}

TEST_CASE("what llms share out finds room together", "[engine]") {
  // By work alone the first gets 0, then 2 and 4, of which the first llm wants 0 and 2: 1.1 at
  // once. The second has 0.6, so 4 goes there; and 3 comes back for it, as each then has three.
  const auto lists = spread_for({{0, 1, 2}, {3}, {4}, {5}}, {0.4, 0.4, 0.4, 0.1, 0.3, 0.1}).value();
  CHECK((lists[0] == MicrobatchList{one_part({0}), one_part({2, 3})}));
  CHECK((lists[1] == MicrobatchList{one_part({1}), one_part({4, 5})}));
}

TEST_CASE("what whole rounds have no room for is kept one behind the other", "[engine]") {
  // The same with 3.3 rooms in all, for two. What each llm wants has room by itself, though in two
  // microbatches of as much work the second encoder would have 3 and 5 together, 1.4.
  for (const bool in_windows : {false, true}) {
    const auto lists =
        spread_for({{0, 1, 2}, {3}, {4}, {5}}, {0.4, 0.4, 0.4, 0.7, 0.7, 0.7}, {}, in_windows);
    REQUIRE(lists.ok());
    CHECK((lists.value()[0] == MicrobatchList{one_part({0, 2}), one_part({4})}));
    CHECK((lists.value()[1] == MicrobatchList{one_part({1}), one_part({3}), one_part({5})}));
  }
  // 0 and 2 are 1.1 of a room: 0 is enough to leave, and 1 comes back for it.
  const auto moved = spread_for({{0, 1, 2}, {3}, {4}, {5}}, {0.5, 0.4, 0.6, 0.7, 0.7, 0.7});
  REQUIRE(moved.ok());
  CHECK((moved.value()[0] == MicrobatchList{one_part({1, 2}), one_part({4})}));
  CHECK((moved.value()[1] == MicrobatchList{one_part({0}), one_part({3}), one_part({5})}));
  // Who wants 2.1 of two rooms gets none.
  const auto none = spread_for({{0, 1, 2}, {3}, {4}, {5}}, {0.7, 0.7, 0.7, 0.1, 0.1, 0.1});
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == Errc::infeasible);
}

TEST_CASE("in windows what stands in different places is kept together", "[engine]") {
  // The first encoder has 0 and 2 for the first llm, then 4 for the third; the other one 1, then 3
  // for the second, then 5 for the third, so that 3 and 5 are one window.
  const auto spread = [](const std::vector<double>& staying, bool in_windows) {
    return spread_for({{0, 1, 2}, {3}, {4, 5}}, {0.4, 0.4, 0.4, 0.7, 0.7, 0.7}, staying,
                      in_windows);
  };
  const auto apart = spread({}, false);
  REQUIRE(apart.ok());
  CHECK((apart.value()[0] == MicrobatchList{one_part({0, 2}), one_part({4})}));
  CHECK((apart.value()[1] == MicrobatchList{one_part({1}), one_part({3}), one_part({5})}));
  CHECK_FALSE(spread({}, true).ok());  // 1.4.
  // 0.4 stay of both, and 0.5 more are there of one at a time; of 0.7 and 0.35 that is too much.
  const auto offloaded = spread({0.1, 0.1, 0.1, 0.2, 0.2, 0.2}, true);
  REQUIRE(offloaded.ok());
  CHECK((offloaded.value() == apart.value()));
  CHECK_FALSE(spread({0.1, 0.1, 0.1, 0.35, 0.35, 0.35}, true).ok());
}

/// Encoders, llms and three rounds of samples for these, whatever there is more of.
struct Drawn {
  static constexpr std::size_t kRounds = 3;

  int encoders = 0, llms = 0;
  bool in_windows = false;
  std::vector<LlmCut> cuts = {};
  std::vector<double> weights = {}, bytes = {};  ///< Per sample.
  /// Per sample: by which llm it is wanted, and in which round.
  std::vector<std::pair<int, std::size_t>> wanted = {};
  double room = 0;  ///< Of replicas with an even number; others have a tenth more.

  explicit Drawn(std::mt19937_64& random) {
    encoders = 1 + static_cast<int>(random() % 4);
    llms = 1 + static_cast<int>(random() % 6);
    const double share = random() % 2 == 0 ? 1.2 : 0.8;
    in_windows = random() % 2 == 1;
    std::vector<double> rounds(kRounds);
    for (int r = 0; r < llms; ++r) {
      LlmCut cut{ReplicaId{encoders + r}, {}};
      for (std::size_t round = 0; round < kRounds; ++round) {
        std::vector<std::int32_t> own;
        for (std::size_t i = 0, size = 1 + random() % 6; i < size; ++i) {
          own.push_back(static_cast<std::int32_t>(weights.size()));
          wanted.emplace_back(r, round);
          weights.push_back(random() % 3 == 0 ? 0.0 : 1.0 + static_cast<double>(random() % 100));
          bytes.push_back(weights.back() * static_cast<double>(1 + random() % 3));
          rounds[round] += bytes.back();
        }
        cut.cut.encoder.push_back(one_part(own));
        cut.cut.llm.push_back(one_part(own));
      }
      cuts.push_back(std::move(cut));
    }
    room = std::max(*std::ranges::max_element(bytes),
                    share * *std::ranges::max_element(rounds) / encoders);
  }

  PhaseWork work() const { return work_of(weights, static_cast<std::size_t>(encoders)); }

  PhaseWork bounded() const {
    auto work = this->work();
    for (const double kind : {1.0, 1.1}) {
      auto& shares = work.room_shares.emplace_back();
      for (const double own : bytes) shares.push_back(own / (kind * room));
    }
    for (int e = 0; e < encoders; ++e) work.room_kinds.push_back(static_cast<std::size_t>(e % 2));
    return work;
  }

  /// The microbatches of each replica in a round.
  std::vector<MicrobatchList> of_round(const std::vector<MicrobatchList>& lists,
                                       std::size_t round) const {
    std::vector<MicrobatchList> found(lists.size());
    for (std::size_t r = 0; r < lists.size(); ++r)
      for (const Microbatch& microbatch : lists[r])
        if (wanted[at(microbatch.parts[0].samples[0])].second == round)
          found[r].push_back(microbatch);
    return found;
  }

  bool feeds(const Microbatch& microbatch, int llm) const {
    return std::ranges::any_of(all_of({microbatch}), [&](std::int32_t unit) {
      return weights[at(unit)] > 0 && wanted[at(unit)].first == llm;
    });
  }

  /// Of replicas from `begin` to before `end`: which places are kept together, by the first one.
  std::vector<std::size_t> together(const std::vector<MicrobatchList>& lists, std::size_t begin,
                                    std::size_t end) const {
    std::size_t places = 0;
    for (std::size_t r = begin; r < end; ++r) places = std::max(places, lists[r].size());
    std::vector<std::size_t> with(places);
    std::iota(with.begin(), with.end(), std::size_t{0});
    std::vector<std::pair<std::size_t, std::size_t>> ends;  // Per llm.
    for (int llm = 0; llm < llms; ++llm) {
      auto& [first, last] = ends.emplace_back(places, 0);
      for (std::size_t r = begin; r < end; ++r)
        for (std::size_t place = 0; place < lists[r].size(); ++place)
          if (feeds(lists[r][place], llm))
            first = std::min(first, place), last = std::max(last, place);
    }
    for (int turn = 0; turn < llms; ++turn)
      for (const auto& [first, last] : ends)
        for (std::size_t place = first; place <= last && place < places; ++place)
          for (std::size_t other = first; other <= last; ++other)
            with[place] = std::min(with[place], with[other]);
    return with;
  }

  /// Whether all that is kept at once fits.
  bool fit(const std::vector<MicrobatchList>& lists) const {
    const auto work = bounded();
    for (std::size_t round = 0; round < kRounds; ++round) {
      const auto own = of_round(lists, round);
      for (std::size_t r = 0; r < own.size(); ++r) {
        const auto with = in_windows ? together(own, 0, own.size()) : together(own, r, r + 1);
        std::vector<double> filled(with.size());
        for (std::size_t place = 0; place < own[r].size(); ++place)
          for (const auto unit : all_of({own[r][place]}))
            filled[with[place]] += work.room_share(at(unit), r);
        if (std::ranges::any_of(filled, [](double kept) { return kept > 1 + kSumRounding; }))
          return false;
      }
    }
    return true;
  }

  /// Whether each replica has room for a whole round.
  bool rounds_fit(const std::vector<MicrobatchList>& lists) const {
    const auto work = bounded();
    for (std::size_t r = 0; r < lists.size(); ++r) {
      std::vector<double> filled(kRounds);
      for (const auto unit : all_of(lists[r]))
        filled[wanted[at(unit)].second] += work.room_share(at(unit), r);
      if (*std::ranges::max_element(filled) > 1 + kSumRounding) return false;
    }
    return true;
  }
};

TEST_CASE("no replica gets more of a round than it has room for", "[engine][property]") {
  std::mt19937_64 random(21);
  int changed = 0, refused = 0, shared = 0, apart = 0, in_turn = 0;
  for (int turn = 0; turn < 300; ++turn) {
    CAPTURE(turn);
    const Drawn drawn(random);
    if (!(drawn.room > 0)) continue;
    const auto plan = replicas(drawn.encoders, drawn.llms);
    const auto work = drawn.bounded();
    const SpreadRules rules{.in_windows = drawn.in_windows};
    const auto free = spread_phase(plan, ModuleGroupId{0}, drawn.cuts, drawn.work(), rules);
    const bool fits = drawn.fit(free);
    REQUIRE(have_room(free, encoded_for(drawn.cuts, work), work, drawn.in_windows) == fits);
    const auto made = spread_within_rooms(plan, ModuleGroupId{0}, drawn.cuts, work, rules);
    if (!made.ok()) {
      REQUIRE(made.error().code == Errc::infeasible);
      REQUIRE_FALSE(fits);
      ++refused;
      continue;
    }
    REQUIRE(drawn.fit(made.value()));
    REQUIRE((made.value() == free) == fits);
    changed += fits ? 0 : 1;
    // With more llms than encoders.
    shared += !fits && drawn.llms > drawn.encoders ? 1 : 0;
    apart += fits && !drawn.rounds_fit(free) ? 1 : 0;
    in_turn += !fits && !drawn.rounds_fit(made.value()) ? 1 : 0;
    std::multiset<std::int32_t> seen;
    for (const auto& list : made.value())
      for (const auto unit : all_of(list)) seen.insert(unit);
    REQUIRE(seen.size() == drawn.weights.size());
    REQUIRE(std::set<std::int32_t>(seen.begin(), seen.end()).size() == drawn.weights.size());
  }
  CHECK(changed > 30);
  CHECK(shared > 10);
  CHECK(apart > 10);
  CHECK(in_turn > 20);
  CHECK(refused < 60);
}

}  // namespace
}  // namespace troupe::engine
