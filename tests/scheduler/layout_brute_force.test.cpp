// The layout search against every layout there is, costed afresh. `Costing` follows the description
// in layout.hpp and shares no code with the search.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "runtime/vocabulary/random.hpp"
#include "scheduler/layout/layout.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

/// The microbatches that the search promises to look at, drawn here once more: 64 rows of samples
/// with replacement, of which a microbatch of n has the first n.
std::vector<std::vector<std::size_t>> drawn_samples(const LayoutInput& input) {
  constexpr std::int64_t kDraws = 64, kOwnSizes = 512;
  const auto largest =
      *std::max_element(input.microbatch_sizes.begin(), input.microbatch_sizes.end());
  const bool own_sizes =
      input.objective == LayoutObjective::dflop && input.placement == Placement::disjoint;
  const auto length =
      std::min(own_sizes ? std::max(largest, kOwnSizes) : largest, input.global_batch);
  Random random(input.seed);
  std::vector<std::vector<std::size_t>> draws(kDraws);
  for (auto& draw : draws)
    for (std::int64_t i = 0; i < length; ++i) draw.push_back(random.below(input.samples.size()));
  return draws;
}

/// Costs any whole layout by the model that layout.hpp describes, and shares no code with it.
class Costing {
 public:
  Costing(const LayoutInput& input, std::int64_t size)
      : input_(input), size_(size), draws_(drawn_samples(input)), trained_(input.modules.size()) {
    for (std::size_t pass = 0; pass < trained_.size(); ++pass)  // As many passes as links at most.
      for (std::size_t m = 0; m < trained_.size(); ++m) {
        trained_[m] = trained_[m] || !input.modules[m].freeze;
        for (const auto next : input.modules[m].next)
          if (trained_[m]) trained_[static_cast<std::size_t>(next)] = true;
      }
  }

  /// Infinity where it does not fit. `layouts`: per module; the last one is the llm.
  double operator()(const std::vector<ModuleLayout>& layouts) const {
    const auto batch = input_.global_batch;
    const bool shared = input_.placement == Placement::shared;
    const bool dflop = input_.objective == LayoutObjective::dflop;
    const auto& llm = layouts.back();
    if (batch % (size_ * llm.dp) != 0) return kNone;
    const auto count = batch / (size_ * llm.dp);
    double memory = 0, reshard = 0, update = 0;
    std::vector<double> slowest(draws_.size());
    double mean_slowest = 0;
    for (std::size_t m = layouts.size(); m-- > 0;) {
      const auto& own = layouts[m];
      if (shared && batch % (size_ * own.dp) != 0) return kNone;
      const auto microbatches = shared ? batch / (size_ * own.dp) : count;
      if (batch % (microbatches * own.dp) != 0) return kNone;
      if (!shared && !dflop && own.dp != llm.dp) return kNone;
      const auto samples = static_cast<std::size_t>(batch / (microbatches * own.dp));
      const double stage = share(m, own);
      const auto in_flight = std::min<std::int64_t>(microbatches, depth(m, layouts));
      const double bytes =
          stage * (input_.modules[m].state_bytes / own.tp +
                   static_cast<double>(in_flight) * activations(m, samples) / (own.tp * own.cp));
      memory = std::max(memory, bytes);
      update = shared ? update + update_ms(m, own) : std::max(update, update_ms(m, own));
      double mean = 0;
      for (std::size_t d = 0; d < draws_.size(); ++d) {
        const double ms =
            dflop ? drawn_ms(m, d, samples) : mean_ms(m) * static_cast<double>(samples);
        mean += ms / static_cast<double>(draws_.size());
        slowest[d] = std::max(slowest[d], ms * stage / speedup(m, own));
      }
      const double fill = mean / speedup(m, own);
      mean_slowest = std::max(mean_slowest, fill * stage);
      for (const auto next : input_.modules[m].next)
        reshard += reshard_ms(m, own, layouts[static_cast<std::size_t>(next)]);
    }
    if (shared) return windowed(layouts) + update;
    if (memory > input_.device_memory_bytes) return kNone;
    double sum = 0, path = 0;
    std::int32_t longest = 0;
    for (const double ms : slowest) sum += ms / static_cast<double>(draws_.size());
    for (std::size_t m = 0; m < layouts.size(); ++m) {
      longest = std::max(longest, depth(m, layouts));
      path = std::max(path, path_ms(m, layouts));
    }
    const auto k = static_cast<double>(count);
    return (dflop ? (k + longest - 1) * sum : path + (k - 1) * mean_slowest + reshard) + update;
  }

  static constexpr double kNone = std::numeric_limits<double>::infinity();

