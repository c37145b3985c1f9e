// The routes of a redistribution: what arrives by each, by an execution of their messages that
// knows nothing of routes, and what each takes.

#include "scheduler/iteration/boundary_routes.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

constexpr Route kAll[] = {Route::direct, Route::leader, Route::gather_scatter};

/// Rows on devices: which row of which interval has which value there.
using Row = std::pair<std::size_t, TokenCount>;
using Held = std::map<DeviceSlot, std::map<Row, double>>;

/// A side of a redistribution.
struct Side {
  std::vector<RankGroup> groups;
  std::vector<TokenCount> rows;  ///< Of each replica.
};

/// Rows that a replica has of another one's, and where they stand in both.
struct Overlap {
  RowInterval interval;
  TokenCount source_begin = 0;       ///< First row, counted at the source.
  TokenCount destination_begin = 0;  ///< The same row, counted at the destination.
};

/// Where two cuts of the same rows overlap, in row order.
std::vector<Overlap> overlaps(const std::vector<TokenCount>& from,
                              const std::vector<TokenCount>& to) {
  std::vector<Overlap> all;
  TokenCount source = 0;
  for (std::size_t s = 0; s < from.size(); source += from[s++]) {
    TokenCount destination = 0;
    for (std::size_t d = 0; d < to.size(); destination += to[d++]) {
      const TokenCount begin = std::max(source, destination);
      const TokenCount end = std::min(source + from[s], destination + to[d]);
      if (begin < end)
        all.push_back({{static_cast<std::int32_t>(s), static_cast<std::int32_t>(d), end - begin},
                       begin - source,
                       begin - destination});
    }
  }
  return all;
}

/// What messages are made from.
std::vector<RowInterval> intervals_of(const std::vector<Overlap>& all) {
  std::vector<RowInterval> intervals;
  for (const Overlap& overlap : all) intervals.push_back(overlap.interval);
  return intervals;
}

/// What ranks along cp have of the intervals that `group` is an end of; `value` of a replica's row.
template <class Value>
void give(const RankGroup& group, std::size_t interval, TokenCount rows, Value value, Held& held) {
  for (std::int32_t cp = 0; cp < group.grid.cp; ++cp)
    for (std::int32_t tp = 0; tp < group.grid.tp; ++tp) {
      const RowCut own = even_cut(rows, group.grid.cp, cp);
      for (TokenCount row = own.begin; row < own.end; ++row)
        held[group.ranks[static_cast<std::size_t>(cp * group.grid.tp + tp)]][{interval, row}] =
            value(row);
    }
}

/// Hands the messages over hop by hop: who sends must have had the rows before the hop, and who
/// gets a row twice gets the same bits.
Held execute(std::vector<RankMessage> messages, Held held) {
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return a.hop < b.hop; });
  for (auto next = messages.begin(); next != messages.end();) {
    const Held before = held;
    for (const std::int32_t hop = next->hop; next != messages.end() && next->hop == hop; ++next) {
      if (next->rows < 1) FAIL("an empty message");
      for (TokenCount row = next->begin; row < next->begin + next->rows; ++row) {
        const auto device = before.find(next->from);
        if (device == before.end()) FAIL("a device sends that has nothing");
        const auto sent = device->second.find({next->interval, row});
        if (sent == device->second.end()) FAIL("a device sends a row that it does not have");
        const auto [place, fresh] = held[next->to].try_emplace({next->interval, row}, sent->second);
        if (!fresh && place->second != sent->second) FAIL("a row is another one there");
      }
    }
  }
  return held;
}

/// A replica's rows as its ranks hold them, each rank what it needs and those along tp the same.
std::vector<double> rows_of(const Side& side, std::size_t replica,
                            const std::vector<Overlap>& intervals, bool source, const Held& held) {
  const RankGroup& group = side.groups[replica];
  std::vector<double> rows(static_cast<std::size_t>(side.rows[replica]), -1);
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const RowInterval& interval = intervals[i].interval;
    const auto end = source ? interval.source : interval.destination;
    if (end != static_cast<std::int32_t>(replica)) continue;
    const TokenCount first = source ? intervals[i].source_begin : intervals[i].destination_begin;
    for (std::int32_t cp = 0; cp < group.grid.cp; ++cp) {
      const RowCut own = even_cut(interval.rows, group.grid.cp, cp);
      for (TokenCount row = own.begin; row < own.end; ++row)
        for (std::int32_t tp = 0; tp < group.grid.tp; ++tp) {
          const auto rank = static_cast<std::size_t>(cp * group.grid.tp + tp);
          const double value = held.at(group.ranks[rank]).at({i, row});
          double& place = rows[static_cast<std::size_t>(first + row)];
          if (tp > 0 ? place != value : place != -1) FAIL("a row is not put in its place once");
          place = value;
        }
    }
  }
  return rows;
}

