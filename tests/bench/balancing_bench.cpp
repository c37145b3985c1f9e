// Speed and quality of the balancing library on one core.
//
//   balancing_bench [--tables] | --steps "1f1b, 3 + 5 stages" | --small
//
// Prints JSON lines {"measure", "value", "unit", "bound", "size"}; times are processor time.

#include <malloc.h>

#include <cmath>
#include <functional>
#include <string_view>

#include "balancer/loads/distributions.hpp"
#include "balancer/microbatches/hierarchical.hpp"
#include "balancer/microbatches/partition.hpp"
#include "balancer/microbatches/partition_ilp.hpp"
#include "balancer/microbatches/partition_search.hpp"
#include "balancer/ranks/node_wise.hpp"
#include "balancer/ranks/post_balance.hpp"
#include "balancer/tokens/token_blocks.hpp"
#include "runtime/vocabulary/random.hpp"
#include "tests/bench/balancing_small.hpp"
#include "tests/bench/balancing_steps.hpp"
#include "tests/bench/balancing_tables.hpp"
#include "tests/bench/measure.hpp"

namespace troupe::bench {
namespace {

using namespace balancer;

std::optional<double> bound_if(bool stated, double bound) {
  return stated ? std::optional(bound) : std::nullopt;
}

void deferral() {
  for (const int microbatches : {8, 16, 32, 64, 128}) {
    const auto samples =
        generate_workloads(Distribution::charts, static_cast<std::size_t>(16 * microbatches), 1);
    const double ms =
        cpu_ms([&] { (void)assign_hierarchical(samples, {.microbatches = microbatches}); });
    print("deferral.plan_ms", ms, "ms", bound_if(microbatches == 32, 5),
          "batch " + std::to_string(samples.size()) + ", K " + std::to_string(microbatches));
  }
}

std::vector<Workload> equally_binding(std::size_t count, std::uint64_t seed, double sigma) {
  Random random(seed);
  std::vector<Workload> samples(count);
  for (auto& sample : samples) {
    sample.encoder_ms = random.log_normal(1, sigma);
    sample.llm_ms = random.log_normal(1, sigma);
  }
  const auto sum = total(samples);
  for (auto& sample : samples) sample.llm_ms *= sum.encoder_ms / sum.llm_ms;
  return samples;
}

double gap_percent(const std::vector<Workload>& samples, const SampleGroups& buckets) {
  const auto count = static_cast<std::int64_t>(buckets.size());
  return 100 * (largest_sum(samples, buckets) / partition_lower_bound(samples, count) - 1);
}

// The gap a search reaches within so much processor time, the worst of five seeds.
double worst_gap(double limit_ms, double sigma) {
  double worst = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto samples = equally_binding(2048, seed, sigma);
    const auto begin = std::clock();
    const SearchBudget budget{INT64_MAX, [&] {
                                return 1000.0 * static_cast<double>(std::clock() - begin) <
                                       limit_ms * CLOCKS_PER_SEC;
                              }};
    worst = std::max(worst, gap_percent(samples, partition_search(samples, 128, budget)));
  }
  return worst;
}

void partitions() {
  for (const double sigma : {0.3, 0.6}) {
    const std::string size =
        "2048 samples, 128 buckets, sigma " + std::to_string(sigma).substr(0, 3);
    const auto samples = equally_binding(2048, 0, sigma);
    print("partition.lpt_gap", gap_percent(samples, partition_lpt(samples, 128)), "%", {}, size);
    print("partition.gap_in_10_ms", worst_gap(10, sigma), "%", 0.2, size);
    print("partition.gap_in_100_ms", worst_gap(100, sigma), "%", 0.1, size);
  }
  for (const std::size_t buckets : {32, 128, 512, 2048}) {
    const auto samples = equally_binding(16 * buckets, 1, 0.6);
    const auto count = static_cast<std::int64_t>(buckets);
    const std::string size =
        std::to_string(samples.size()) + " samples, " + std::to_string(buckets) + " buckets";
    SampleGroups found;
    const double ms = cpu_ms([&] { found = partition_search(samples, count); }, 3);
    print("partition.search_ms", ms, "ms", {}, size);
    print("partition.search_gap", gap_percent(samples, found), "%", {}, size);
  }
}

RankLengths rank_lengths(std::size_t ranks, std::size_t items, std::uint64_t seed, double median,
                         double sigma) {
  Random random(seed);
  RankLengths lengths(ranks, std::vector<std::int64_t>(items));
  for (auto& rank : lengths)
    for (auto& length : rank)
      length = std::llround(std::clamp(random.log_normal(median, sigma), 1.0, 16384.0));
  return lengths;
}

struct Phase {
  const char* name;
  RankLengths lengths;
  PostBalanceOptions options;
};

std::vector<Phase> phases(std::size_t ranks) {
  return {{"vision", rank_lengths(ranks, 80, 1, 600, 0.6), {}},
          {"audio", rank_lengths(ranks, 80, 2, 200, 0.7), {.algorithm = PostBalance::padding}},
          {"llm", rank_lengths(ranks, 80, 3, 900, 0.8), {}}};
}

Rearrangement balance(const Phase& phase) {
  auto balanced = post_balance(phase.lengths, phase.options).value();
  const auto placed = assign_node_wise(balanced, 8).value();
  return balanced.rearrangement.permuted(placed.rank_of_batch);
}

void post_balancing() {
  for (const std::size_t ranks : {64, 256, 1024, 2560}) {
    const auto all = phases(ranks);
    const std::string size = std::to_string(ranks) + " ranks x 80 items";
    print("post_balance.three_phases_ms", cpu_ms([&] {
            for (const auto& phase : all) (void)balance(phase);
          }),
          "ms", bound_if(ranks == 2560, 50), size + ", node-wise");
    const auto vision = balance(all[0]);
    const auto llm = balance(all[2]);
    print("post_balance.compose_ms", cpu_ms([&] { (void)compose(vision.inverse(), llm).value(); }),
          "ms", {}, size);
  }
}

void post_balance_algorithms() {
  const auto lengths = rank_lengths(256, 80, 5, 600, 0.8);
  for (const auto name : {"no-padding", "no-padding-search", "padding", "quadratic",
                          "quadratic-search", "padded-attention", "padded-attention-search"}) {
    const PostBalanceOptions options{
        .algorithm = post_balance_from(name).value(), .alpha = 1, .beta = 1e-3, .tolerance = 500};
    std::optional<PostBalanced> found;
    const double ms = cpu_ms([&] { found = post_balance(lengths, options).value(); });
    const std::string measure = "post_balance." + std::string(name);
    const double largest = *std::max_element(found->loads.begin(), found->loads.end());
    print(measure + "_ms", ms, "ms", {}, "256 ranks x 80 items");
    print(measure + "_gap", 100 * (largest / post_balance_lower_bound(lengths, options) - 1), "%",
          {}, "256 ranks x 80 items");
  }
}

double largest_in_order(const NodeWiseProblem& problem) {
  std::vector<std::int32_t> in_order(static_cast<std::size_t>(problem.rank_count));
  for (std::size_t i = 0; i < in_order.size(); ++i) in_order[i] = static_cast<std::int32_t>(i);
  const auto off = inter_node_volumes(problem, in_order);
  return *std::max_element(off.begin(), off.end());
}

void node_wise() {
  for (const std::size_t ranks : {32, 128, 256, 1024, 2560}) {
    const auto lengths = rank_lengths(ranks, 80, 7, 600, 0.6);
    const auto balanced = post_balance(lengths, {}).value();
    const auto problem = node_wise_problem(balanced.rearrangement, lengths, 8);
    const std::string size = std::to_string(ranks) + " ranks, 8 per node";
    NodeWise found;
    print("node_wise.ms", cpu_ms([&] { found = assign_node_wise(balanced, 8).value(); }), "ms", {},
          size);
    double bound = 0;
    print("node_wise.bound_ms",
          cpu_ms([&] { bound = node_wise_lower_bound(balanced, 8).value(); }, 1), "ms", {}, size);
    const auto gap = [&](double least) { return 100 * (found.inter_node_max / least - 1); };
    print("node_wise.gap_to_lagrangian_bound", gap(bound), "%", {}, size);
    print("node_wise.sent_over_in_order", found.inter_node_max / largest_in_order(problem), "ratio",
          {}, size);
    if (ranks > 128) continue;
    found = assign_node_wise_ilp(problem, 4000).value();
    print("node_wise.ilp_gap", gap(found.lower_bound), "%", {}, size + ", CBC 4 s");
    print("node_wise.linear_over_lagrangian_bound", found.lower_bound / bound, "ratio", {}, size);
  }
}

void token_blocks() {
  for (const TokenCount tokens : {65'536, 262'144, 1'048'576}) {
    // Samples of about 4k tokens with two images each.
    Random random(9);
    std::vector<TokenSample> samples;
    for (TokenCount left = tokens; left > 0;) {
      const auto length =
          std::min<TokenCount>(left, 1024 + static_cast<TokenCount>(random.below(6144)));
      TokenSample sample{length, {}};
      if (length > 900) sample.spans = {{16, 272}, {300, 812}};
      samples.push_back(std::move(sample));
      left -= length;
    }
    TokenBlockOptions options;
    options.device_count = 64;
    TokenBlocks blocks;
    const double ms = cpu_ms([&] { blocks = assign_token_blocks(samples, options).value(); });
    const std::string size = std::to_string(tokens / 1024) + "k tokens, 64 devices";
    print("token_blocks.ms", ms, "ms", bound_if(tokens == 262'144, 5), size);
    for (const auto* name : {"lpt", "zigzag", "round-robin"}) {
      options.method = token_block_method_from(name).value();
      const auto loads = assign_token_blocks(samples, options).value().loads;
      double sum = 0;
      for (const auto load : loads) sum += static_cast<double>(load);
      print("token_blocks." + std::string(name) + "_max_over_mean",
            64 * static_cast<double>(*std::max_element(loads.begin(), loads.end())) / sum, "ratio",
            {}, size);
    }
  }
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  using namespace troupe::bench;
  // A process that plans every step keeps its heap; by default it would be handed back and mapped
  // again at each call, which costs more here than the algorithms.
  mallopt(M_TRIM_THRESHOLD, 1 << 28);
  mallopt(M_MMAP_THRESHOLD, 1 << 28);
  if (argc > 2 && std::string_view(argv[1]) == "--steps") {
    print_steps(argv[2]);
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "--small") {
    print_small_batches();
    return 0;
  }
  deferral();
  partitions();
  post_balancing();
  post_balance_algorithms();
  node_wise();
  token_blocks();
  print_steps("");
  print_balance(argc > 1 && std::string_view(argv[1]) == "--tables");
}
