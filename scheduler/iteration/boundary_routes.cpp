#include "scheduler/iteration/boundary_routes.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

RowCut overlap(RowCut a, RowCut b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

RowCut cut_again(RowCut rows, std::int32_t parts, std::int32_t part) {
  const RowCut inner = even_cut(rows.end - rows.begin, parts, part);
  return {rows.begin + inner.begin, rows.begin + inner.end};
}

const DeviceSlot& rank_at(const RankGroup& group, std::int32_t cp, std::int32_t tp) {
  return group.ranks[at(cp * group.grid.tp + tp)];
}

/// The messages of one interval.
class IntervalRoute {
 public:
  IntervalRoute(std::size_t interval, TokenCount rows, std::vector<RankMessage>& messages)
      : interval_(interval), rows_(rows), messages_(messages) {}

  void direct(const RankGroup& from, const RankGroup& to) {
    if (from.ranks.size() == 1 && to.ranks.size() == 1)  // Most are so, and there are very many.
      return add(0, from.ranks.front(), to.ranks.front(), {0, rows_});
    for (std::int32_t d = 0; d < to.grid.cp; ++d)
      for (std::int32_t s = 0; s < from.grid.cp; ++s) {
        const RowCut both =
            overlap(even_cut(rows_, from.grid.cp, s), even_cut(rows_, to.grid.cp, d));
        if (both.begin < both.end) share_out(from, s, to, d, both);
      }
  }

  void by_leader(const RankGroup& from, const RankGroup& to) {
    const DeviceSlot &sender = from.ranks.front(), &receiver = to.ranks.front();
    for (std::int32_t cp = 1; cp < from.grid.cp; ++cp)
      add(0, rank_at(from, cp, 0), sender, even_cut(rows_, from.grid.cp, cp));
    add(1, sender, receiver, {0, rows_});
    spread(2, receiver, to);
  }

  void by_hub(const RankGroup& from, const DeviceSlot& hub, const RankGroup& to) {
    for (std::int32_t cp = 0; cp < from.grid.cp; ++cp) {
      const auto row = from.ranks.begin() + std::ptrdiff_t{cp} * from.grid.tp;
      if (std::find(row, row + from.grid.tp, hub) != row + from.grid.tp) continue;  // It has them.
      const RowCut had = even_cut(rows_, from.grid.cp, cp);
      for (std::int32_t tp = 0; tp < from.grid.tp; ++tp)
        add(0, rank_at(from, cp, tp), hub, cut_again(had, from.grid.tp, tp));
    }
    spread(1, hub, to);
  }

 private:
  void add(std::int32_t hop, const DeviceSlot& from, const DeviceSlot& to, RowCut cut) {
    if (cut.begin < cut.end)
      messages_.push_back({hop, interval_, from, to, cut.begin, cut.end - cut.begin});
  }

  /// Rows that a row of ranks has and another one needs. Copies for those that do not have them lie
  /// on a line, of which each rank that has them sends an even piece.
  void share_out(const RankGroup& from, std::int32_t from_cp, const RankGroup& to,
                 std::int32_t to_cp, RowCut rows) {
    std::vector<DeviceSlot> others;
    for (std::int32_t tp = 0; tp < to.grid.tp; ++tp) {
      const DeviceSlot& rank = rank_at(to, to_cp, tp);
      const auto row = from.ranks.begin() + std::ptrdiff_t{from_cp} * from.grid.tp;
      if (std::find(row, row + from.grid.tp, rank) != row + from.grid.tp)
        add(0, rank, rank, rows);
      else
        others.push_back(rank);
    }
    const TokenCount length = rows.end - rows.begin;
    const TokenCount line = length * std::ssize(others);
    for (std::int32_t tp = 0; tp < from.grid.tp; ++tp) {
      const RowCut sent = even_cut(line, from.grid.tp, tp);
      for (TokenCount k = sent.begin / length; k * length < sent.end; ++k) {
        const RowCut piece = overlap(sent, {k * length, (k + 1) * length});
        const TokenCount shift = rows.begin - k * length;
        add(0, rank_at(from, from_cp, tp), others[static_cast<std::size_t>(k)],
            {piece.begin + shift, piece.end + shift});
      }
    }
  }

  /// From a device that has all rows to the ranks that need them.
  void spread(std::int32_t hop, const DeviceSlot& holder, const RankGroup& to) {
    for (std::int32_t cp = 0; cp < to.grid.cp; ++cp) {
      const RowCut needed = even_cut(rows_, to.grid.cp, cp);
      for (std::int32_t tp = 0; tp < to.grid.tp; ++tp) {
        const DeviceSlot& rank = rank_at(to, cp, tp);
        const RowCut slice = cut_again(needed, to.grid.tp, tp);
        if (rank != holder) add(hop, holder, rank, slice);
        for (std::int32_t other = 0; other < to.grid.tp; ++other)
          if (other != tp && rank_at(to, cp, other) != holder)
            add(hop + 1, rank, rank_at(to, cp, other), slice);
      }
    }
  }

  const std::size_t interval_;
  const TokenCount rows_;
  std::vector<RankMessage>& messages_;
};

}  // namespace

RowCut even_cut(TokenCount rows, std::int32_t parts, std::int32_t part) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

bool keeps_rows(const RankGroup& from, const RankGroup& to) {
  return from.ranks == to.ranks && (from.grid.cp == 1 || from.grid == to.grid);
}

std::vector<RankMessage> route_messages(Route route, std::span<const RankGroup> sources,
                                        std::span<const RankGroup> destinations,
                                        std::span<const RowInterval> intervals, DeviceSlot hub) {
  std::vector<RankMessage> messages;
  messages.reserve(intervals.size());
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const RankGroup& from = sources[at(intervals[i].source)];
    const RankGroup& to = destinations[at(intervals[i].destination)];
    IntervalRoute one(i, intervals[i].rows, messages);
    switch (keeps_rows(from, to) ? Route::direct : route) {
      case Route::direct: one.direct(from, to); break;
      case Route::leader: one.by_leader(from, to); break;
      case Route::gather_scatter: one.by_hub(from, hub, to); break;
    }
  }
  return messages;
}

double route_ms(std::span<const RankMessage> messages, const LinkCost& rows_ms) {
  // What each device's link of a kind has to do in a hop: rows out and rows in, side by side.
  struct Load {
    std::int32_t hop = 0;
    LinkClass link = LinkClass::device;
    TokenCount out = 0, in = 0;
  };
  std::unordered_map<std::uint64_t, Load> loads;
  const auto load_of = [&](const RankMessage& message, LinkClass link, const DeviceSlot& device) {
    const auto way = static_cast<std::uint64_t>(message.hop * 3 + static_cast<std::int32_t>(link));
    const std::uint64_t place = static_cast<std::uint64_t>(device.node.value) << 32 |
                                static_cast<std::uint64_t>(device.local_index) << 8 | way;
    return &loads.try_emplace(place, Load{message.hop, link}).first->second;
  };
  for (const RankMessage& message : messages) {
    const LinkClass link = link_class(message.from, message.to);
    load_of(message, link, message.from)->out += message.rows;
    load_of(message, link, message.to)->in += message.rows;
  }
  std::map<std::int32_t, double> hops;
  for (const auto& [place, load] : loads) {
    double& hop = hops[load.hop];
    hop = std::max(hop, rows_ms(load.link, static_cast<double>(std::max(load.out, load.in))));
  }
  double ms = 0;
  for (const auto& [hop, longest] : hops) ms += longest;
  return ms;
}

}  // namespace troupe::scheduler