std::vector<Overlap> inverse(std::vector<Overlap> intervals) {
  for (Overlap& overlap : intervals) {
    std::swap(overlap.interval.source, overlap.interval.destination);
    std::swap(overlap.source_begin, overlap.destination_begin);
  }
  return intervals;
}

/// What arrives at every destination when each source holds `values` of its rows.
std::vector<std::vector<double>> moved(Route route, const Side& from, const Side& to,
                                       const std::vector<Overlap>& intervals, DeviceSlot hub,
                                       const std::vector<std::vector<double>>& values) {
  Held held;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const auto source = static_cast<std::size_t>(intervals[i].interval.source);
    give(
        from.groups[source], i, intervals[i].interval.rows,
        [&](TokenCount row) {
          return values[source][static_cast<std::size_t>(intervals[i].source_begin + row)];
        },
        held);
  }
  const auto there = execute(
      route_messages(route, from.groups, to.groups, intervals_of(intervals), hub), std::move(held));
  std::vector<std::vector<double>> arrived;
  for (std::size_t d = 0; d < to.groups.size(); ++d)
    arrived.push_back(rows_of(to, d, intervals, false, there));
  return arrived;
}

/// Replicas of random grids, on devices from `next` on, three to a node.
Side random_side(std::mt19937& random, std::vector<TokenCount> rows, bool has_cp,
                 std::int32_t& next) {
  Side side;
  side.rows = std::move(rows);
  for (std::size_t r = 0; r < side.rows.size(); ++r) {
    RankGroup group;
    group.grid = {draw(random, 1, 4), has_cp ? draw(random, 1, 3) : 1};
    for (std::int32_t rank = 0; rank < group.grid.ranks(); ++rank, ++next)
      group.ranks.push_back({NodeId{next / 3}, next % 3});
    side.groups.push_back(std::move(group));
  }
  return side;
}

std::vector<TokenCount> random_rows(std::mt19937& random, int replicas) {
  std::vector<TokenCount> rows;
  for (int r = 0; r < replicas; ++r) rows.push_back(draw(random, 0, 9));
  return rows;
}

/// The same rows, cut anew for so many replicas.
std::vector<TokenCount> cut_anew(std::mt19937& random, const std::vector<TokenCount>& rows,
                                 int replicas) {
  const auto all = static_cast<int>(std::accumulate(rows.begin(), rows.end(), TokenCount{0}));
  std::vector<int> ends{all};
  for (int r = 1; r < replicas; ++r) ends.push_back(draw(random, 0, all));
  std::sort(ends.begin(), ends.end());
  std::vector<TokenCount> cut;
  for (int begin = 0; const int end : ends) cut.push_back(end - std::exchange(begin, end));
  return cut;
}

std::vector<std::vector<double>> random_values(std::mt19937& random, const Side& side) {
  std::vector<std::vector<double>> values;
  for (const auto count : side.rows) {
    auto& own = values.emplace_back();
    for (TokenCount row = 0; row < count; ++row)
      own.push_back(static_cast<double>(random()) / 4294967296.0);
  }
  return values;
}

