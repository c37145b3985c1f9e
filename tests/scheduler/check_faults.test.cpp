// One planted fault for each rule of the checker.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>

#include "scheduler/check/check_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;
using testing::key;
using testing::kinds;
using testing::random_case;
using testing::text_of;

/// `later` of a list must not stand before `earlier` of it.
struct OrderRule {
  ActionKind later, earlier;
};

/// True if `later` needs this very `earlier`, both on one device.
bool relates(const IterationPlan& iteration, const OrderRule& rule, const Action& later,
             const Action& earlier) {
  if (later.kind != rule.later || earlier.kind != rule.earlier) return false;
  const auto source = [&](const Action& action) {
    return key(iteration.messages[action.message.index()].source);
  };
  const auto destination = [&](const Action& action) {
    return key(iteration.messages[action.message.index()].destination);
  };
  using enum ActionKind;
  if (earlier.kind == receive_content)
    return later.kind == forward && key(iteration.at(earlier.delivery).destination) == key(later);
  if (earlier.kind == commit) return true;
  if (later.kind == commit) return true;
  if (moves_state(earlier.kind) || moves_state(later.kind))
    return later.group == earlier.group && later.stage == earlier.stage;
  if (later.kind == send) return source(later) == key(earlier);
  if (later.kind == send_gradient) return destination(later) == key(earlier);
  if (earlier.kind == receive && later.kind == forward) return destination(earlier) == key(later);
  if (earlier.kind == receive_gradient) return source(earlier) == key(later);
  if (later.kind == receive || later.kind == receive_gradient)
    return later.message == earlier.message;
  if ((later.kind == reduce || later.kind == reduce_partial) && earlier.group.valid())
    return later.group == earlier.group;
  if (later.group.valid()) return later.stage == earlier.stage;
  return key(later) == key(earlier);
}

using enum ActionKind;
constexpr OrderRule kOrderRules[] = {
    {forward, receive},
    {forward, receive_content},
    {backward, forward},
    {backward_input, forward},
    {backward_weight, backward_input},
    {offload, forward},
    {fetch, offload},
    {backward, fetch},
    {backward_input, fetch},
    {backward, receive_gradient},
    {backward_input, receive_gradient},
    {send, forward},
    {send_gradient, backward},
    {send_gradient, backward_input},
    {receive, send},                    // Two stages on one device.
    {receive_gradient, send_gradient},  // Likewise.
    {reduce, backward},
    {reduce, backward_weight},
    {reduce_send, backward},
    {reduce_send, backward_weight},
    {reduce, reduce_send},  // A device that owns one chunk of several.
    {reduce_partial, backward},
    {reduce_partial, reduce_send},
    {reduce, reduce_partial},
    {commit, forward},
    {commit, backward},
    {commit, reduce_partial},
    {commit, reduce},
    {commit, reduce_relay},
    {commit, reduce_receive},
    {optimizer_step, commit},
    {fetch_state, commit},
    {optimizer_step, fetch_state},
    {offload_state, optimizer_step},
};

TEST_CASE("what stands before something it needs is named with it, for every rule of order",
          "[scheduler][property]") {
  for (const auto& rule : kOrderRules) {
    int planted = 0;
    for (std::uint32_t seed = 0; seed < 2000 && planted < 20; ++seed) {
      auto made = random_case(seed);
      testing::draw_host_state(made.plan, seed);
      auto iteration = plan_iteration(made.plan, made.input).value();
      bool found = false;
      for (auto& list : iteration.actions) {
        for (std::size_t b = 1; b < list.size() && !found; ++b)
          for (std::size_t a = 0; a < b && !found; ++a) {
            if (!relates(iteration, rule, list[b], list[a])) continue;
            found = true;
            const Action later = list[b], earlier = list[a];
            std::rotate(list.begin() + static_cast<std::ptrdiff_t>(a),
                        list.begin() + static_cast<std::ptrdiff_t>(a) + 1,
                        list.begin() + static_cast<std::ptrdiff_t>(b) + 1);
            const auto faults = check(made.plan, iteration);
            INFO("seed " << seed << ": " << describe(made.plan, later) << " before "
                         << describe(made.plan, earlier) << "\n"
                         << text_of(faults));
            REQUIRE(std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
              return fault.kind == FaultKind::dependency &&
                     fault.action == describe(made.plan, later) &&
                     fault.why.find(describe(made.plan, earlier)) != std::string::npos;
            }));
          }
        if (found) break;
      }
      planted += found;
    }
    CAPTURE(to_string(rule.later), to_string(rule.earlier));
    CHECK(planted > 0);
  }
}

