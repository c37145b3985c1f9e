#include "engine/iteration/phase_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "engine/iteration/near_replicas.hpp"
#include "runtime/vocabulary/index.hpp"

namespace troupe::engine {

namespace {

/// The node that a replica's last stage is on, which hands rows on; and the one of the llm's stage
/// that takes them.
NodeId made_on(const ParallelPlan& plan, ReplicaId replica) {
  return plan.node_of(plan.at(replica).stages.back());
}
NodeId wanted_on(const ParallelPlan& plan, ModuleGroupId group, ReplicaId llm) {
  const auto& modules = plan.module_groups[group.index()].modules;
  const bool is_teacher = std::ranges::all_of(
      modules, [&](ModuleId module) { return plan.model.at(module).kind == ModuleKind::teacher; });
  const auto& stages = plan.at(llm).stages;
  return plan.node_of(is_teacher ? stages.back() : stages.front());
}

/// One sample of a round or piece of one, and where the llm wants it.
struct Placed {
  std::int32_t sample = 0;
  std::size_t cut = 0;         ///< Of which llm replica.
  std::size_t microbatch = 0;  ///< Of that replica.
  double work = 0;
};

// How much later the last replica of a round may end for rows that stay on their node.
constexpr double kWorthStaying = 1.01;

// Changes that are looked at per round for it: a few milliseconds.
constexpr std::int64_t kLooksMax = 200'000;

std::vector<double> speeds_of(const PhaseWork& work) {
  std::vector<double> speeds;
  for (const double share : work.shares) speeds.push_back(1 / share);
  return speeds;
}

/// Spreads the rounds of one group over its replicas.
class Spreader {
 public:
  Spreader(const ParallelPlan& plan, ModuleGroupId group, std::span<const LlmCut> cuts,
           const PhaseWork& work, bool splits_parts, bool in_pieces)
      : cuts_(cuts),
        work_(work),
        splits_parts_(splits_parts),
        in_pieces_(in_pieces),
        loads_(speeds_of(work)),
        lists_(work.shares.size()),
        slices_((cuts.size() + lists_.size() - 1) / lists_.size()) {
    std::map<NodeId, std::size_t> nodes;
    for (const LlmCut& own : cuts_)
      node_.push_back(
          nodes.try_emplace(wanted_on(plan, group, own.llm), nodes.size()).first->second);
    near_.resize(nodes.size());
    const auto replicas = replicas_of(plan, group);
    for (std::size_t r = 0; r < replicas.size(); ++r)
      if (const auto found = nodes.find(made_on(plan, replicas[r])); found != nodes.end())
        near_[found->second].push_back(r);
    llm_microbatch_.resize(work.samples.size());
    for (const LlmCut& own : cuts_)
      for (std::size_t m = 0; m < own.cut.llm.size(); ++m)
        for (const Part& part : own.cut.llm[m].parts)
          for (const auto sample : part.samples) llm_microbatch_[at(sample)] = m;
  }

  std::vector<MicrobatchList> run() {
    std::size_t rounds = 0;
    for (const LlmCut& own : cuts_) rounds = std::max(rounds, own.cut.encoder.size());
    for (std::size_t round = 0; round < rounds; ++round) {
      auto shares = share_out(samples_of(round));
      for (std::size_t r = 0; r < shares.size(); ++r) append(std::move(shares[r]), lists_[r]);
    }
    return std::move(lists_);
  }

 private:
  /// In the order of llm replicas, each one's as they were cut.
  std::vector<Placed> samples_of(std::size_t round) const {
    std::vector<Placed> found;
    for (std::size_t c = 0; c < cuts_.size(); ++c) {
      const MicrobatchList& list = cuts_[c].cut.encoder;
      if (round >= list.size()) continue;
      for (const Part& part : list[round].parts)
        for (const auto sample : part.samples) {
          const std::size_t microbatch = llm_microbatch_[at(sample)];
          const auto cut = work_.cut.find(sample);
          if (!in_pieces_ || cut == work_.cut.end()) {
            found.push_back({sample, c, microbatch, work_.work_of(at(sample))});
            continue;
          }
          for (const auto piece : cut->second)
            found.push_back({piece, c, microbatch, work_.work_of(at(piece))});
        }
    }
    return found;
  }