 private:
  /// On the same devices: window after window of as many microbatches as the encoders keep, beside
  /// as many of the llm in flight as let it take least time.
  double windowed(const std::vector<ModuleLayout>& layouts) const {
    const std::size_t llm = layouts.size() - 1;
    const auto own_bytes = [&](std::size_t m) {
      const auto& own = layouts[m];
      return share(m, own) * activations(m, static_cast<std::size_t>(size_)) / (own.tp * own.cp);
    };
    const auto count = [&](std::size_t m) {
      return static_cast<double>(input_.global_batch / (size_ * layouts[m].dp));
    };
    double state = 0, held = 0;  // With one microbatch of each.
    for (std::size_t m = layouts.size(); m-- > 0;) {
      const double own = share(m, layouts[m]) * module(m).state_bytes / layouts[m].tp;
      state += own;
      held += own + own_bytes(m);
    }
    if (held > input_.device_memory_bytes) return kNone;
    const double room = input_.device_memory_bytes - state;
    double encoded = 0, encoder_bytes = 0, least = kNone, windows = 1, in_flight = 1, sum = 0;
    for (std::size_t m = 0; m < llm; ++m) {
      encoded = std::max(encoded, count(m));
      encoder_bytes += own_bytes(m);
    }
    if (encoded > 0) encoder_bytes += crossing_bytes(layouts, count(llm), encoded);
    const double depth = std::min<double>(layouts[llm].pp, count(llm));
    for (double k = 1; k <= depth; ++k) {
      const double width = std::floor((room - k * own_bytes(llm)) / encoder_bytes);
      if (k > 1 && width < 1) continue;
      const double needed = std::ceil(encoded / std::max(1.0, width));
      const double time = needed + std::max(0.0, count(llm) - needed) / k;
      if (time <= least) least = time, windows = needed, in_flight = k;  // Of equal ones the last.
    }
    for (std::size_t m = 0; m <= llm; ++m) {
      const auto& own = layouts[m];
      const double behind = m < llm ? 1 : depth / in_flight;
      const double times = std::min(windows, count(m));
      double fill = 0;  // Of draws of so many samples on average, or of their mean.
      for (std::size_t d = 0; d < draws_.size(); ++d)
        fill +=
            drawn_ms(m, d, static_cast<std::size_t>(size_)) / static_cast<double>(draws_.size());
      const bool dflop = input_.objective == LayoutObjective::dflop;
      if (!dflop) fill = mean_ms(m) * static_cast<double>(size_);
      fill /= speedup(m, own);
      const double stage = fill * share(m, own);
      sum += dflop ? count(m) * behind * stage + times * (own.pp - 1) * stage
                   : times * fill + (count(m) - times) * stage * behind;
    }
    return sum;
  }

  /// For each of `encoded` microbatches the rows of `trained` ones that wait for the llm, or the
  /// gradients that come back for it, whichever is more.
  double crossing_bytes(const std::vector<ModuleLayout>& layouts, double trained,
                        double encoded) const {
    const std::size_t llm = layouts.size() - 1;
    double waiting = 0, coming = 0;
    for (std::size_t m = 0; m < llm && input_.counts_rows; ++m) {
      if (module(m).next.front() != static_cast<std::int32_t>(llm)) continue;
      const double handed =
          largest(m, static_cast<std::size_t>(size_), &ModuleSample::boundary_bytes);
      waiting += handed / layouts[llm].cp;
      if (trained_[m]) coming += handed / layouts[m].cp;
    }
    return std::max(waiting * trained / encoded, coming);
  }

  /// Of gradients: each holder moves its part of the others' twice, those of a node together.
  double update_ms(std::size_t m, const ModuleLayout& own) const {
    const double bytes = module(m).gradient_bytes * share(m, own) / own.tp;
    if (bytes == 0) return 0;
    const auto copies = std::clamp(input_.devices_per_node / (own.tp * own.cp * own.pp), 1, own.dp);
    const double here = copies * own.cp, nodes = std::ceil(own.dp * own.cp / here);
    const auto ms = [](double moved, double speed) { return speed > 0 ? moved / speed / 1e6 : 0; };
    return ms(bytes * 2 * (nodes - 1) / nodes / here, input_.network_gigabytes_per_s) +
           ms(bytes * 2 * (here - 1) / here, input_.node_gigabytes_per_s) +
           ms(module(m).state_bytes * share(m, own) / own.tp, input_.update_gigabytes_per_s);
  }