TEST_CASE("what another device waits for and comes after commit is a deadlock",
          "[scheduler][property]") {
  std::set<ActionKind> tried;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    const auto made = random_case(seed);
    const auto sound = plan_iteration(made.plan, made.input).value();
    for (std::size_t d = 0; d < sound.actions.size(); ++d)
      for (const auto kind :
           {send, send_gradient, relay, relay_gradient, send_content, reduce_send}) {
        auto iteration = sound;
        auto& list = iteration.actions[d];
        const auto place = std::find_if(list.begin(), list.end(),
                                        [&](const Action& action) { return action.kind == kind; });
        if (place == list.end()) continue;
        std::rotate(place, place + 1, list.end());
        tried.insert(kind);
        INFO("seed " << seed << " " << to_string(kind));
        const auto found = kinds(check(made.plan, iteration));
        // Where both ends share the device, the order of its one list is wrong.
        REQUIRE((found.contains(FaultKind::deadlock) || found.contains(FaultKind::dependency)));
      }
  }
  CHECK(tried.size() == 6);
}

/// A plan with messages, deferral and two pipelines.
struct Planted {
  testing::RandomCase made;
  IterationPlan iteration;

  explicit Planted(std::uint32_t first_seed) {
    for (auto seed = first_seed;; ++seed) {
      made = random_case(seed);
      if (made.plan.pipelines.size() < 2 || made.input.samples.size() < 6) continue;
      iteration = plan_iteration(made.plan, made.input).value();
      if (iteration.messages.size() > 4) return;
    }
  }
  std::vector<Fault> faults() const { return check(made.plan, iteration); }
  bool finds(FaultKind kind, const std::string& why) const {
    return testing::finds(faults(), kind, why);
  }
};

TEST_CASE("each rule about shape finds its planted fault", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const Planted sound(seed);
    REQUIRE(sound.faults().empty());
    INFO("seed " << seed);
    auto bad = sound;
    bad.iteration.actions.emplace_back();
    CHECK(bad.finds(FaultKind::unknown, "the layout calls for"));
    bad = sound;
    bad.iteration.microbatches.pop_back();
    CHECK(bad.finds(FaultKind::missing, "the layout calls for"));
    bad = sound;
    bad.iteration.max_in_flight.push_back(1);
    CHECK(bad.finds(FaultKind::unknown, "the layout calls for"));
    bad = sound;
    --bad.iteration.trained_tokens;
    CHECK(bad.finds(FaultKind::missing, "the loss is divided by"));
    bad.iteration.trained_tokens += 2;
    CHECK(bad.finds(FaultKind::unknown, "the loss is divided by"));
    for (std::size_t group = 0; group < sound.made.plan.module_groups.size(); ++group) {
      // Some microbatch of this group has samples.
      const auto part = [&](Planted& plan) -> std::vector<std::int32_t>& {
        for (std::size_t r = 0; r < plan.made.plan.replicas.size(); ++r) {
          if (plan.made.plan.replicas[r].group.index() != group) continue;
          for (auto& microbatch : plan.iteration.microbatches[r])
            for (auto& each : microbatch.parts)
              if (!each.samples.empty()) return each.samples;
        }
        FAIL("no samples");
        return plan.iteration.microbatches[0][0].parts[0].samples;
      };
      bad = sound;
      part(bad).push_back(part(bad).front());
      CHECK(bad.finds(FaultKind::duplicate, "it stands in 2 parts"));
      bad = sound;
      part(bad).pop_back();
      CHECK(bad.finds(FaultKind::missing, "it stands in 0 parts"));
      bad = sound;
      part(bad).front() = -1;
      CHECK(bad.finds(FaultKind::unknown, "no such sample"));
    }
  }
}

TEST_CASE("each rule about pieces of samples finds its planted fault", "[scheduler][property]") {
  int seen = 0;
  for (std::uint32_t seed = 0; seed < 600 && seen < 60; ++seed) {
    Planted sound(seed);
    const auto count = static_cast<std::int32_t>(sound.iteration.samples.size());
    Part* found = nullptr;
    std::size_t replica = 0;
    for (std::size_t r = 0; r < sound.iteration.microbatches.size(); ++r)
      for (auto& microbatch : sound.iteration.microbatches[r])
        for (auto& part : microbatch.parts)
          if (part.samples.back() >= count) found = &part, replica = r;
    if (found == nullptr) continue;
    ++seen;
    INFO("seed " << seed);
    REQUIRE(sound.faults().empty());
    const std::int32_t unit = found->samples.back();
    SamplePiece& piece = sound.iteration.pieces[static_cast<std::size_t>(unit - count)];
    const auto planted = [&](auto&& change, FaultKind kind, const std::string& why) {
      const SamplePiece before = piece;
      const auto part = *found;
      change();
      CHECK(sound.finds(kind, why));
      piece = before;
      *found = part;
    };
    const std::string not_whole = "its pieces leave items out, or have some twice";
    const std::string not_there = "its sample has no such items";
    const auto all =
        static_cast<std::int32_t>(sound.iteration.sample(unit).items(piece.module)->size());
    planted([&] { found->samples.push_back(unit); }, FaultKind::duplicate, not_whole);
    planted([&] { found->samples.push_back(piece.sample); }, FaultKind::duplicate, "it stands in");
    planted([&] { piece.first = all; }, FaultKind::unknown, not_there);
    planted([&] { piece.count = all - piece.first + 1; }, FaultKind::unknown, not_there);
    planted([&] { piece.count = 0; }, FaultKind::unknown, not_there);
    planted([&] { piece.sample = count; }, FaultKind::unknown, not_there);
    planted([&] { piece.module = sound.made.plan.model.llm(); }, FaultKind::unknown, not_there);
    if (piece.count < all)  // Overlapping, with or without a gap elsewhere.
      planted([&] { piece.first == 0 ? ++piece.count : (--piece.first, ++piece.count); },
              FaultKind::duplicate, not_whole);
    planted([&] { found->samples.back() = count + 9999; }, FaultKind::unknown, "no such sample");
    if (piece.count < all)
      planted([&] { found->samples.pop_back(); }, FaultKind::duplicate, not_whole);
    // The llm takes samples whole, and another group's encoder has no use for these items.
    for (std::size_t r = 0; r < sound.iteration.microbatches.size(); ++r) {
      if (sound.made.plan.replicas[r].group == sound.made.plan.replicas[replica].group ||
          sound.iteration.microbatches[r].empty())
        continue;
      auto bad = sound;
      bad.iteration.microbatches[r][0].parts[0].samples.push_back(unit);
      CHECK(bad.finds(FaultKind::duplicate, "it stands in"));
    }
  }
  CHECK(seen == 60);
}