  /// Per replica its samples, in the order of `round`.
  std::vector<std::vector<Placed>> share_out(const std::vector<Placed>& round) {
    std::vector<std::size_t> order;
    for (std::size_t place = 0; place < round.size(); ++place)
      if (round[place].work > 0) order.push_back(place);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return round[a].work > round[b].work; });
    std::vector<WantedSample> samples;
    for (const std::size_t place : order)
      samples.push_back(
          {round[place].work, node_[round[place].cut], work_.rows_of(at(round[place].sample))});
    const auto chosen = deal(samples);
    // Who has no media waits for nobody, so it may stand anywhere; here, with its llm replica's
    // neighbours.
    std::vector<std::size_t> replica;
    for (const Placed& sample : round) replica.push_back(sample.cut % lists_.size());
    for (std::size_t i = 0; i < order.size(); ++i) replica[order[i]] = chosen[i];
    std::vector<std::vector<Placed>> shares(lists_.size());
    for (std::size_t place = 0; place < round.size(); ++place)
      shares[replica[place]].push_back(round[place]);
    return shares;
  }

  /// Where samples go, by descending work: as many rows where they are wanted as are found while
  /// the last replica ends about as soon as if it did not matter where they go.
  std::vector<std::size_t> deal(const std::vector<WantedSample>& samples) {
    auto plain = loads_;
    std::vector<std::size_t> chosen;
    for (const WantedSample& sample : samples) {
      chosen.push_back(plain.find(sample.work));
      plain.add(chosen.back(), sample.work);
    }
    double end = 0;
    for (std::size_t r = 0; r < plain.size(); ++r) end = std::max(end, plain.end(r));
    end *= kWorthStaying;
    auto kept = loads_;
    if (auto near = keep_near(samples, near_, end, kept)) chosen = std::move(*near);
    draw_near(samples, near_, end, loads_, kLooksMax, chosen);
    for (std::size_t s = 0; s < samples.size(); ++s) loads_.add(chosen[s], samples[s].work);
    return chosen;
  }

  /// Cuts a replica's share of a round into `slices_` microbatches of about as much work.
  void append(std::vector<Placed> share, MicrobatchList& list) const {
    double total = 0;
    for (const Placed& sample : share) total += sample.work;
    std::vector<std::vector<Placed>> slices(slices_);
    double before = 0;
    for (const Placed& sample : share) {
      const double middle = before + sample.work / 2;
      const auto slice =
          total > 0 ? static_cast<std::size_t>(middle / total * static_cast<double>(slices_)) : 0;
      slices[std::min(slice, slices_ - 1)].push_back(sample);
      before += sample.work;
    }
    for (const auto& slice : slices)
      if (!slice.empty()) list.push_back(microbatch_of(slice));
  }

  Microbatch microbatch_of(const std::vector<Placed>& slice) const {
    std::map<std::pair<std::size_t, std::size_t>, Part> parts;  // By llm microbatch, then replica.
    Part idle;
    for (const Placed& sample : slice) {
      const bool apart = splits_parts_ && sample.work > 0;
      Part& part = !splits_parts_ ? parts[{0, 0}]
                   : apart        ? parts[{sample.microbatch, sample.cut}]
                                  : idle;
      part.samples.push_back(sample.sample);
    }
    Microbatch made;
    for (auto& [where, part] : parts) made.parts.push_back(std::move(part));
    if (made.parts.empty()) made.parts.emplace_back();
    auto& first = made.parts.front().samples;
    first.insert(first.end(), idle.samples.begin(), idle.samples.end());
    return made;
  }

  std::span<const LlmCut> cuts_;
  const PhaseWork& work_;
  const bool splits_parts_, in_pieces_;
  balancer::FirstToFinish<double> loads_;  ///< Work of all rounds so far.
  std::vector<MicrobatchList> lists_;
  std::size_t slices_;                       ///< Microbatches that a share of a round becomes.
  std::vector<std::size_t> llm_microbatch_;  ///< Per sample.
  std::vector<std::size_t> node_;            ///< Per cut, where its llm wants rows; numbered here.
  std::vector<std::vector<std::size_t>> near_;  ///< Per such node, the group's replicas there.
};

template <class Visit>
void for_each_sample(const MicrobatchList& list, Visit visit) {
  for (const Microbatch& microbatch : list)
    for (const Part& part : microbatch.parts)
      for (const auto sample : part.samples) visit(at(sample));
}

double load_of(const MicrobatchList& list, const PhaseWork& work) {
  double sum = 0;
  for_each_sample(list, [&](std::size_t unit) { sum += work.work_of(unit); });
  return sum;
}

