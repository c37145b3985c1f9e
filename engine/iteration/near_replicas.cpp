#include "engine/iteration/near_replicas.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "balancer/loads/load_tree.hpp"

namespace troupe::engine {

namespace {

using Loads = balancer::FirstToFinish<double>;

/// The replica of a node that would end first; of equal ones the lower.
std::size_t first_of(const std::vector<std::size_t>& replicas, double work, const Loads& loads) {
  const auto end = [&](std::size_t r) { return (loads.load(r) + work) / loads.speed(r); };
  return *std::min_element(replicas.begin(), replicas.end(),
                           [&](std::size_t a, std::size_t b) { return end(a) < end(b); });
}

/// Brings far samples near, one change after the other.
class Drawer {
 public:
  /// `replicas`: how many there are.
  Drawer(std::span<const WantedSample> samples, const std::vector<std::vector<std::size_t>>& near,
         std::size_t replicas, std::int64_t looks, std::vector<std::size_t>& chosen)
      : samples_(samples),
        near_(near),
        chosen_(chosen),
        looks_(looks),
        is_near_(near.size(), std::vector<bool>(replicas)),
        by_room_(replicas) {
    for (std::size_t n = 0; n < near.size(); ++n)
      for (const std::size_t r : near[n]) is_near_[n][r] = true;
    for (std::size_t s = 0; s < samples.size(); ++s) note_where(s);
  }

  /// Whether anything moved. `before`: loads without the samples.
  bool run(double end_max, const Loads& before) {
    if (far_.empty()) return false;
    find_room(end_max, before);
    const bool has_moved = draw_all();
    if (room_.size() > kChainReplicasMax) return has_moved;
    in_chains_ = true;
    make_way_max_ = kChainMax;
    looks_ = std::min(looks_, kChainLooksMax);
    everywhere_.resize(room_.size());
    std::iota(everywhere_.begin(), everywhere_.end(), std::size_t{0});
    return draw_all() || has_moved;
  }

 private:
  /// A sample and where it goes.
  struct Move {
    std::size_t sample = 0, to = 0;
  };
  /// When a sample is drawn: minus its bytes, so that most come first, then its number.
  using Turn = std::pair<double, std::size_t>;

  /// Each far sample in its turn, until nothing changes. Whether anything moved.
  bool draw_all() {
    bool has_moved = false;
    for (bool changed = true; changed && looks_ > 0;) {
      changed = false;
      for (auto next = far_.begin(); next != far_.end();) {
        const Turn turn = *next;
        changed |= draw(turn.second);
        next = far_.upper_bound(turn);  // Moves may have made others far, or no longer.
      }
      has_moved |= changed;
    }
    return has_moved;
  }

  void find_room(double end_max, const Loads& before) {
    for (std::size_t r = 0; r < before.size(); ++r)
      room_.push_back(end_max * before.speed(r) - before.load(r));
    on_.resize(before.size());
    for (std::size_t s = 0; s < samples_.size(); ++s) {
      room_[chosen_[s]] -= samples_[s].work;
      on_[chosen_[s]].push_back(s);
    }
    for (std::size_t r = 0; r < room_.size(); ++r) by_room_.set(r, -room_[r]);
  }

  void add_room(std::size_t replica, double work) {
    room_[replica] += work;
    by_room_.set(replica, -room_[replica]);
  }

  void note_where(std::size_t s) {
    const Turn turn{-samples_[s].bytes, s};
    if (far(s, chosen_[s]) > 0) {
      far_.insert(turn);
    } else {
      far_.erase(turn);
    }
  }

  double far(std::size_t s, std::size_t r) const {
    return is_near_[samples_[s].node][r] ? 0 : samples_[s].bytes;
  }

  bool draw(std::size_t s) {
    best_.clear();
    fewer_ = 0;
    add_room(chosen_[s], samples_[s].work);  // As if it had left already.
    roomiest_ = by_room_.least();
    for (const std::size_t to : near_[samples_[s].node])
      look_with({s, to}, samples_[s].bytes, to, 0);
    add_room(chosen_[s], -samples_[s].work);
    for (const Move& move : best_) go(move);
    return !best_.empty();
  }

  /// One move more, with which so many bytes less go between nodes.
  void look_with(Move move, double fewer, std::size_t full, std::size_t first) {
    const double room = room_[move.to];
    room_[move.to] -= samples_[move.sample].work;
    moves_.push_back(move);
    look(fewer, full, first);
    moves_.pop_back();
    room_[move.to] = room;  // Not added again: rounding would add up.
  }

