#include "engine/iteration/phase_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "balancer/loads/descending.hpp"
#include "engine/iteration/cut_share.hpp"
#include "engine/iteration/have_room.hpp"
#include "engine/iteration/near_replicas.hpp"
#include "engine/iteration/phase_nodes.hpp"
#include "engine/iteration/phase_replicas.hpp"
#include "engine/iteration/placed_shares.hpp"
#include "runtime/vocabulary/index.hpp"

namespace troupe::engine {

namespace {

// How much later the last replica of a round may end for rows that stay on their node.
constexpr double kWorthStaying = 1.01;

// Changes that are looked at per round for it: a few milliseconds.
constexpr std::int64_t kLooksMax = 200'000;

// Replicas x microbatches of the llm beyond which no rooms are kept for each of these: some tens of
// megabytes.
constexpr std::size_t kRoomsMax = 1 << 20;

std::vector<double> speeds_of(const PhaseWork& work) {
  std::vector<double> speeds;
  for (const double share : work.shares) speeds.push_back(1 / share);
  return speeds;
}

using Loads = balancer::FirstToFinish<double>;

double last_end(const Loads& loads) {
  double end = 0;
  for (std::size_t r = 0; r < loads.size(); ++r) end = std::max(end, loads.end(r));
  return end;
}

/// No deal of these samples, the largest first, ends sooner: not before replicas that share all
/// work out at will, nor before the largest sample where that is done first, nor before anybody
/// ends already.
double least_end(const std::vector<WantedSample>& samples, const Loads& loads) {
  double work = 0, speeds = 0;
  for (const WantedSample& sample : samples) work += sample.work;
  double end = last_end(loads);
  if (samples.empty()) return end;
  const double largest = samples.front().work;
  const std::size_t first = loads.find(largest);
  end = std::max(end, (loads.load(first) + largest) / loads.speed(first));
  std::vector<std::pair<double, std::size_t>> ends;  // Who ends first takes of it first.
  for (std::size_t r = 0; r < loads.size(); ++r) ends.emplace_back(loads.end(r), r);
  std::sort(ends.begin(), ends.end());
  for (const auto& [own, replica] : ends) {
    if (speeds > 0 && own * speeds >= work) break;
    work += loads.load(replica);
    speeds += loads.speed(replica);
  }
  return std::max(end, work / speeds);
}

/// Spreads the rounds of one group over its replicas.
class Spreader {
 public:
  Spreader(const ParallelPlan& plan, ModuleGroupId group, std::span<const LlmCut> cuts,
           const PhaseWork& work, SpreadRules rules)
      : plan_(plan),
        group_(group),
        cuts_(cuts),
        work_(work),
        rules_(rules),
        placed_(plan, group, cuts, work),
        loads_(speeds_of(work)),
        lists_(work.shares.size()),
        cut_{(cuts.size() + lists_.size() - 1) / lists_.size(), false, rules.splits_parts},
        targets_(encoded_for(cuts, work)) {
    std::map<NodeId, std::size_t> nodes;
    for (const LlmCut& own : cuts_) {
      wanted_.push_back(wanted_on(plan, group, own.llm));
      node_.push_back(nodes.try_emplace(wanted_.back(), nodes.size()).first->second);
    }
    nodes_ = nodes.size();
    near_.resize(nodes_);
    for (const ReplicaId replica : replicas_of(plan, group)) {
      if (const auto found = nodes.find(made_on(plan, replica)); found != nodes.end())
        near_[found->second].push_back(begun_on_.size());
      begun_on_.push_back(begun_on(plan, replica));
    }
  }

  Result<std::vector<MicrobatchList>> run() {
    std::size_t rounds = 0;
    for (const LlmCut& own : cuts_) rounds = std::max(rounds, own.cut.encoder.size());
    if (rules_.at_once) {
      spread(0, rounds);
    } else {
      for (std::size_t round = 0; round < rounds; ++round) spread(round, round + 1);
    }
    if (!fits_.ok()) return fits_.error();
    return std::move(lists_);
  }

 private:
  /// Rounds from `begin` to before `end` together; each remains one, in its turn.
  void spread(std::size_t begin, std::size_t end) {
    cut_.by_llm = false;
    std::vector<WantedUnit> samples;
    for (std::size_t round = begin; round < end; ++round) add_samples_of(round, samples);
    auto made = lists_of(share_out(samples));
    for (std::size_t r = 0; r < made.size(); ++r)
      std::ranges::move(made[r], std::back_inserter(lists_[r]));
  }

  /// Each replica's microbatches, round by round.
  std::vector<MicrobatchList> lists_of(const std::vector<std::vector<WantedUnit>>& shares) const {
    std::vector<MicrobatchList> lists;
    lists.reserve(shares.size());
    for (const auto& share : shares) lists.push_back(cut_share(share, cut_));
    return lists;
  }

