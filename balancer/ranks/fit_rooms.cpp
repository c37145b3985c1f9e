#include "balancer/ranks/fit_rooms.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "balancer/loads/sum_rounding.hpp"

namespace troupe::balancer {

namespace {

constexpr double kFull = 1 + kSumRounding;

// What ends less sooner is not worth the move.
constexpr double kWorthMoving = 0.99;

// Moves that are looked at beyond plain packing: a few milliseconds.
constexpr std::int64_t kLooksMax = 200'000;

std::size_t slots_of(std::span<const RoomItem> items) {
  std::size_t slots = 0;
  for (const RoomItem& item : items) slots = std::max(slots, item.slot + 1);
  return slots;
}

/// Cells are a rank's rooms, one per slot.
class Fitter {
 public:
  Fitter(std::span<const RoomItem> items, const RoomShare& share,
         const FirstToFinish<double>& before)
      : items_(items), share_(share), before_(before), slots_(slots_of(items)) {}

  /// Where the items go, or who found no room.
  std::optional<NoRoom> run(std::vector<std::size_t>& chosen) {
    clear();
    for (std::size_t i = 0; i < items_.size(); ++i) put(i, chosen[i]);
    bool is_full = false, has_room = true;
    for (std::size_t cell = 0; cell < filled_.size(); ++cell)
      if (filled_[cell] > kFull) is_full = true, has_room = has_room && relieve(cell);
    if (!is_full) return std::nullopt;
    if (!has_room)
      if (auto left = pack()) return left;
    even_out();
    chosen = place_;
    return std::nullopt;
  }

 private:
  std::size_t cell_of(std::size_t item, std::size_t rank) const {
    return rank * slots_ + items_[item].slot;
  }
  double end_with(std::size_t item, std::size_t rank) const {
    return (loads_.load(rank) + items_[item].work) / loads_.speed(rank);
  }
  /// Of its room, with the item.
  double filled_with(std::size_t item, std::size_t rank) const {
    return filled_[cell_of(item, rank)] + share_(item, rank);
  }
  bool fits(std::size_t item, std::size_t rank) const { return filled_with(item, rank) <= kFull; }

  void clear() {
    loads_ = before_;
    filled_.assign(before_.size() * slots_, 0);
    on_.assign(filled_.size(), {});
    place_.assign(items_.size(), 0);
  }

  void put(std::size_t item, std::size_t rank) {
    place_[item] = rank;
    filled_[cell_of(item, rank)] += share_(item, rank);
    on_[cell_of(item, rank)].push_back(item);
    loads_.add(rank, items_[item].work);
  }

  void take(std::size_t item) {
    const std::size_t rank = place_[item];
    filled_[cell_of(item, rank)] -= share_(item, rank);
    std::erase(on_[cell_of(item, rank)], item);
    loads_.add(rank, -items_[item].work);
  }

  void move(std::size_t item, std::size_t rank) {
    take(item);
    put(item, rank);
  }

  /// Of the other ranks with room the one that would end first.
  bool move_on(std::size_t item) {
    std::optional<std::size_t> first;
    for (std::size_t r = 0; r < before_.size(); ++r)
      if (r != place_[item] && fits(item, r) &&
          (!first || end_with(item, r) < end_with(item, *first)))
        first = r;
    if (first) move(item, *first);
    return first.has_value();
  }

  /// False: not all that is too much finds room elsewhere.
  bool relieve(std::size_t cell) {
    const std::size_t rank = cell / slots_;
    while (filled_[cell] > kFull) {
      const double excess = filled_[cell] - kFull;
      std::vector<std::size_t> leaving = on_[cell];
      std::erase_if(leaving, [&](std::size_t i) { return !(share_(i, rank) > 0); });
      std::ranges::sort(leaving, {}, [&](std::size_t i) {
        const double own = share_(i, rank);
        const bool is_enough = own >= excess;
        return std::tuple(is_enough ? 0 : 1, is_enough ? own : -own, i);
      });
      if (std::ranges::none_of(leaving, [&](std::size_t i) { return move_on(i); })) return false;
    }
    return true;
  }

  std::optional<NoRoom> pack() {
    std::vector<double> sizes(items_.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = share_(i, place_[i]);
    std::vector<std::size_t> order(items_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return sizes[i]; });
    clear();
    for (const std::size_t item : order)
      if (!put_tightest(item) && !put_by_making_way(item)) return least_too_full(item);
    return std::nullopt;
  }

  bool put_tightest(std::size_t item) {
    std::optional<std::size_t> tightest;
    for (std::size_t r = 0; r < before_.size(); ++r)
      if (fits(item, r) && (!tightest || filled_with(item, r) > filled_with(item, *tightest)))
        tightest = r;
    if (tightest) put(item, *tightest);
    return tightest.has_value();
  }

  bool put_by_making_way(std::size_t item) {
    for (std::size_t r = 0; r < before_.size(); ++r)
      for (const std::size_t other : on_[cell_of(item, r)]) {
        if (filled_with(item, r) - share_(other, r) > kFull) continue;
        for (std::size_t away = 0; away < before_.size(); ++away) {
          if (--looks_ <= 0) return false;
          if (away == r || !fits(other, away)) continue;
          move(other, away);
          put(item, r);
          return true;
        }
      }
    return false;
  }

  NoRoom least_too_full(std::size_t item) const {
    NoRoom found{item, 0, filled_with(item, 0)};
    for (std::size_t r = 1; r < before_.size(); ++r)
      if (const double filled = filled_with(item, r); filled < found.filled)
        found.rank = r, found.filled = filled;
    return found;
  }

  /// Until nothing that the last one has makes it end sooner elsewhere.
  void even_out() {
    for (;;) {
      std::size_t last = 0;
      for (std::size_t r = 1; r < before_.size(); ++r)
        if (loads_.end(r) > loads_.end(last)) last = r;
      double soonest = kWorthMoving * loads_.end(last);
      std::optional<std::pair<std::size_t, std::size_t>> best;
      for (std::size_t slot = 0; slot < slots_; ++slot)
        for (const std::size_t item : on_[last * slots_ + slot]) {
          const double left = (loads_.load(last) - items_[item].work) / loads_.speed(last);
          for (std::size_t r = 0; r < before_.size(); ++r) {
            if (--looks_ <= 0) return;
            const double end = std::max(left, end_with(item, r));
            if (r != last && end < soonest && fits(item, r)) soonest = end, best = {item, r};
          }
        }
      if (!best) return;
      move(best->first, best->second);
    }
  }

  const std::span<const RoomItem> items_;
  const RoomShare& share_;
  const FirstToFinish<double>& before_;
  const std::size_t slots_;
  FirstToFinish<double> loads_ = before_;
  std::vector<double> filled_;                ///< Per cell, of its room.
  std::vector<std::vector<std::size_t>> on_;  ///< Per cell its items.
  std::vector<std::size_t> place_;            ///< Per item its rank.
  std::int64_t looks_ = kLooksMax;            ///< Left.
};

}  // namespace

std::optional<NoRoom> fit_rooms(std::span<const RoomItem> items, const RoomShare& share,
                                const FirstToFinish<double>& before,
                                std::vector<std::size_t>& chosen) {
  return Fitter(items, share, before).run(chosen);
}

}  // namespace troupe::balancer
