#include "balancer/microbatches/partition_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "balancer/microbatches/partition.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

namespace {

constexpr std::size_t kSubsetItems = 22;   // Samples of a bucket that take part in subsets.
constexpr std::size_t kTripleItems = 8;    // Buckets this small also trade triples.
constexpr std::size_t kPartnersFirst = 4;  // Partners tried before the bucket counts as stuck.
constexpr std::size_t kPartnersMax = 64;
constexpr int kSubsetSizeMax = 3;
constexpr std::size_t kCachedMax = 16384;  // Subset lists kept, of about 8 KiB each.

// Up to three samples of one bucket, and their work.
struct Subset {
  double encoder_ms = 0;
  double llm_ms = 0;
  std::int32_t samples[3] = {-1, -1, -1};
};

struct Trade {
  const Subset* give = nullptr;
  const Subset* take = nullptr;
  double largest = 0;  // Of both buckets after it.
};

class Search {
 public:
  Search(std::span<const Workload> workloads, SampleGroups buckets,
         std::span<const Workload> speeds, const SearchBudget& budget)
      : workloads_(workloads),
        buckets_(std::move(buckets)),
        pace_(buckets_.size(), {1, 1}),
        loads_(group_loads(workloads, buckets_)),
        subsets_(buckets_.size()),
        budget_(budget) {
    for (std::size_t b = 0; b < speeds.size(); ++b)
      pace_[b] = {1 / speeds[b].encoder_ms, 1 / speeds[b].llm_ms};
  }

  SampleGroups run() {
    if (buckets_.size() < 2) return std::move(buckets_);
    while (evaluations_ < budget_.evaluations_max) {
      if (budget_.keep_going && !budget_.keep_going()) break;
      if (improve(most_loaded())) continue;
      if (++subset_size_ > kSubsetSizeMax) break;
      forget_subsets();
    }
    for (auto& bucket : buckets_) std::sort(bucket.begin(), bucket.end());
    return std::move(buckets_);
  }

 private:
  static double time(const Workload& work, const Workload& pace) {
    return std::max(work.encoder_ms * pace.encoder_ms, work.llm_ms * pace.llm_ms);
  }

  double load(std::size_t bucket) const { return time(loads_[bucket], pace_[bucket]); }

  std::size_t most_loaded() const {
    std::size_t most = 0;
    for (std::size_t b = 1; b < buckets_.size(); ++b)
      if (load(b) > load(most)) most = b;
    return most;
  }

  // Trades with the partners in order of promise; keeps the first few's best.
  bool improve(std::size_t bucket) {
    if (cached_ > kCachedMax) forget_subsets();
    rank_partners(bucket);
    const double before = load(bucket);
    for (std::size_t i = 0; i < partners_.size();) {
      Trade best{nullptr, nullptr, before * (1 - 1e-9)};
      std::size_t partner = 0;
      const std::size_t end = std::min(partners_.size(), i + kPartnersFirst);
      for (; i < end; ++i)
        if (find_trade(bucket, partners_[i].second, best)) partner = partners_[i].second;
      if (best.give) return apply(bucket, partner, best), true;
      if (evaluations_ >= budget_.evaluations_max) return false;
    }
    return false;
  }

  // The load that a perfect split with a partner would leave, least first.
  void rank_partners(std::size_t bucket) {
    evaluations_ += static_cast<std::int64_t>(buckets_.size() / 8);  // About what this costs.
    partners_.clear();
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (b == bucket) continue;
      const auto& here = pace_[bucket];
      const auto& there = pace_[b];
      const double encoder = (loads_[bucket].encoder_ms + loads_[b].encoder_ms) /
                             (1 / here.encoder_ms + 1 / there.encoder_ms);
      const double llm =
          (loads_[bucket].llm_ms + loads_[b].llm_ms) / (1 / here.llm_ms + 1 / there.llm_ms);
      partners_.emplace_back(std::max(encoder, llm), b);
    }
    const std::size_t kept = std::min(kPartnersMax, partners_.size());
    std::partial_sort(partners_.begin(), partners_.begin() + static_cast<std::ptrdiff_t>(kept),
                      partners_.end());
    partners_.resize(kept);
  }