  /// In the order of llm replicas, each one's as they were cut.
  void add_samples_of(std::size_t round, std::vector<WantedUnit>& found) const {
    for (std::size_t c = 0; c < cuts_.size(); ++c) {
      const MicrobatchList& list = cuts_[c].cut.encoder;
      if (round >= list.size()) continue;
      for (const Part& part : list[round].parts)
        for (const auto sample : part.samples) {
          const std::size_t microbatch = targets_[at(sample)].microbatch;
          const auto cut = work_.cut.find(sample);
          if (!rules_.in_pieces || cut == work_.cut.end()) {
            found.push_back({sample, c, microbatch, round, work_.work_of(at(sample))});
            continue;
          }
          for (const auto piece : cut->second)
            found.push_back({piece, c, microbatch, round, work_.work_of(at(piece))});
        }
    }
  }

  /// Per replica its samples, in the order of `round`: of one, or of several together.
  std::vector<std::vector<WantedUnit>> share_out(const std::vector<WantedUnit>& round) {
    std::vector<std::size_t> order;
    order.reserve(round.size());
    for (std::size_t place = 0; place < round.size(); ++place)
      if (round[place].work > 0) order.push_back(place);
    const auto longest_first =
        balancer::by_descending(order.size(), [&](std::size_t i) { return round[order[i]].work; });
    std::ranges::transform(longest_first, order.begin(),
                           [before = order](std::int32_t i) { return before[at(i)]; });
    std::vector<WantedSample> samples;
    samples.reserve(order.size());
    for (const std::size_t place : order) {
      const std::size_t home = home_of(round[place]);
      samples.push_back({round[place].work, home, bytes_away(round[place], home)});
    }
    const auto before = loads_;
    auto chosen = deal(samples);
    place(round, order, samples, before, chosen);
    keep_rooms(round, order, before, chosen);
    return shares_of(round, order, chosen);
  }

  /// `chosen`: where the units of `round` at the places `order` go.
  std::vector<std::vector<WantedUnit>> shares_of(const std::vector<WantedUnit>& round,
                                                 const std::vector<std::size_t>& order,
                                                 const std::vector<std::size_t>& chosen) const {
    // Who has no media waits for nobody, so it may stand anywhere; here, with its llm replica's
    // neighbours.
    std::vector<std::size_t> replica;
    replica.reserve(round.size());
    for (const WantedUnit& sample : round) replica.push_back(sample.cut % lists_.size());
    for (std::size_t i = 0; i < order.size(); ++i) replica[order[i]] = chosen[i];
    std::vector<std::vector<WantedUnit>> shares(lists_.size());
    for (std::size_t place = 0; place < round.size(); ++place)
      shares[replica[place]].push_back(round[place]);
    return shares;
  }

  /// Where a unit is best off, as an index into `near_`: with who wants its rows, or, where its
  /// content would have to come there and is more than they, or nobody encodes there, with who sees
  /// that.
  std::size_t home_of(const WantedUnit& unit) {
    const std::size_t wanted = node_[unit.cut];
    const auto apart = work_.apart.find(unit.sample);
    if (apart == work_.apart.end()) return wanted;
    const auto& [seen_by, content] = apart->second;
    const double rows = work_.rows_of(at(unit.sample)) * work_.bytes_per_row;
    if (!near_[wanted].empty() &&
        (std::ranges::binary_search(seen_by, wanted_[unit.cut]) || !(rows < content)))
      return wanted;
    const auto [home, is_new] = homes_.try_emplace(seen_by, near_.size());
    if (is_new) {
      near_.emplace_back();
      for (std::size_t r = 0; r < begun_on_.size(); ++r)
        if (std::ranges::binary_search(seen_by, begun_on_[r])) near_.back().push_back(r);
    }
    return near_[home->second].empty() ? wanted : home->second;
  }

  /// Bytes that go between nodes for a unit that is not at `home`, and would not there.
  double bytes_away(const WantedUnit& unit, std::size_t home) const {
    return home < nodes_ ? work_.rows_of(at(unit.sample)) * work_.bytes_per_row
                         : work_.apart.at(unit.sample).content;
  }