std::vector<double> joined(const std::vector<std::vector<double>>& lists) {
  std::vector<double> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

TEST_CASE("the laws of a boundary hold by every route, to the bit", "[scheduler][property]") {
  std::size_t grids = 0, kept = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::int32_t device = 0;
    Side from = random_side(random, random_rows(random, draw(random, 1, 5)), true, device);
    const auto destinations = draw(random, 1, 5);
    // As many replicas may keep their rows.
    const bool as_many = std::ssize(from.groups) == destinations;
    const auto cut =
        as_many && draw(random, 0, 3) == 0 ? from.rows : cut_anew(random, from.rows, destinations);
    const auto intervals = overlaps(from.rows, cut);
    // Now and then both modules share devices.
    if (draw(random, 0, 3) == 0) device = 0;
    Side to = random_side(random, cut, true, device);
    if (as_many && draw(random, 0, 4) == 0) to.groups = from.groups;
    const DeviceSlot hub =
        draw(random, 0, 4) > 0 ? from.groups[0].ranks[0] : DeviceSlot{NodeId{99}, 0};
    const auto values = random_values(random, from);
    const auto gradients = random_values(random, to);
    for (const Route route : kAll) {
      CAPTURE(to_string(route));
      // Fan-in concatenates, fan-out slices, equal numbers keep: rows stay in their global order.
      const auto there = moved(route, from, to, intervals, hub, values);
      REQUIRE(joined(there) == joined(values));
      // The inverse: own slices, siblings' gradients put beside each other, none added.
      const auto back = moved(route, to, from, inverse(intervals), hub, gradients);
      REQUIRE(joined(back) == joined(gradients));
      for (std::size_t s = 0; s < from.groups.size(); ++s)
        REQUIRE(static_cast<TokenCount>(back[s].size()) == from.rows[s]);
    }
    // By leader one message crosses for each pair of overlapping intervals.
    const auto messages =
        route_messages(Route::leader, from.groups, to.groups, intervals_of(intervals), hub);
    std::set<std::size_t> crossing;
    std::size_t crossings = 0, at_home = 0;
    for (const auto& message : messages)
      if (message.hop == 1) crossing.insert(message.interval), ++crossings;
    for (const Overlap& overlap : intervals)
      at_home += keeps_rows(from.groups[static_cast<std::size_t>(overlap.interval.source)],
                            to.groups[static_cast<std::size_t>(overlap.interval.destination)]);
    REQUIRE(crossings == crossing.size());
    REQUIRE(crossings == intervals.size() - at_home);
    kept += at_home;
    for (const auto& group : from.groups) grids += group.ranks.size() > 1;
  }
  CHECK(grids > 2000);
  CHECK(kept > 50);
}

/// One move in place of two.
std::vector<Overlap> composed(const std::vector<Overlap>& first,
                              const std::vector<Overlap>& second) {
  std::vector<Overlap> both;
  for (const auto& a : first)
    for (const auto& b : second) {
      if (a.interval.destination != b.interval.source) continue;
      const TokenCount begin = std::max(a.destination_begin, b.source_begin);
      const TokenCount end =
          std::min(a.destination_begin + a.interval.rows, b.source_begin + b.interval.rows);
      if (begin < end)
        both.push_back({{a.interval.source, b.interval.destination, end - begin},
                        a.source_begin + begin - a.destination_begin,
                        b.destination_begin + begin - b.source_begin});
    }
  return both;
}

TEST_CASE("two redistributions are one, by any routes", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::int32_t device = 0;
    const Side from = random_side(random, random_rows(random, draw(random, 1, 4)), true, device);
    const auto middles = draw(random, 1, 4), destinations = draw(random, 1, 4);
    const auto middle_rows = cut_anew(random, from.rows, middles);
    const auto first = overlaps(from.rows, middle_rows);
    // Ranks along cp cut each interval: what the first move leaves is what the second begins with
    // where there is one.
    const Side middle = random_side(random, middle_rows, false, device);
    const Side to = random_side(random, cut_anew(random, from.rows, destinations), true, device);
    const auto second = overlaps(middle.rows, to.rows);
    const auto values = random_values(random, from);
    const DeviceSlot hub = from.groups[0].ranks[0];
    const auto once = [&](Route route) {
      return moved(route, from, to, composed(first, second), hub, values);
    };
    const auto twice = [&](Route there, Route on) {
      return moved(on, middle, to, second, hub, moved(there, from, middle, first, hub, values));
    };
    const Route any = kAll[draw(random, 0, 2)], other = kAll[draw(random, 0, 2)];
    REQUIRE(once(kAll[draw(random, 0, 2)]) == twice(any, other));
  }
}

/// Replicas of one rank each, one to a node from `node` on.
std::vector<RankGroup> single(int count, std::int32_t node) {
  std::vector<RankGroup> groups;
  for (int r = 0; r < count; ++r) groups.push_back({{}, {{NodeId{node + r}, 0}}});
  return groups;
}