  // Improves `best` with a trade between these two buckets, if there is one below best.largest.
  bool find_trade(std::size_t from, std::size_t to, Trade& best) {
    const auto& gives = subsets(from);
    const auto& takes = subsets(to);
    const Workload a = loads_[from];
    const Workload b = loads_[to];
    const Workload here = pace_[from];
    const Workload there = pace_[to];
    bool found = false;
    std::size_t first = 0;
    for (const auto& give : gives) {
      // Both buckets stay below the best so far when the encoder work moved lies in this window.
      const double low = a.encoder_ms - best.largest / here.encoder_ms;
      const double high = best.largest / there.encoder_ms - b.encoder_ms;
      while (first < takes.size() && give.encoder_ms - takes[first].encoder_ms >= high) ++first;
      for (std::size_t t = first; t < takes.size(); ++t) {
        ++evaluations_;
        const double moved = give.encoder_ms - takes[t].encoder_ms;
        if (moved <= low) break;
        const double moved_llm = give.llm_ms - takes[t].llm_ms;
        const double largest = std::max(time({a.encoder_ms - moved, a.llm_ms - moved_llm}, here),
                                        time({b.encoder_ms + moved, b.llm_ms + moved_llm}, there));
        if (largest >= best.largest) continue;
        best = {&give, &takes[t], largest};
        found = true;
      }
    }
    return found;
  }

  // Subsets of a bucket by ascending encoder work; kept until the bucket changes.
  const std::vector<Subset>& subsets(std::size_t bucket) {
    auto& list = subsets_[bucket];
    if (!list.empty()) return list;
    evaluations_ += kSubsetItems;
    ++cached_;
    const auto samples = chosen_samples(buckets_[bucket]);
    list.push_back({});
    const std::size_t count = samples.size();
    for (std::size_t i = 0; i < count; ++i) {
      append(list, {samples[i]});
      for (std::size_t j = i + 1; j < count && subset_size_ >= 2; ++j) {
        append(list, {samples[i], samples[j]});
        for (std::size_t k = j + 1; k < count && subset_size_ >= 3 && count <= kTripleItems; ++k)
          append(list, {samples[i], samples[j], samples[k]});
      }
    }
    std::sort(list.begin(), list.end(),
              [](const Subset& x, const Subset& y) { return x.encoder_ms < y.encoder_ms; });
    return list;
  }

  void append(std::vector<Subset>& list, std::initializer_list<std::int32_t> samples) const {
    Subset subset;
    std::size_t count = 0;
    for (const auto sample : samples) {
      subset.encoder_ms += workloads_[static_cast<std::size_t>(sample)].encoder_ms;
      subset.llm_ms += workloads_[static_cast<std::size_t>(sample)].llm_ms;
      subset.samples[count++] = sample;
    }
    list.push_back(subset);
  }

  // Also bounds the memory where there are very many buckets.
  void forget_subsets() {
    for (auto& list : subsets_) std::vector<Subset>().swap(list);
    cached_ = 0;
  }

  // All samples of a small bucket; of a large one a few, others each time it is asked.
  std::vector<std::int32_t> chosen_samples(const std::vector<std::int32_t>& bucket) {
    if (bucket.size() <= kSubsetItems) return bucket;
    std::vector<std::int32_t> samples;
    for (std::size_t i = 0; i < kSubsetItems; ++i)
      samples.push_back(bucket[random_.below(bucket.size())]);
    std::sort(samples.begin(), samples.end());
    samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
    return samples;
  }

  void apply(std::size_t from, std::size_t to, const Trade& trade) {
    move(from, to, *trade.give);
    move(to, from, *trade.take);
    subsets_[from].clear();
    subsets_[to].clear();
  }

  void move(std::size_t from, std::size_t to, const Subset& subset) {
    for (const auto sample : subset.samples) {
      if (sample < 0) break;
      auto& source = buckets_[from];
      *std::find(source.begin(), source.end(), sample) = source.back();
      source.pop_back();
      buckets_[to].push_back(sample);
      loads_[from] -= workloads_[static_cast<std::size_t>(sample)];
      loads_[to] += workloads_[static_cast<std::size_t>(sample)];
    }
  }

  std::span<const Workload> workloads_;
  SampleGroups buckets_;
  std::vector<Workload> pace_;  // Milliseconds per unit of work.
  std::vector<Workload> loads_;
  std::vector<std::vector<Subset>> subsets_;
  std::size_t cached_ = 0;
  std::vector<std::pair<double, std::size_t>> partners_;
  int subset_size_ = 1;  // Single samples first: cheap, and enough far from the optimum.
  Random random_{1};
  const SearchBudget& budget_;
  std::int64_t evaluations_ = 0;
};

}  // namespace

SampleGroups improve_partition(std::span<const Workload> workloads, SampleGroups buckets,
                               std::span<const Workload> speeds, const SearchBudget& budget) {
  return Search(workloads, std::move(buckets), speeds, budget).run();
}

SampleGroups partition_search(std::span<const Workload> workloads, std::int64_t bucket_count,
                              const SearchBudget& budget) {
  return improve_partition(workloads, partition_lpt(workloads, bucket_count), {}, budget);
}

}  // namespace troupe::balancer