  /// Replicas take each other's shares where that brings rows nearer (placed_shares.hpp). `chosen`:
  /// where `samples`, those of `round` at the places `order`, go; `before`: loads before the deal.
  void place(const std::vector<WantedUnit>& round, const std::vector<std::size_t>& order,
             const std::vector<WantedSample>& samples, const Loads& before,
             std::vector<std::size_t>& chosen) {
    std::vector<DealtUnit> units;
    units.reserve(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      units.push_back({chosen[i], round[order[i]].sample, round[order[i]].cut, samples[i]});
    const auto places = placed_.place(units, near_, last_end(loads_), before);
    if (!places) return;
    loads_ = before;
    for (std::size_t i = 0; i < order.size(); ++i) {
      chosen[i] = (*places)[chosen[i]];
      loads_.add(chosen[i], samples[i].work);
    }
  }

  /// Whether it has, dealt and cut so.
  bool has_room(const std::vector<WantedUnit>& round, const std::vector<std::size_t>& order,
                const std::vector<std::size_t>& chosen) const {
    const auto lists = lists_of(shares_of(round, order, chosen));
    return have_room(lists, targets_, work_, rules_.in_windows);
  }

  /// Where memory bounds what a replica keeps of a round, others take what is too much.
  void keep_rooms(const std::vector<WantedUnit>& round, const std::vector<std::size_t>& order,
                  const Loads& before, std::vector<std::size_t>& chosen) {
    if (work_.room_shares.empty() || !fits_.ok() || has_room(round, order, chosen)) return;
    std::vector<RoundUnit> units;
    for (const std::size_t place : order) {
      const WantedUnit& unit = round[place];
      units.push_back({unit.sample, unit.round, unit.round - round.front().round});
    }
    loads_ = before;
    fits_ = fit_units(plan_, group_, work_, units, loads_, chosen);
    // A round that is one microbatch is there at once.
    if (!fits_.ok() && cut_.slices > 1)
      keep_rooms_by_llm(round, order, before, std::move(units), chosen);
  }

  /// Where whole rounds find no room: no more has to be there at once than what a microbatch of the
  /// llm takes, if it is in one of its own.
  void keep_rooms_by_llm(const std::vector<WantedUnit>& round,
                         const std::vector<std::size_t>& order, const Loads& before,
                         std::vector<RoundUnit> units, std::vector<std::size_t>& chosen) {
    std::map<EncodedFor, std::size_t> numbers;
    for (RoundUnit& unit : units)
      unit.kept = numbers.try_emplace(targets_[at(unit.unit)], numbers.size()).first->second;
    if (numbers.size() * lists_.size() > kRoomsMax) return;
    loads_ = before;
    if (auto fits = fit_units(plan_, group_, work_, units, loads_, chosen); !fits.ok()) {
      fits_ = std::move(fits);
      return;
    }
    // In windows others may hold up what is ready here.
    for (const bool by_llm : {false, true}) {
      cut_.by_llm = by_llm;
      if (!has_room(round, order, chosen)) continue;
      fits_ = Done{};
      return;
    }
  }

  /// Where samples go, by descending work: as many rows where they are wanted as are found while
  /// the last replica ends about as soon as if it did not matter where they go.
  std::vector<std::size_t> deal(const std::vector<WantedSample>& samples) {
    double end = kWorthStaying * least_end(samples, loads_);
    auto dealt = loads_;
    auto near = keep_near(samples, near_, end, dealt);
    if (!near) {
      auto plain = loads_;
      std::vector<std::size_t> anywhere;
      anywhere.reserve(samples.size());
      for (const WantedSample& sample : samples) {
        anywhere.push_back(plain.find(sample.work));
        plain.add(anywhere.back(), sample.work);
      }
      end = kWorthStaying * last_end(plain);
      near = keep_near(samples, near_, end, dealt);
      if (!near) near = std::move(anywhere), dealt = std::move(plain);
    }
    auto& chosen = *near;
    if (!draw_near(samples, near_, end, loads_, kLooksMax, chosen)) {
      loads_ = std::move(dealt);
      return std::move(chosen);
    }
    for (std::size_t s = 0; s < samples.size(); ++s) loads_.add(chosen[s], samples[s].work);
    return std::move(chosen);
  }

  const ParallelPlan& plan_;
  const ModuleGroupId group_;
  std::span<const LlmCut> cuts_;
  const PhaseWork& work_;
  const SpreadRules rules_;
  const PlacedShares placed_;
  Loads loads_;  ///< Work of all rounds so far.
  std::vector<MicrobatchList> lists_;
  ShareCut cut_;                     ///< Of the rounds that are being spread.
  std::vector<EncodedFor> targets_;  ///< Per unit.
  std::vector<NodeId> wanted_;       ///< Per cut, where its llm wants rows.
  std::vector<std::size_t> node_;    ///< The same, numbered here.
  std::size_t nodes_ = 0;            ///< Of these.
  /// Per such node the group's replicas there; behind these, per list of nodes that see a source
  /// (`homes_`) those that begin on one of them.
  std::vector<std::vector<std::size_t>> near_;
  std::map<std::vector<NodeId>, std::size_t> homes_;
  std::vector<NodeId> begun_on_;  ///< Per replica.
  Status fits_ = Done{};          ///< What no deal was found for.
};

}  // namespace

Result<std::vector<MicrobatchList>> spread_within_rooms(const ParallelPlan& plan,
                                                        ModuleGroupId group,
                                                        std::span<const LlmCut> cuts,
                                                        const PhaseWork& work, SpreadRules rules) {
  if (cuts.empty()) return std::vector<MicrobatchList>(replicas_of(plan, group).size());
  return Spreader(plan, group, cuts, work, rules).run();
}

}  // namespace troupe::engine