/// One replica on the devices of a node.
RankGroup grid(std::int32_t tp, std::int32_t cp, std::int32_t node) {
  RankGroup group{{tp, cp}, {}};
  for (std::int32_t rank = 0; rank < tp * cp; ++rank) group.ranks.push_back({NodeId{node}, rank});
  return group;
}

/// 1 ms per row between nodes, 0.1 ms inside; latencies 0.5 and 0.05.
double ms(LinkClass link, double rows) {
  return link == LinkClass::network ? 0.5 + rows : link == LinkClass::node ? 0.05 + rows / 10 : 0;
}

double time_of(Route route, std::span<const RankGroup> from, std::span<const RankGroup> to,
               std::span<const RowInterval> intervals) {
  return route_ms(route_messages(route, from, to, intervals, from[0].ranks[0]), ms);
}

TEST_CASE("four encoders gather for two llm replicas and scatter", "[scheduler]") {
  // DFLOP, figure 6: three send their 8 rows to the first, which keeps its own and sends 16 to
  // each.
  const auto from = single(4, 0), to = single(2, 4);
  const std::vector<RowInterval> intervals{{0, 0, 8}, {1, 0, 8}, {2, 1, 8}, {3, 1, 8}};
  const auto messages =
      route_messages(Route::gather_scatter, from, to, intervals, from[0].ranks[0]);
  std::map<std::int32_t, TokenCount> rows;
  for (const auto& message : messages) rows[message.hop] += message.rows;
  CHECK(rows == std::map<std::int32_t, TokenCount>{{0, 24}, {1, 32}});
  // 24 rows into one link, 32 out of it; direct, the destinations' links have 16 rows each.
  CHECK(time_of(Route::gather_scatter, from, to, intervals) == Approx(0.5 + 24 + 0.5 + 32));
  CHECK(time_of(Route::direct, from, to, intervals) == Approx(0.5 + 16));
  CHECK(time_of(Route::leader, from, to, intervals) == time_of(Route::direct, from, to, intervals));
}

TEST_CASE("a leader takes the copies for many ranks off the network", "[scheduler]") {
  // One rank to tp 4: direct four copies of 8 rows; by leader one, of which it then scatters three
  // quarters, and each rank gives its quarter to three others.
  const auto from = single(1, 0);
  const std::vector to{grid(4, 1, 1)};
  const std::vector<RowInterval> all{{0, 0, 8}};
  CHECK(time_of(Route::direct, from, to, all) == Approx(0.5 + 32));
  CHECK(time_of(Route::leader, from, to, all) == Approx(0.5 + 8 + 2 * (0.05 + 0.6)));
  // Back, one of the four would do; each sends a quarter.
  CHECK(time_of(Route::direct, to, from, all) == Approx(0.5 + 8));
  CHECK(time_of(Route::leader, to, from, all) == Approx(0.5 + 8));
}

TEST_CASE("ranks of grids send to each other side by side", "[scheduler]") {
  const std::vector from{grid(2, 2, 0)}, to{grid(2, 2, 1)};
  const std::vector<RowInterval> all{{0, 0, 8}};
  CHECK(route_messages(Route::direct, from, to, all, {}).size() == 4);
  CHECK(time_of(Route::direct, from, to, all) == Approx(0.5 + 4));
  // The other place along cp gives its four rows to the first rank, which sends eight.
  CHECK(time_of(Route::leader, from, to, all) ==
        Approx(0.05 + 0.4 + 0.5 + 8 + 0.05 + 0.6 + 0.05 + 0.2));
  // The first rank of the source is where all is gathered.
  CHECK(time_of(Route::gather_scatter, from, to, all) == Approx(0.05 + 0.4 + 0.5 + 8 + 0.05 + 0.2));
}

TEST_CASE("what a rank has it does not get", "[scheduler]") {
  const std::vector both{grid(2, 1, 0)};
  const std::vector<RowInterval> all{{0, 0, 6}};
  for (const Route route : kAll) CHECK(time_of(route, both, both, all) == 0);
  // tp 2 on devices 0 and 1, then cp 2 on the same: each keeps three rows, which it has.
  const std::vector split{grid(1, 2, 0)};
  for (const auto& message : route_messages(Route::direct, both, split, all, {}))
    CHECK((message.from == message.to && message.rows == 3));
  // The other way each gets three rows, and keeps three.
  CHECK(time_of(Route::direct, split, both, all) == Approx(0.05 + 0.3));
}

}  // namespace
}  // namespace troupe::scheduler