  /// Where there is no room for one of the moves so far, others may make way; of the replica `full`
  /// those from place `first` on, as what goes without the ones before was looked at.
  void look(double fewer, std::size_t full, std::size_t first) {
    --looks_;
    const auto lacking =
        std::ranges::find_if(moves_, [&](const Move& move) { return room_[move.to] < 0; });
    if (lacking == moves_.end()) {
      if (fewer > fewer_) best_ = moves_, fewer_ = fewer;
      return;
    }
    if (moves_.size() > make_way_max_) return;
    make_way(lacking->to, fewer, lacking->to == full ? first : 0);
  }

  void make_way(std::size_t full, double fewer, std::size_t first) {
    const std::size_t from = chosen_[moves_.front().sample];
    for (std::size_t place = first; place < on_[full].size() && looks_ > 0; ++place) {
      const std::size_t other = on_[full][place];
      if (is_moving(other)) continue;
      const auto move_to = [&](std::size_t away) {
        const double work = samples_[other].work;
        if (away == full || (work > room_[away] && !may_make_way_there())) return;
        const double room = room_[full];
        room_[full] += work;
        look_with({other, away}, fewer + far(other, full) - far(other, away), full, place + 1);
        room_[full] = room;
      };
      move_to(from);
      if (roomiest_ != from) move_to(roomiest_);
      for (const std::size_t away : in_chains_ ? everywhere_ : near_[samples_[other].node])
        if (away != from && away != roomiest_) move_to(away);
    }
  }

  bool is_moving(std::size_t s) const {
    return std::ranges::any_of(moves_, [&](const Move& move) { return move.sample == s; });
  }

  /// Whether somebody else may make way for one more that makes way.
  bool may_make_way_there() const { return in_chains_ && moves_.size() < make_way_max_; }

  void go(const Move& move) {
    std::size_t& from = chosen_[move.sample];
    std::erase(on_[from], move.sample);
    add_room(from, samples_[move.sample].work);
    add_room(move.to, -samples_[move.sample].work);
    on_[move.to].push_back(move.sample);
    from = move.to;
    note_where(move.sample);
  }

  static constexpr std::size_t kMakeWayMax = 2;

  // Chains try every replica and grow with a power of their number; a millisecond at most.
  static constexpr std::size_t kChainMax = 3, kChainReplicasMax = 16;
  static constexpr std::int64_t kChainLooksMax = 5000;

  const std::span<const WantedSample> samples_;
  const std::vector<std::vector<std::size_t>>& near_;
  std::vector<std::size_t>& chosen_;
  std::int64_t looks_;                        ///< Left.
  std::vector<std::vector<bool>> is_near_;    ///< Per node, per replica.
  std::set<Turn> far_;                        ///< Whose rows are far.
  std::vector<double> room_;                  ///< Per replica, of work.
  balancer::LoadTree<double> by_room_;        ///< Minus `room_`: the roomiest is its least.
  std::vector<std::vector<std::size_t>> on_;  ///< Per replica its samples.
  // Of the sample that is looked at: moves that are tried, the best so far and what they bring.
  std::vector<Move> moves_, best_;
  double fewer_ = 0;
  std::size_t roomiest_ = 0;
  // How others make way: in chains to any replica, where yet others make way for them.
  std::size_t make_way_max_ = kMakeWayMax;
  bool in_chains_ = false;
  std::vector<std::size_t> everywhere_;  ///< All replicas, in chains.
};

}  // namespace

bool draw_near(std::span<const WantedSample> samples,
               const std::vector<std::vector<std::size_t>>& near, double end_max,
               const Loads& before, std::int64_t looks, std::vector<std::size_t>& chosen) {
  return Drawer(samples, near, before.size(), looks, chosen).run(end_max, before);
}

std::optional<std::vector<std::size_t>> keep_near(std::span<const WantedSample> samples,
                                                  const std::vector<std::vector<std::size_t>>& near,
                                                  double end_max, Loads& loads) {
  Loads tried = loads;
  std::vector<std::size_t> chosen;
  chosen.reserve(samples.size());
  for (const WantedSample& sample : samples) {
    const auto fits = [&](std::size_t r) {
      return (tried.load(r) + sample.work) / tried.speed(r) <= end_max;
    };
    const auto& own = near[sample.node];
    std::size_t replica = own.empty() ? 0 : first_of(own, sample.work, tried);
    if (own.empty() || !fits(replica)) replica = tried.find(sample.work);
    if (!fits(replica)) return std::nullopt;
    tried.add(replica, sample.work);
    chosen.push_back(replica);
  }
  loads = std::move(tried);
  return chosen;
}

}  // namespace troupe::engine