TEST_CASE("each rule about messages finds its planted fault", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const Planted sound(seed);
    std::mt19937 random(seed);
    const auto place = random() % sound.iteration.messages.size();
    INFO("seed " << seed << " message " << place);
    const auto planted = [&](auto&& change) {
      auto bad = sound;
      change(bad.iteration.messages[place]);
      return bad;
    };
    const std::string no_end = "an end or a sample that does not exist";
    CHECK(planted([](Message& m) {
            m.source.stage = StageId{9999};
          }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) { m.destination.stage = {}; }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) {
            m.destination.part = PartId{77};
          }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) { m.source.part = {}; }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) { m.module = ModuleId{50}; }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) { m.module = {}; }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) { m.samples[0] = 9999; }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) { m.samples[0] = -3; }).finds(FaultKind::unknown, no_end));
    CHECK(planted([](Message& m) {
            m.boundary = !m.boundary;
          }).finds(FaultKind::unknown, "nothing calls for rows of"));
    CHECK(planted([](Message& m) {
            std::swap(m.source, m.destination);
          }).finds(FaultKind::unknown, "nothing calls for rows of"));
    CHECK(planted([](Message& m) {
            m.samples.clear();
          }).finds(FaultKind::unknown, "it carries no rows"));
    CHECK(planted([](Message& m) { ++m.rows; }).finds(FaultKind::dependency, "rows, its samples"));
    CHECK(planted([](Message& m) { --m.rows; }).finds(FaultKind::dependency, "rows, its samples"));
    CHECK(planted([](Message& m) { ++m.width; }).finds(FaultKind::dependency, "columns"));
    const bool due = sound.iteration.messages[place].has_backward;
    const auto flipped = planted([](Message& m) { m.has_backward = !m.has_backward; });
    if (due)
      CHECK(flipped.finds(FaultKind::missing, "the gradient of its rows is wanted"));
    else
      CHECK(flipped.finds(FaultKind::unknown, "nobody wants its gradient"));
    auto twice = sound;
    twice.iteration.messages.push_back(sound.iteration.messages[place]);
    CHECK(twice.finds(FaultKind::duplicate, "2 messages carry them"));
    CHECK(twice.finds(FaultKind::missing, "it is in no list"));  // Its send and receive.
    auto lost = sound;
    lost.iteration.messages.pop_back();
    CHECK(lost.finds(FaultKind::missing, "0 messages carry them"));
  }
}

TEST_CASE("actions that name what does not exist are unknown, never a crash",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const Planted sound(seed);
    std::mt19937 random(seed);
    auto bad = sound;
    auto& list = bad.iteration.actions[random() % bad.iteration.actions.size()];
    const int wild = draw(random, -3, 0) < -1 ? -1 : draw(random, 1000, 100000);
    Action action = list[random() % list.size()];
    switch (draw(random, 0, 4)) {
      case 0: action.stage = StageId{wild}; break;
      case 1: action.microbatch = MicrobatchId{wild}; break;
      case 2: action.part = PartId{wild}; break;
      case 3: action.message = MessageId{wild}; break;
      default: action.group = GroupId{wild};
    }
    action.kind = static_cast<ActionKind>(draw(random, 0, 19));
    list.push_back(action);
    const auto found = kinds(bad.faults());
    INFO("seed " << seed << " " << text_of(bad.faults()));
    // By chance the action may be a true one: then it stands there twice.
    REQUIRE((found.contains(FaultKind::unknown) || found.contains(FaultKind::duplicate) ||
             found.contains(FaultKind::dependency)));
  }
}

}  // namespace
}  // namespace troupe::scheduler