  const LayoutModule& module(std::size_t m) const { return input_.modules[m]; }
  double share(std::size_t m, const ModuleLayout& own) const {
    return std::ceil(1.0 * module(m).layers / own.pp) / module(m).layers;
  }
  double speedup(std::size_t m, const ModuleLayout& own) const {
    const auto found = module(m).speedup.find({own.tp, own.cp});
    return found == module(m).speedup.end() ? own.tp * own.cp : found->second;
  }
  double sample_ms(std::size_t m, const std::vector<ModuleSample>& sample) const {
    return sample[m].forward_ms + (trained_[m] ? sample[m].backward_ms : 0);
  }
  double mean_ms(std::size_t m) const {
    double sum = 0;
    for (const auto& sample : input_.samples) sum += sample_ms(m, sample);
    return sum / static_cast<double>(input_.samples.size());
  }
  double drawn_ms(std::size_t m, std::size_t draw, std::size_t samples) const {
    double sum = 0;
    for (std::size_t i = 0; i < samples; ++i) sum += sample_ms(m, input_.samples[draws_[draw][i]]);
    return sum;
  }
  double activations(std::size_t m, std::size_t samples) const {
    return largest(m, samples, &ModuleSample::activation_bytes);
  }
  double largest(std::size_t m, std::size_t samples, double ModuleSample::*bytes) const {
    double most = 0;
    for (const auto& draw : draws_) {
      double sum = 0;
      for (std::size_t i = 0; i < samples; ++i) sum += input_.samples[draw[i]][m].*bytes;
      most = std::max(most, sum);
    }
    return most;
  }
  std::int32_t depth(std::size_t m, const std::vector<ModuleLayout>& layouts) const {
    std::int32_t behind = 0;
    for (const auto next : module(m).next)
      behind = std::max(behind, depth(static_cast<std::size_t>(next), layouts));
    return behind + layouts[m].pp;
  }
  double path_ms(std::size_t m, const std::vector<ModuleLayout>& layouts) const {
    double behind = 0;
    for (const auto next : module(m).next)
      behind = std::max(behind, path_ms(static_cast<std::size_t>(next), layouts));
    const auto& llm = layouts.back();
    const auto count = input_.global_batch / (size_ * llm.dp);
    const auto samples = input_.global_batch / (count * layouts[m].dp);
    return behind + mean_ms(m) * static_cast<double>(samples) / speedup(m, layouts[m]);
  }
  double reshard_ms(std::size_t m, const ModuleLayout& from, const ModuleLayout& to) const {
    if (from.tp == to.tp && from.cp == to.cp) return 0;
    double bytes = 0;
    for (const auto& sample : input_.samples)
      bytes += sample[m].boundary_bytes / static_cast<double>(input_.samples.size());
    bytes *= static_cast<double>(input_.global_batch) / from.dp * (trained_[m] ? 2 : 1);
    const auto replica = (from.devices() / from.dp) + (to.devices() / to.dp);
    const double speed = replica <= input_.devices_per_node ? input_.node_gigabytes_per_s
                                                            : input_.network_gigabytes_per_s;
    return speed > 0 ? bytes / (speed * 1e6) : 0;
  }

  const LayoutInput& input_;
  std::int64_t size_;
  std::vector<std::vector<std::size_t>> draws_;
  std::vector<bool> trained_;
};

/// The least cost over everything the search may choose.
double brute_force(const LayoutInput& input) {
  double best = Costing::kNone;
  const bool shared = input.placement == Placement::shared;
  for (const auto size : input.microbatch_sizes) {
    if (input.global_batch % size != 0) continue;
    const Costing cost(input, size);
    std::vector<ModuleLayout> layouts(input.modules.size());
    const std::function<void(std::size_t, std::int32_t)> choose = [&](std::size_t m,
                                                                      std::int32_t left) {
      if (m == layouts.size()) {
        best = std::min(best, cost(layouts));
        return;
      }
      const auto& module = input.modules[m];
      for (const auto tp : module.valid_tp)
        for (const auto cp : module.valid_cp)
          for (std::int32_t pp = 1; pp <= module.layers; ++pp)
            for (std::int32_t dp = 1; tp * cp * pp * dp <= left; ++dp) {
              if (tp * cp > input.devices_per_node || input.global_batch % dp != 0) continue;
              layouts[m] = {tp, cp, pp, dp, {}, 0};
              choose(m + 1, shared ? left : left - tp * cp * pp * dp);
            }
    };
    choose(0, input.devices);
  }
  return best;
}

