#include "balancer/microbatches/portfolio.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "balancer/microbatches/hierarchical.hpp"
#include "balancer/microbatches/partition.hpp"
#include "balancer/microbatches/sample_exchange.hpp"
#include "balancer/microbatches/size_search.hpp"
#include "balancer/microbatches/taper.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

namespace {

// Trades per size profile: a start near the last one's microbatches needs few, and many where both
// workloads differ in size.
const SearchBudget kTaperBudget{.evaluations_max = 200'000};
const SearchBudget kTiltBudget{.evaluations_max = 1'000'000};

// An estimate takes some nanoseconds per task, dealing samples milliseconds. Of each search for
// sizes, and of the exchange of samples.
constexpr std::int64_t kSizesPerEvaluation = 150;
constexpr std::int64_t kExchangesPerEvaluation = 300;

// In the units of `PolicyWork`: dealing a sample and trading it, at most so much per trade of the
// budget, simulating a task, an estimate and each of its tasks.
constexpr double kDealWork = 5;
constexpr double kTradeWork = 15;
constexpr double kBudgetWork = 0.1;
constexpr double kTaskWork = 10;
constexpr double kEstimateWork = 0.2;
constexpr double kEstimateBaseWork = 10;

// Parts of the samples' `tilt_of` that sizes are searched with, until so many in turn bring
// nothing: samples follow sizes of less tilt better, and a few microbatches sizes of more than the
// mean.
constexpr double kTiltShares[] = {0.3, 0.6, 0.85, 1.0, 1.15};
constexpr int kTiltsInVain = 2;
constexpr double kTiltMax = 0.6;

// One member, size profile or neighbour at a time, with the budget and the best so far.
class Portfolio {
 public:
  Portfolio(std::span<const Workload> workloads, const PolicyOptions& options)
      : workloads_(workloads), options_(options), random_(options.seed) {}

  void try_members(const std::vector<std::int64_t>& counts) {
    // The searching policies stand last in the table and are the most promising.
    for (auto policy = policies().rbegin(); policy != policies().rend(); ++policy)
      for (const auto count : counts)
        if (policy->name != "auto" && evaluations_ < std::max<std::int64_t>(1, evaluations_max()))
          try_member(*policy, count);
  }

  void search_profiles() {
    if (!best_ || !budget_left()) return;
    scaled_ = equally_binding(workloads_);
    SizeSearchOptions search{.count = options_.microbatches,
                             .pipeline_stages = options_.pipeline_stages,
                             .seed = options_.seed,
                             .trials_max = 0,
                             .tilt = 0,
                             .start = {}};
    if (options_.estimate) {
      search_tilts(search);
      if (!dealt_.empty()) return exchange();
    }
    search.tilt = 0.5 * tilt_of(scaled_);
    search.trials_max = evaluations_max() - evaluations_;
    search_sizes(search, [&](std::span<const Workload> sizes) -> std::optional<double> {
      return budget_left() ? std::optional(deal(sizes, kTaperBudget)) : std::nullopt;
    });
  }

  void local_search() {
    while (best_ && budget_left()) {
      work_ += deal_work(kTaperBudget);
      auto neighbour = mutate(best_->plan);
      if (!neighbour) return;
      offer(std::move(*neighbour), best_->policy);
    }
  }

  std::optional<PortfolioChoice> finish() {
    if (!best_) return std::nullopt;
    best_->evaluations = evaluations_;
    best_->work = work_;
    best_->left_out = left_out_;
    return std::move(best_);
  }

 private:
  struct EstimatedSizes {
    std::vector<Workload> sizes;
    double score = HUGE_VAL;
  };

  // Sizes by the estimate, of ever more tilt, dealt. The score has many hollows: each search starts
  // once from the last sizes and once anew.
  void search_tilts(SizeSearchOptions search) {
    const double tilt = tilt_of(scaled_);
    double least = HUGE_VAL;
    int in_vain = 0;
    for (const double share : kTiltShares) {
      const bool left_for_exchange = evaluations_ + 2 <= evaluations_max();
      if (!left_for_exchange || work_ + deal_work(kTiltBudget) > options_.work_max) return;
      search.tilt = share * tilt;
      auto found = estimated_sizes(search);
      if (!search.start.empty()) {
        search.start.clear();
        if (auto anew = estimated_sizes(search); anew.score < found.score) found = std::move(anew);
      }
      if (found.sizes.empty()) return;
      const double score = deal(found.sizes, kTiltBudget);
      search.start = std::move(found.sizes);
      if (score >= least && ++in_vain == kTiltsInVain) return;
      if (score < least) in_vain = 0;
      least = std::min(least, score);
    }
  }

  // Samples of the best sizes' microbatches, which follow these nearly, change places.
  void exchange() {
    const ExchangeOptions exchanges{.seed = options_.seed,
                                    .trials_max = estimates_max(kExchangesPerEvaluation)};
    const double work_max = options_.work_max - costing_work(options_.microbatches);
    if (work_ > work_max) return;
    auto groups = exchange_samples(workloads_, dealt_, exchanges,
                                   [&](auto loads) { return estimate(loads, work_max); });
    work_ += costing_work(options_.microbatches);
    offer(without_deferral(std::move(groups)), tapered_name());
  }

  std::int64_t estimates_max(std::int64_t per_evaluation) const {
    return std::min(
        per_evaluation * evaluations_max(),
        static_cast<std::int64_t>(kTaskVisitsMax / std::max(1.0, tasks(options_.microbatches))));
  }

  // What these loads cost; nothing when finding out would be too much work.
  std::optional<double> estimate(std::span<const Workload> loads, double work_max) {
    const double work = kEstimateBaseWork + kEstimateWork * tasks(options_.microbatches);
    if (work_ + work > work_max) return std::nullopt;
    work_ += work;
    return options_.estimate(loads);
  }

  std::string tapered_name() const { return "tapered, K=" + std::to_string(options_.microbatches); }

  std::int64_t evaluations_max() const { return options_.evaluations_max; }
  double samples() const { return static_cast<double>(workloads_.size()); }
  double tasks(std::int64_t microbatches) const {
    return static_cast<double>(microbatches) * static_cast<double>(options_.pipeline_stages);
  }

  // Of one call of the cost function. A caller's simulates the tasks.
  double costing_work(std::int64_t microbatches) const {
    if (options_.cost && options_.costing_work > 0) return options_.costing_work;
    return samples() + (options_.cost ? kTaskWork * tasks(microbatches) : 0);
  }
  // Of dealing samples to sizes, trading and costing.
  double deal_work(const SearchBudget& trades) const {
    const auto trade_work_max = kBudgetWork * static_cast<double>(trades.evaluations_max);
    return kDealWork * samples() + std::min(kTradeWork * samples(), trade_work_max) +
           costing_work(options_.microbatches);
  }
  double member_work(const PolicyInfo& policy, std::int64_t microbatches) const {
    const auto groups = static_cast<double>(microbatches);
    const auto& [per_sample, per_group, per_both] = policy.work;
    // Where deferring has to pay, it is costed with and without.
    const double costings = options_.cost && per_group > 0 ? 3 : 1;
    return per_sample * samples() + per_group * groups + per_both * samples() * groups +
           costings * costing_work(microbatches);
  }

  // Whether another plan may be dealt and costed.
  bool budget_left() const {
    return evaluations_ < evaluations_max() && work_ + deal_work(kTaperBudget) <= options_.work_max;
  }

  void try_member(const PolicyInfo& policy, std::int64_t microbatches) {
    const double work = member_work(policy, microbatches);
    if (evaluations_ > 0 && work_ + work > options_.work_max / 2) {
      ++left_out_;
      return;
    }
    work_ += work;
    PolicyOptions member = options_;
    member.microbatches = microbatches;
    auto plan = assign_microbatches(policy.name, workloads_, member);
    if (plan.ok())
      offer(std::move(plan).value(), policy.name + ", K=" + std::to_string(microbatches));
  }

  // Samples dealt to microbatches of these sizes, starting from those of the best sizes so far:
  // others change little from them.
  double deal(std::span<const Workload> sizes, const SearchBudget& trades) {
    work_ += deal_work(trades);
    auto tried = dealt_.empty() ? tapered_partition(scaled_, sizes, trades)
                                : improve_partition(scaled_, dealt_, sizes, trades);
    const double cost = offer(without_deferral(tried), tapered_name());
    if (cost < dealt_cost_) {
      dealt_cost_ = cost;
      dealt_ = std::move(tried);
    }
    return cost;
  }

  // The best sizes by the caller's estimate.
  EstimatedSizes estimated_sizes(SizeSearchOptions search) {
    const auto sum = total(workloads_);
    std::vector<Workload> loads(static_cast<std::size_t>(options_.microbatches));
    search.trials_max = estimates_max(kSizesPerEvaluation);
    const double work_max = work_ + (options_.work_max - deal_work(kTiltBudget) - work_) / 2;
    EstimatedSizes found;
    found.sizes = search_sizes(search, [&](std::span<const Workload> sizes) {
      const auto all = total(sizes);
      for (std::size_t m = 0; m < loads.size(); ++m)
        loads[m] = {sum.encoder_ms * sizes[m].encoder_ms / all.encoder_ms,
                    sum.llm_ms * sizes[m].llm_ms / all.llm_ms};
      const auto score = estimate(loads, work_max);
      found.score = std::min(found.score, score.value_or(HUGE_VAL));
      return score;
    });
    return found;
  }

  // The mean difference of a sample's shares of either workload: what a few microbatches could be
  // tilted by if the others took what is left.
  static double tilt_of(std::span<const Workload> scaled) {
    double apart = 0;
    for (const auto& sample : scaled) apart += std::abs(sample.llm_ms - sample.encoder_ms);
    const auto sum = total(scaled);
    const double least = std::min(sum.encoder_ms, sum.llm_ms);
    return least > 0 ? std::min(kTiltMax, apart / least) : 0;
  }

  // The cost of the plan; infinite where it cannot run. The cheapest is kept.
  double offer(MicrobatchPlan plan, std::string policy) {
    ++evaluations_;
    const double cap = options_.llm_cap_ms.value_or(HUGE_VAL);
    if (llm_spread(group_loads(workloads_, plan.llm)).max_ms > cap) return HUGE_VAL;
    const double cost = options_.cost ? options_.cost(plan) : slot_time_ms(workloads_, plan);
    if (!std::isfinite(cost)) return HUGE_VAL;
    if (!best_ || cost < best_->cost)
      best_ = PortfolioChoice{std::move(plan), cost, std::move(policy), 0};
    return cost;
  }

  // Swaps two samples between two microbatches on both sides, or two neighbouring microbatches in
  // the order of execution.
  std::optional<MicrobatchPlan> mutate(const MicrobatchPlan& plan) {
    const auto count = plan.encoder.size();
    if (count < 2 || workloads_.size() < 2) return std::nullopt;
    auto encoder = plan.encoder;
    auto llm = plan.llm;
    if (random_.below(4) == 0) {
      const auto first = random_.below(count - 1);
      std::swap(encoder[first], encoder[first + 1]);
      std::swap(llm[first], llm[first + 1]);
    } else {
      const auto a = static_cast<std::int32_t>(random_.below(workloads_.size()));
      const auto b = static_cast<std::int32_t>(random_.below(workloads_.size()));
      exchange(encoder, a, b);
      exchange(llm, a, b);
    }
    auto changed = make_plan(std::move(encoder), std::move(llm));
    changed.pairs = plan.pairs;
    return changed;
  }

  void exchange(SampleGroups& groups, std::int32_t a, std::int32_t b) const {
    const auto of = group_of(groups, workloads_.size());
    auto& with_a = groups[static_cast<std::size_t>(of[static_cast<std::size_t>(a)])];
    auto& with_b = groups[static_cast<std::size_t>(of[static_cast<std::size_t>(b)])];
    *std::find(with_a.begin(), with_a.end(), a) = b;
    if (&with_a != &with_b) *std::find(with_b.begin(), with_b.end(), b) = a;
    if (&with_a == &with_b) *std::find(with_a.begin(), with_a.end(), b) = a;
  }

  std::span<const Workload> workloads_;
  const PolicyOptions& options_;
  Random random_;
  double work_ = 0;  // In the units of `PolicyWork`.
  std::int64_t evaluations_ = 0;
  std::int64_t left_out_ = 0;
  std::vector<Workload> scaled_;
  SampleGroups dealt_;  // The best sizes' microbatches.
  double dealt_cost_ = HUGE_VAL;
  std::optional<PortfolioChoice> best_;
};

}  // namespace

Result<PortfolioChoice> best_of_portfolio(std::span<const Workload> workloads,
                                          const PolicyOptions& options) {
  if (auto fine = check_workloads(workloads); !fine.ok()) return fine.error();
  if (auto fine = check_group_count(options.microbatches, "microbatches"); !fine.ok())
    return fine.error();
  Portfolio portfolio(workloads, options);
  const auto effective =
      effective_microbatches(workloads, options.microbatches, options.shared_microbatches);
  std::vector<std::int64_t> counts{options.microbatches};
  for (const auto count : {effective, (effective + options.microbatches) / 2})
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  portfolio.try_members(counts);
  if (options.microbatches > 1) {
    portfolio.search_profiles();
  } else {
    portfolio.local_search();
  }
  if (auto best = portfolio.finish()) return std::move(*best);
  return Error{Errc::infeasible, "no policy has a plan within the cap that the cost function takes",
               "balancer.policy", "use more microbatches or raise the cap"};
}

double slot_time_ms(std::span<const Workload> workloads, const MicrobatchPlan& plan) {
  const auto sum = total(workloads);
  const double mean = (sum.encoder_ms + sum.llm_ms) / 2;
  const double encoder_scale = sum.encoder_ms > 0 ? mean / sum.encoder_ms : 0;
  const double llm_scale = sum.llm_ms > 0 ? mean / sum.llm_ms : 0;
  const auto encoder_of = group_of(plan.encoder, workloads.size());
  std::vector<double> slots;
  for (const auto& load : group_loads(workloads, plan.encoder))
    slots.push_back(load.encoder_ms * encoder_scale);
  const auto llm_loads = group_loads(workloads, plan.llm);
  std::size_t slot = 0;
  for (std::size_t m = 0; m < plan.llm.size(); ++m) {
    for (const auto sample : plan.llm[m])
      slot = std::max(slot,
                      static_cast<std::size_t>(encoder_of[static_cast<std::size_t>(sample)] + 1));
    if (slot >= slots.size()) slots.resize(slot + 1, 0);
    slots[slot] = std::max(slots[slot], llm_loads[m].llm_ms * llm_scale);
    ++slot;
  }
  return std::accumulate(slots.begin(), slots.end(), 0.0);
}

}  // namespace troupe::balancer
