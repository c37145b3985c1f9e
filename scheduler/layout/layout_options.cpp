#include "scheduler/layout/layout_options.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::size_t kDraws = 64;

Error wrong(std::string where, std::string message, std::string fix = {}) {
  return Error{Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

bool good(double value) { return std::isfinite(value) && value >= 0; }

Status check_module(const LayoutInput& input, std::size_t m) {
  const auto& module = input.modules[m];
  const std::string where = "module '" + module.name + "'";
  if (module.layers < 1 || module.layers > 1'000'000)
    return wrong(where, "it has " + std::to_string(module.layers) + " layers",
                 "1 to 1,000,000 layers can be laid out");
  if (!good(module.state_bytes) || !good(module.gradient_bytes))
    return wrong(where, "state_bytes or gradient_bytes is negative or not finite");
  if (!good(module.leaving_bytes) || !(module.offloaded_share >= 0 && module.offloaded_share <= 1))
    return wrong(where, "leaving_bytes is negative or not finite, or offloaded_share not 0 to 1");
  if (module.valid_tp.empty() || module.valid_cp.empty())
    return wrong(where, "valid_tp or valid_cp is empty", "list at least 1");
  for (const auto& list : {module.valid_tp, module.valid_cp})
    for (const auto degree : list)
      if (degree < 1) return wrong(where, "a valid degree is below 1");
  for (const auto& [degrees, speedup] : module.speedup)
    if (!(speedup > 0 && std::isfinite(speedup))) return wrong(where, "a speedup is not above 0");
  for (const auto next : module.next)
    if (next < 0 || at(next) >= input.modules.size())
      return wrong(where, "its next does not exist");
  return Done{};
}

Status check_input(const LayoutInput& input) {
  if (input.modules.empty()) return wrong("modules", "there are no modules", "give at least one");
  if (input.samples.empty()) return wrong("samples", "there are no samples", "give at least one");
  if (input.devices < 1 || input.devices_per_node < 1)
    return wrong("devices", "there are no devices", "give at least one");
  if (input.global_batch < 1) return wrong("global_batch", "the batch is empty");
  if (input.microbatch_sizes.empty())
    return wrong("microbatch_sizes", "there is no size to try", "give at least one");
  for (const auto size : input.microbatch_sizes)
    if (size < 1) return wrong("microbatch_sizes", "a size is below 1");
  if (!good(input.device_memory_bytes) || !good(input.node_gigabytes_per_s) ||
      !good(input.network_gigabytes_per_s) || !good(input.update_gigabytes_per_s))
    return wrong("device_memory_bytes", "memory or a speed is negative or not finite");
  for (std::size_t m = 0; m < input.modules.size(); ++m)
    if (auto status = check_module(input, m); !status.ok()) return status;
  for (std::size_t s = 0; s < input.samples.size(); ++s) {
    if (input.samples[s].size() != input.modules.size())
      return wrong("samples[" + std::to_string(s) + "]", "it does not name every module");
    for (const auto& sample : input.samples[s])
      if (!good(sample.forward_ms) || !good(sample.backward_ms) || !good(sample.activation_bytes) ||
          !good(sample.boundary_bytes))
        return wrong("samples[" + std::to_string(s) + "]", "a value is negative or not finite");
  }
  return Done{};
}

/// The llm first, then modules whose users all stand before them. Fails on a circle.
Status order_modules(const LayoutInput& input, LayoutFacts& facts) {
  const std::size_t count = input.modules.size();
  facts.before.resize(count);
  std::vector<std::size_t> waits(count);
  std::int32_t sinks = 0;
  for (std::size_t m = 0; m < count; ++m) {
    waits[m] = input.modules[m].next.size();
    for (const auto next : input.modules[m].next)
      facts.before[at(next)].push_back(static_cast<std::int32_t>(m));
    if (waits[m] > 0) continue;
    facts.order.push_back(static_cast<std::int32_t>(m));
    ++sinks;
  }
  if (sinks != 1)
    return wrong("modules", std::to_string(sinks) +
                                " modules have no next; exactly one, the llm, "
                                "must end the pipeline");
  for (std::size_t i = 0; i < facts.order.size(); ++i)
    for (const auto other : facts.before[at(facts.order[i])])
      if (--waits[at(other)] == 0) facts.order.push_back(other);
  if (facts.order.size() < count) return wrong("modules", "modules feed each other in a circle");
  return Done{};
}

void find_gradients(const LayoutInput& input, LayoutFacts& facts) {
  facts.has_backward.resize(input.modules.size());
  facts.gradient_out.resize(input.modules.size());
  for (auto m = facts.order.rbegin(); m != facts.order.rend(); ++m) {
    bool gradient = !input.modules[at(*m)].freeze;
    for (const auto other : facts.before[at(*m)])
      gradient = gradient || facts.gradient_out[at(other)];
    facts.has_backward[at(*m)] = facts.gradient_out[at(*m)] = gradient;
  }
}

/// Prefix sums over samples drawn with replacement.
void draw_samples(const LayoutInput& input, LayoutFacts& facts) {
  // With one dp no microbatch is larger than the largest size; with several it may be, up to the
  // batch. What lies beyond 512 samples is extended along the mean.
  const auto largest =
      *std::max_element(input.microbatch_sizes.begin(), input.microbatch_sizes.end());
  const bool own_dp =
      input.objective == LayoutObjective::dflop && input.placement == Placement::disjoint;
  const auto longest =
      static_cast<std::size_t>(std::min({own_dp ? std::max<std::int64_t>(largest, 512) : largest,
                                         input.global_batch, std::int64_t{4096}}));
  const std::size_t count = input.modules.size();
  facts.time_ms.assign(count, {});
  facts.activation_bytes.assign(count, {});
  if (input.counts_rows) facts.row_bytes.assign(count, {});
  facts.boundary_bytes.assign(count, 0);
  Random random(input.seed);
  const auto time_of = [&](std::size_t m, const ModuleSample& sample) {
    return sample.forward_ms + (facts.has_backward[m] ? sample.backward_ms : 0);
  };
  for (std::size_t draw = 0; draw < kDraws; ++draw) {
    std::vector<std::vector<double>> time(count, {0}), bytes(count, {0}), rows(count, {0});
    for (std::size_t i = 0; i < longest; ++i) {
      const auto& sample = input.samples[random.below(input.samples.size())];
      for (std::size_t m = 0; m < count; ++m) {
        time[m].push_back(time[m].back() + time_of(m, sample[m]));
        bytes[m].push_back(bytes[m].back() + sample[m].activation_bytes);
        if (input.counts_rows) rows[m].push_back(rows[m].back() + sample[m].boundary_bytes);
      }
    }
    for (std::size_t m = 0; m < count; ++m) {
      if (input.objective == LayoutObjective::dflop) facts.time_ms[m].push_back(std::move(time[m]));
      facts.activation_bytes[m].push_back(std::move(bytes[m]));
      if (input.counts_rows) facts.row_bytes[m].push_back(std::move(rows[m]));
    }
  }
  for (std::size_t m = 0; m < count; ++m) {
    double time = 0;
    for (const auto& sample : input.samples) {
      time += time_of(m, sample[m]);
      facts.boundary_bytes[m] +=
          sample[m].boundary_bytes / static_cast<double>(input.samples.size());
    }
    // The mean of all samples: prefix sums 0, mean; longer microbatches extend the line.
    if (input.objective == LayoutObjective::entrain)
      facts.time_ms[m] = {{0, time / static_cast<double>(input.samples.size())}};
  }
}

/// Value of prefix sums at `count`; beyond their end along the mean.
double at_count(const std::vector<double>& sums, std::int64_t count) {
  const auto last = static_cast<std::int64_t>(sums.size()) - 1;
  if (count <= last) return sums[static_cast<std::size_t>(count)];
  return sums.back() * static_cast<double>(count) / static_cast<double>(last);
}

/// The largest value at `count` over the draws.
double largest_of(const std::vector<std::vector<double>>& draws, std::int64_t count) {
  double largest = 0;
  for (const auto& sums : draws) largest = std::max(largest, at_count(sums, count));
  return largest;
}

/// The smallest pipeline degrees for each size of the largest stage, ascending.
std::vector<std::int32_t> useful_degrees(std::int32_t layers, std::int32_t most) {
  std::vector<std::int32_t> degrees;
  for (std::int32_t pp = 1; pp <= std::min(layers, most);) {
    degrees.push_back(pp);
    const std::int32_t largest = (layers + pp - 1) / pp;
    if (largest == 1) break;
    pp = (layers + largest - 2) / (largest - 1);  // The first degree with a smaller stage.
  }
  return degrees;
}

/// What the device with most of a module takes at the end of a step.
double update_ms(const LayoutInput& input, const LayoutModule& module, const LayoutOption& option,
                 double share) {
  if (module.gradient_bytes == 0) return 0;
  const auto ms = [](double bytes, double gigabytes_per_s) {
    return gigabytes_per_s > 0 ? bytes / (gigabytes_per_s * 1e6) : 0;
  };
  const std::int32_t replica = option.tp * option.cp * option.pp;
  const double on_node = option.cp * std::clamp(input.devices_per_node / replica, 1, option.dp);
  const double nodes = std::ceil(option.cp * option.dp / on_node);
  const double bytes = module.gradient_bytes / option.tp * share;
  return ms(2 * (nodes - 1) / nodes / on_node * bytes, input.network_gigabytes_per_s) +
         ms(2 * (on_node - 1) / on_node * bytes, input.node_gigabytes_per_s) +
         ms(option.state_bytes, input.update_gigabytes_per_s);
}

}  // namespace

double LayoutFacts::time_of(std::int32_t module, std::size_t draw, std::int64_t count) const {
  return at_count(time_ms[at(module)][draw], count);
}

double LayoutFacts::largest_activations(std::int32_t module, std::int64_t count) const {
  return largest_of(activation_bytes[at(module)], count);
}

double LayoutFacts::largest_rows(const LayoutInput& input, std::int32_t module,
                                 std::int64_t count) const {
  const auto& next = input.modules[at(module)].next;
  const bool feeds_llm = std::find(next.begin(), next.end(), order.front()) != next.end();
  return input.counts_rows && feeds_llm ? largest_of(row_bytes[at(module)], count) : 0;
}

Result<LayoutFacts> layout_facts(const LayoutInput& input) {
  if (auto status = check_input(input); !status.ok()) return status.error();
  LayoutFacts facts;
  if (auto status = order_modules(input, facts); !status.ok()) return status.error();
  find_gradients(input, facts);
  draw_samples(input, facts);
  return facts;
}

void SharedBytes::add(const LayoutOption& option, bool is_llm) {
  all += option.state_bytes + option.activation_bytes;
  if (is_llm) llm = option.activation_bytes;
  leaving += option.leaving_bytes;
  offloaded += option.offloaded_bytes;
  most_offloaded = std::max(most_offloaded, option.offloaded_bytes);
}

double SharedBytes::at_once() const {
  const double in_turn = std::max(most_offloaded, llm - leaving);
  return all - (offloaded + llm - in_turn);
}

std::vector<LayoutOption> layout_options(const LayoutInput& input, const LayoutFacts& facts,
                                         std::int32_t module, std::int64_t microbatches,
                                         const std::vector<std::int32_t>& dp,
                                         std::int32_t most_devices) {
  const auto& spec = input.modules[at(module)];
  std::vector<LayoutOption> options;
  for (const auto replicas : dp) {
    if (input.global_batch % (microbatches * replicas) != 0) continue;
    const std::int64_t samples = input.global_batch / (microbatches * replicas);
    const double activations = facts.largest_activations(module, samples);
    const double rows = facts.largest_rows(input, module, samples);
    auto times = std::make_shared<std::vector<double>>();
    double mean_ms = 0;
    for (std::size_t draw = 0; draw < facts.time_ms[at(module)].size(); ++draw) {
      times->push_back(facts.time_of(module, draw, samples));
      mean_ms += times->back();
    }
    mean_ms /= static_cast<double>(times->size());
    for (const auto tp : spec.valid_tp)
      for (const auto cp : spec.valid_cp) {
        const std::int64_t width = std::int64_t{tp} * cp;
        if (width > input.devices_per_node || width * replicas > most_devices) continue;
        const auto found = spec.speedup.find({tp, cp});
        const double speedup =
            found == spec.speedup.end() ? static_cast<double>(width) : found->second;
        const auto most_stages = static_cast<std::int32_t>(most_devices / (width * replicas));
        for (const auto pp : useful_degrees(spec.layers, most_stages)) {
          const double share =
              static_cast<double>((spec.layers + pp - 1) / pp) / static_cast<double>(spec.layers);
          LayoutOption option;
          option.tp = tp;
          option.cp = cp;
          option.pp = pp;
          option.dp = replicas;
          option.devices = static_cast<std::int32_t>(width) * pp * replicas;
          option.samples = samples;
          option.module_ms = times;
          option.stage_factor = share / speedup;
          option.mean_stage_ms = mean_ms * option.stage_factor;
          option.fill_ms = mean_ms / speedup;
          option.state_bytes = spec.state_bytes / tp * share;
          option.activation_bytes = activations / static_cast<double>(width) * share;
          option.offloaded_bytes = spec.offloaded_share * option.activation_bytes;
          option.leaving_bytes = spec.leaving_bytes / tp * share;
          option.row_bytes = rows;
          option.update_ms = update_ms(input, spec, option, share);
          if (option.state_bytes + option.activation_bytes <= input.device_memory_bytes)
            options.push_back(std::move(option));
        }
      }
  }
  std::sort(options.begin(), options.end(), [](const LayoutOption& a, const LayoutOption& b) {
    return std::tie(a.mean_stage_ms, a.devices, a.tp, a.cp, a.pp, a.dp) <
           std::tie(b.mean_stage_ms, b.devices, b.tp, b.cp, b.pp, b.dp);
  });
  return options;
}

}  // namespace troupe::scheduler