/// Two modules, or three: side by side before the llm, or one after the other.
LayoutInput random_input(std::uint32_t seed) {
  std::mt19937 random(seed);
  LayoutInput input;
  input.modules = {{"vision", {1}, false, 4, 400, {1}, {1}, {}},
                   {"llm", {}, false, 8, 800, {1}, {1}, {}}};
  if (seed % 4 == 0) {
    input.modules.insert(input.modules.begin(), {"audio", {}, false, 3, 100, {1}, {1}, {}});
    input.modules[0].next = {draw(random, 1, 2)};
    input.modules[1].next = {2};
  }
  const bool three = input.modules.size() == 3;
  input.devices = draw(random, three ? 3 : 2, three ? 6 : 9);
  input.devices_per_node = draw(random, 1, 4);
  input.global_batch = draw(random, 1, 24);
  input.microbatch_sizes = {1, 2, 3};
  input.seed = seed;
  input.objective = draw(random, 0, 1) == 1 ? LayoutObjective::dflop : LayoutObjective::entrain;
  input.placement = draw(random, 0, 2) == 0 ? Placement::shared : Placement::disjoint;
  input.device_memory_bytes = draw(random, 200, 1500);
  input.node_gigabytes_per_s = draw(random, 0, 4);  // 0: takes no time.
  input.network_gigabytes_per_s = draw(random, 0, 2);
  input.update_gigabytes_per_s = draw(random, 0, 2) * 1e-5;
  input.samples.clear();
  for (int s = 0; s < 10; ++s) {
    auto& sample = input.samples.emplace_back();
    for (std::size_t m = 0; m < input.modules.size(); ++m)
      sample.push_back({draw(random, 0, 9) + 0.5, draw(random, 0, 18) + 0.5,
                        draw(random, 1, 20) * 1.0, draw(random, 0, 30) * 1e5});
  }
  for (auto& module : input.modules) {
    module.layers = draw(random, 1, three ? 3 : 5);
    module.freeze = draw(random, 0, 2) == 0;
    if (draw(random, 0, 1) == 1) module.valid_tp = {1, 2};
    if (draw(random, 0, 1) == 1 && !three) module.valid_cp = {1, 2};
    module.speedup = {{{2, 1}, 1.7}};
    if (!module.freeze) module.gradient_bytes = draw(random, 0, 20) * 1e6;
  }
  return input;
}

/// The same on shared devices, with rows that are about as large as activations.
LayoutInput with_rows(LayoutInput input) {
  input.placement = Placement::shared;
  input.counts_rows = true;
  for (auto& sample : input.samples)
    for (auto& module : sample) module.boundary_bytes *= 0.37e-5;
  return input;
}

TEST_CASE("the search finds what brute force finds", "[scheduler][property]") {
  constexpr std::uint32_t kSeeds = 3000, kRowSeeds = 500;
  std::uint32_t feasible = 0, three = 0, resharded = 0, windows = 0, narrower = 0;
  for (std::uint32_t seed = 0; seed < kSeeds + kRowSeeds; ++seed) {
    const auto input = seed < kSeeds ? random_input(seed) : with_rows(random_input(seed));
    const double expected = brute_force(input);
    const auto choice = search_layout(input);
    INFO("seed " << seed << " expected " << expected);
    REQUIRE(choice.ok() == std::isfinite(expected));
    if (!choice.ok()) {
      CHECK(choice.error().code == Errc::infeasible);
      CHECK_FALSE(choice.error().fix.empty());
      continue;
    }
    const auto& modules = choice.value().modules;
    ++feasible;
    three += modules.size() == 3 ? 1 : 0;
    resharded +=
        input.objective == LayoutObjective::entrain && input.placement == Placement::disjoint &&
                (modules.front().tp != modules.back().tp || modules.front().cp != modules.back().cp)
            ? 1
            : 0;
    REQUIRE(choice.value().expected_step_ms == Approx(expected).epsilon(1e-9));
    auto roomy = input;
    roomy.device_memory_bytes = 1e9;
    windows += input.placement == Placement::shared &&
                       Costing(roomy, choice.value().microbatch_size)(modules) < expected
                   ? 1
                   : 0;
    auto plain = input;
    plain.counts_rows = false;
    narrower += seed >= kSeeds && Costing(plain, choice.value().microbatch_size)(modules) < expected
                    ? 1
                    : 0;
    // The layout that it names costs what it says.
    REQUIRE(Costing(input, choice.value().microbatch_size)(modules) ==
            Approx(expected).epsilon(1e-9));
  }
  CHECK(feasible > kSeeds / 2);
  CHECK(three > kSeeds / 20);
  CHECK(resharded > kSeeds / 50);
  CHECK(windows > kSeeds / 100);
  CHECK(narrower > kRowSeeds / 50);
}

}  // namespace
}  // namespace troupe::scheduler
