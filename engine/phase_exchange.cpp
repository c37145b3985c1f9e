#include "engine/phase_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "balancer/load_tree.hpp"

namespace troupe::engine {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

/// One sample of a round, and where the llm wants it.
struct Placed {
  std::int32_t sample = 0;
  std::size_t cut = 0;         ///< Of which llm replica.
  std::size_t microbatch = 0;  ///< Of that replica.
  double work = 0;
};

/// Who ends first with one more sample: a tree of loads for each speed that replicas have.
class LeastLoaded {
 public:
  explicit LeastLoaded(const std::vector<double>& shares) {
    std::map<double, std::vector<std::size_t>> alike;
    for (std::size_t r = 0; r < shares.size(); ++r) alike[shares[r]].push_back(r);
    for (auto& [share, replicas] : alike) {
      balancer::LoadTree<double> loads(replicas.size());
      kinds_.push_back({share, std::move(replicas), std::move(loads)});
    }
  }

  /// Adds the sample to that replica and names it; of equal ones the lower.
  std::size_t add(double work) {
    Kind* best = nullptr;
    std::pair<double, std::size_t> best_end;
    for (Kind& kind : kinds_) {
      const std::size_t place = kind.loads.least();
      const std::pair end{(kind.loads.key(place) + work) * kind.share, kind.replicas[place]};
      if (best == nullptr || end < best_end) best = &kind, best_end = end;
    }
    const std::size_t place = best->loads.least();
    best->loads.set(place, best->loads.key(place) + work);
    return best_end.second;
  }

 private:
  struct Kind {
    double share = 1;
    std::vector<std::size_t> replicas;  ///< Ascending.
    balancer::LoadTree<double> loads;
  };
  std::vector<Kind> kinds_;
};

/// Spreads the rounds of one group over its replicas.
class Spreader {
 public:
  Spreader(std::span<const LlmCut> cuts, const PhaseWork& work, bool splits_parts)
      : cuts_(cuts),
        work_(work),
        splits_parts_(splits_parts),
        loads_(work.shares),
        lists_(work.shares.size()),
        pieces_((cuts.size() + lists_.size() - 1) / lists_.size()) {
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
        for (const auto sample : part.samples)
          found.push_back({sample, c, llm_microbatch_[at(sample)], work_.samples[at(sample)]});
    }
    return found;
  }

  /// Per replica its samples, in the order of `round`.
  std::vector<std::vector<Placed>> share_out(const std::vector<Placed>& round) {
    std::vector<std::size_t> order(round.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return round[a].work > round[b].work; });
    std::vector<std::size_t> replica(round.size());
    for (const std::size_t place : order) {
      const double work = round[place].work;
      // Who has no media waits for nobody, so it may stand anywhere; here, with its llm replica's
      // neighbours.
      replica[place] = work > 0 ? loads_.add(work) : round[place].cut % lists_.size();
    }
    std::vector<std::vector<Placed>> shares(lists_.size());
    for (std::size_t place = 0; place < round.size(); ++place)
      shares[replica[place]].push_back(round[place]);
    return shares;
  }

  /// Cuts a replica's share of a round into `pieces_` microbatches of about as much work.
  void append(std::vector<Placed> share, MicrobatchList& list) const {
    double total = 0;
    for (const Placed& sample : share) total += sample.work;
    std::vector<std::vector<Placed>> pieces(pieces_);
    double before = 0;
    for (const Placed& sample : share) {
      const double middle = before + sample.work / 2;
      const auto piece =
          total > 0 ? static_cast<std::size_t>(middle / total * static_cast<double>(pieces_)) : 0;
      pieces[std::min(piece, pieces_ - 1)].push_back(sample);
      before += sample.work;
    }
    for (const auto& piece : pieces)
      if (!piece.empty()) list.push_back(microbatch_of(piece));
  }

  Microbatch microbatch_of(const std::vector<Placed>& piece) const {
    std::map<std::pair<std::size_t, std::size_t>, Part> parts;  // By llm microbatch, then replica.
    Part idle;
    for (const Placed& sample : piece) {
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
  const bool splits_parts_;
  LeastLoaded loads_;  ///< Work of all rounds so far.
  std::vector<MicrobatchList> lists_;
  std::size_t pieces_;
  std::vector<std::size_t> llm_microbatch_;  ///< Per sample.
};

double load_of(const MicrobatchList& list, const PhaseWork& work) {
  double sum = 0;
  for (const Microbatch& microbatch : list)
    for (const Part& part : microbatch.parts)
      for (const auto sample : part.samples) sum += work.samples[at(sample)];
  return sum;
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
                                         bool splits_parts) {
  if (cuts.empty()) return std::vector<MicrobatchList>(replicas_of(plan, group).size());
  return Spreader(cuts, work, splits_parts).run();
}

double largest_load(std::span<const MicrobatchList> lists, const PhaseWork& work) {
  double largest = 0;
  for (std::size_t r = 0; r < lists.size(); ++r)
    largest = std::max(largest, load_of(lists[r], work) * work.shares[r]);
  return largest;
}

PhaseBalance phase_balance(const ParallelPlan& plan, ModuleGroupId group,
                           std::span<const MicrobatchList> microbatches, const PhaseWork& work) {
  const auto replicas = replicas_of(plan, group);
  double total = 0, largest = 0, speeds = 0;
  for (const double sample : work.samples) total += sample, largest = std::max(largest, sample);
  for (const double share : work.shares) speeds += 1 / share;
  if (!(total > 0)) return {};
  const double mean = total / speeds;
  std::vector<MicrobatchList> own;
  for (const ReplicaId replica : replicas) own.push_back(microbatches[replica.index()]);
  double drawn = 0;
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const std::size_t begin = r * work.samples.size() / replicas.size();
    const std::size_t end = (r + 1) * work.samples.size() / replicas.size();
    double sum = 0;
    for (std::size_t s = begin; s < end; ++s) sum += work.samples[s];
    drawn = std::max(drawn, sum * work.shares[r]);
  }
  const double fastest = *std::min_element(work.shares.begin(), work.shares.end());
  return {drawn / mean, largest_load(own, work) / mean, std::max(1.0, largest * fastest / mean)};
}

}  // namespace troupe::engine