/// The least rows that leave a node which keeps `room` of the work of these samples, were they
/// divisible: those with the fewest rows for their work. REQUIRES: all have some.
double rows_beyond(std::vector<std::size_t>& samples, double room, const PhaseWork& work) {
  double excess = -room;
  for (const std::size_t s : samples) excess += work.work_of(s);
  std::sort(samples.begin(), samples.end(), [&](std::size_t a, std::size_t b) {
    return work.rows_of(a) * work.work_of(b) < work.rows_of(b) * work.work_of(a);
  });
  double rows = 0;
  for (const std::size_t s : samples) {
    if (!(excess > 0)) break;
    const double part = std::min(1.0, excess / work.work_of(s));
    rows += part * work.rows_of(s);
    excess -= part * work.work_of(s);
  }
  return rows;
}

}  // namespace

std::vector<ReplicaId> replicas_of(const ParallelPlan& plan, ModuleGroupId group) {
  std::vector<ReplicaId> found;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    if (plan.replicas[r].group == group) found.emplace_back(r);
  return found;
}

std::vector<MicrobatchList> spread_phase(const ParallelPlan& plan, ModuleGroupId group,
                                         std::span<const LlmCut> cuts, const PhaseWork& work,
                                         bool splits_parts, bool in_pieces) {
  if (cuts.empty()) return std::vector<MicrobatchList>(replicas_of(plan, group).size());
  return Spreader(plan, group, cuts, work, splits_parts, in_pieces).run();
}

double largest_load(std::span<const MicrobatchList> lists, const PhaseWork& work) {
  double largest = 0;
  for (std::size_t r = 0; r < lists.size(); ++r)
    largest = std::max(largest, load_of(lists[r], work) * work.shares[r]);
  return largest;
}

double even_load(const PhaseWork& work) {
  double total = 0, speeds = 0;
  for (const double sample : work.samples) total += sample;
  for (const double share : work.shares) speeds += 1 / share;
  return total / speeds;
}

FarRows far_rows(const ParallelPlan& plan, ModuleGroupId group,
                 std::span<const MicrobatchList> microbatches, const PhaseWork& work) {
  FarRows found;
  if (group.index() + 1 == plan.module_groups.size()) return found;
  std::vector<NodeId> wanted(work.samples.size() + work.piece_work.size());
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    if (plan.is_llm(ReplicaId{r}))
      for_each_sample(microbatches[r],
                      [&](std::size_t s) { wanted[s] = wanted_on(plan, group, ReplicaId{r}); });
  for (const auto& [sample, pieces] : work.cut)
    for (const auto piece : pieces) wanted[at(piece)] = wanted[at(sample)];
  std::map<NodeId, double> room;  // Work that a node's replicas do in an even phase.
  std::map<NodeId, std::vector<std::size_t>> wanting;
  double total = 0, speeds = 0, rows = 0, far = 0;
  const auto replicas = replicas_of(plan, group);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    room[made_on(plan, replicas[i])] += 1 / work.shares[i];
    speeds += 1 / work.shares[i];
    for_each_sample(microbatches[replicas[i].index()], [&](std::size_t s) {
      if (!(work.work_of(s) > 0)) return;
      total += work.work_of(s);
      rows += work.rows_of(s);
      if (wanted[s] != made_on(plan, replicas[i])) far += work.rows_of(s);
      wanting[wanted[s]].push_back(s);
    });
  }
  if (!(rows > 0)) return found;
  double least = 0;
  for (auto& [node, samples] : wanting)
    least += rows_beyond(samples, room[node] / speeds * total, work);
  return {far / rows, least / rows};
}

PhaseBalance phase_balance(const ParallelPlan& plan, ModuleGroupId group,
                           std::span<const MicrobatchList> microbatches, const PhaseWork& work) {
  const auto replicas = replicas_of(plan, group);
  double dealt = 0, largest = 0, speeds = 0;
  for (const double share : work.shares) speeds += 1 / share;
  std::vector<MicrobatchList> own;
  for (const ReplicaId replica : replicas) own.push_back(microbatches[replica.index()]);
  for (const MicrobatchList& list : own)
    for_each_sample(list, [&](std::size_t unit) {
      dealt += work.work_of(unit);
      largest = std::max(largest, work.work_of(unit));
    });
  if (!(dealt > 0)) return {};
  // Pieces need not take as much together as their sample.
  const double mean = dealt / speeds;
  double drawn = 0;
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const std::size_t begin = r * work.samples.size() / replicas.size();
    const std::size_t end = (r + 1) * work.samples.size() / replicas.size();
    double sum = 0;
    for (std::size_t s = begin; s < end; ++s) sum += work.samples[s];
    drawn = std::max(drawn, sum * work.shares[r]);
  }
  const double fastest = *std::min_element(work.shares.begin(), work.shares.end());
  return {drawn / even_load(work), largest_load(own, work) / mean,
          std::max(1.0, largest * fastest / mean)};
}

}  // namespace troupe::engine
