#include "scheduler/layout/layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/layout/layout_options.hpp"
#include "scheduler/simulate/room_division.hpp"

namespace troupe::scheduler {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Data-parallel degrees d <= most with count % d == 0.
std::vector<std::int32_t> divisors(std::int64_t count, std::int32_t most) {
  std::vector<std::int32_t> list;
  for (std::int32_t d = 1; d <= most; ++d)
    if (count % d == 0) list.push_back(d);
  return list;
}

/// Branch and bound over the modules, the llm first, so that what lies behind a module is known.
class Search {
 public:
  Search(const LayoutInput& input, const LayoutFacts& facts)
      : input_(input),
        facts_(facts),
        chosen_(input.modules.size()),
        behind_ms_(input.modules.size()),
        behind_depth_(input.modules.size()) {}

  void run() {
    for (const auto size : input_.microbatch_sizes) {
      size_ = size;
      if (input_.global_batch % size != 0) continue;
      const std::int64_t microbatches = input_.global_batch / size;
      if (input_.placement == Placement::shared) {
        std::vector<std::vector<LayoutOption>> options(input_.modules.size());
        for (const auto dp : divisors(microbatches, input_.devices))
          for (std::size_t m = 0; m < options.size(); ++m)
            append(options[m], options_of(m, microbatches / dp, {dp}));
        explore(std::move(options), 0);
        continue;
      }
      for (const auto dp : divisors(microbatches, input_.devices)) {
        const std::int64_t count = microbatches / dp;
        const bool own_dp = input_.objective == LayoutObjective::dflop;
        const auto others =
            own_dp ? divisors(input_.global_batch / count, input_.devices) : std::vector{dp};
        std::vector<std::vector<LayoutOption>> options(input_.modules.size());
        for (std::size_t m = 0; m < options.size(); ++m)
          options[m] =
              options_of(m, count, input_.modules[m].next.empty() ? std::vector{dp} : others);
        explore(std::move(options), count);
      }
    }
  }

  bool found() const { return best_ms_ < kInfinity; }
  LayoutChoice choice() && {
    best_.evaluated = evaluated_;
    return std::move(best_);
  }

 private:
  struct State {
    std::int32_t devices = 0;
    double slowest_ms = 0;   ///< Largest mean stage.
    double path_ms = 0;      ///< Longest path of fills.
    std::int32_t depth = 0;  ///< Longest path of stages.
    double extra_ms = 0;     ///< Resharding, or the step times of shared modules.
    double update_ms = 0;    ///< Longest update; shared placement: sum over modules.
    double state_bytes = 0;  ///< Shared placement: sum over modules.
    SharedBytes kept;        ///< Shared placement: of all modules.
  };

  std::vector<LayoutOption> options_of(std::size_t module, std::int64_t microbatches,
                                       const std::vector<std::int32_t>& dp) const {
    return layout_options(input_, facts_, static_cast<std::int32_t>(module), microbatches, dp,
                          input_.devices);
  }
  static void append(std::vector<LayoutOption>& to, std::vector<LayoutOption> from) {
    std::move(from.begin(), from.end(), std::back_inserter(to));
  }

  void explore(std::vector<std::vector<LayoutOption>> options, std::int64_t microbatches) {
    options_ = std::move(options);
    microbatches_ = microbatches;
    // Behind each position of the order: what the modules that are left cost at least.
    const std::size_t count = facts_.order.size();
    least_devices_.assign(count + 1, 0);
    least_stage_ms_.assign(count + 1, 0);
    least_extra_ms_.assign(count + 1, 0);
    for (std::size_t i = count; i-- > 0;) {
      const auto& list = options_[at(facts_.order[i])];
      if (list.empty()) return;
      std::int32_t devices = std::numeric_limits<std::int32_t>::max();
      double stage_ms = kInfinity;
      double alone_ms = kInfinity;
      for (const auto& option : list) {
        devices = std::min(devices, option.devices);
        stage_ms = std::min(stage_ms, option.mean_stage_ms);
        if (input_.placement == Placement::shared) alone_ms = std::min(alone_ms, alone(option));
      }
      least_devices_[i] = least_devices_[i + 1] + devices;
      least_stage_ms_[i] = std::max(least_stage_ms_[i + 1], stage_ms);
      if (input_.placement == Placement::shared)
        least_extra_ms_[i] = least_extra_ms_[i + 1] + alone_ms;
    }
    State start;
    descend(0, start);
  }

  /// Microbatches of a replica and step.
  std::int64_t count_of(const LayoutOption& option) const {
    return input_.global_batch / (option.samples * option.dp);
  }

  /// Step time of a module that has the devices for itself, filled and drained once for each
  /// window; `pace`: times as long as its slowest stage takes that each microbatch takes.
  double alone(const LayoutOption& option, double windows = 1, double pace = 1) const {
    const auto count = static_cast<double>(count_of(option));
    return input_.objective == LayoutObjective::entrain
               ? windows * option.fill_ms + (count - windows) * option.mean_stage_ms * pace
               : (count * pace + windows * (option.pp - 1)) * option.mean_stage_ms;
  }

  /// What modules that share their devices take, and microbatches that each then keeps.
  struct SharedStep {
    double ms = 0;
    std::vector<std::int64_t> kept;
  };

  SharedStep shared_step(const State& state) const {
    const auto is_encoder = [&](std::size_t m) { return !input_.modules[m].next.empty(); };
    const auto count = [&](std::size_t m) {
      return static_cast<double>(count_of(*chosen_[m].option));
    };
    RoomDemand demand;
    double waiting = 0;  // For one microbatch of the llm.
    for (std::size_t m = 0; m < chosen_.size(); ++m) {
      const LayoutOption& option = *chosen_[m].option;
      if (is_encoder(m)) {
        waiting += option.row_bytes / chosen_[at(facts_.order.front())].option->cp;
        if (facts_.gradient_out[m]) demand.gradient_bytes += option.row_bytes / option.cp;
        demand.encoder_bytes += option.activation_bytes - option.offloaded_bytes;
        demand.once_bytes += option.offloaded_bytes;
        demand.leaving_bytes += option.leaving_bytes;
        demand.encoder_microbatches = std::max(demand.encoder_microbatches, count(m));
      } else {
        demand.llm_bytes = option.activation_bytes;
        demand.llm_microbatches = count(m);
        demand.depth = std::min<double>(option.pp, count(m));
      }
    }
    demand.waiting_bytes = waiting * demand.llm_microbatches;
    const RoomDivision division =
        divide_room(std::max(0.0, input_.device_memory_bytes - state.state_bytes), demand);
    SharedStep step{state.update_ms, {}};
    for (std::size_t m = 0; m < chosen_.size(); ++m) {
      const LayoutOption& option = *chosen_[m].option;
      step.kept.push_back(std::min<std::int64_t>(
          count_of(option), is_encoder(m) ? division.width : division.in_flight));
      step.ms += alone(option, std::min(division.windows, count(m)),
                       is_encoder(m) ? 1 : division.held_back);
    }
    return step;
  }

  /// No completion of `state` from this position takes less.
  double bound(const State& state, std::size_t position) const {
    if (input_.placement == Placement::shared)
      return state.extra_ms + least_extra_ms_[position] + state.update_ms;
    const double slowest = std::max(state.slowest_ms, least_stage_ms_[position]);
    const auto count = static_cast<double>(microbatches_);
    return input_.objective == LayoutObjective::entrain
               ? state.path_ms + (count - 1) * slowest + state.extra_ms + state.update_ms
               : (count + state.depth - 1) * slowest + state.update_ms;
  }

  double cost(const State& state) const {
    if (input_.placement == Placement::shared || input_.objective == LayoutObjective::entrain)
      return bound(state, facts_.order.size());
    const std::size_t draws = facts_.time_ms.front().size();
    double sum = 0;
    for (std::size_t draw = 0; draw < draws; ++draw) {
      double slowest = 0;
      for (const auto& chosen : chosen_)
        slowest =
            std::max(slowest, (*chosen.option->module_ms)[draw] * chosen.option->stage_factor);
      sum += slowest;
    }
    return static_cast<double>(microbatches_ + state.depth - 1) * sum / static_cast<double>(draws) +
           state.update_ms;
  }

  void descend(std::size_t position, const State& state) {
    if (position == facts_.order.size()) return finish(state);
    const auto module = facts_.order[position];
    for (const auto& option : options_[at(module)]) {
      if (input_.placement == Placement::disjoint) {
        // Options are sorted by their slowest stage: none behind this one can be better.
        State least = state;
        least.slowest_ms = std::max(least.slowest_ms, option.mean_stage_ms);
        if (bound(least, position + 1) >= best_ms_ && best_devices_ <= least_devices_[0]) return;
        if (bound(least, position + 1) > best_ms_) return;
        if (state.devices + option.devices + least_devices_[position + 1] > input_.devices)
          continue;
      }
      State next = state;
      if (!add(module, option, next)) continue;
      const double least = bound(next, position + 1);
      if (least > best_ms_ * (1 + 1e-12)) continue;
      descend(position + 1, next);
    }
  }

  /// Adds a module to the state; false where it does not fit into memory.
  bool add(std::int32_t module, const LayoutOption& option, State& state) {
    const auto count = count_of(option);
    double behind_ms = 0;
    std::int32_t behind_depth = 0;
    for (const auto next : input_.modules[at(module)].next) {
      behind_ms = std::max(behind_ms, behind_ms_[at(next)]);
      behind_depth = std::max(behind_depth, behind_depth_[at(next)]);
      state.extra_ms += reshard_ms(module, option, *chosen_[at(next)].option);
    }
    behind_ms_[at(module)] = behind_ms + option.fill_ms;
    behind_depth_[at(module)] = behind_depth + option.pp;
    const bool shared = input_.placement == Placement::shared;
    // What is kept of a window is known when all modules are.
    const auto in_flight =
        static_cast<double>(shared ? 1 : std::min<std::int64_t>(count, behind_depth_[at(module)]));
    const double memory = option.state_bytes + in_flight * option.activation_bytes;
    state.state_bytes += option.state_bytes;
    state.update_ms =
        shared ? state.update_ms + option.update_ms : std::max(state.update_ms, option.update_ms);
    if (shared) state.kept.add(option, input_.modules[at(module)].next.empty());
    if ((shared ? state.kept.at_once() : memory) > input_.device_memory_bytes) return false;
    chosen_[at(module)] = {&option, memory};
    state.devices =
        shared ? std::max(state.devices, option.devices) : state.devices + option.devices;
    state.slowest_ms = std::max(state.slowest_ms, option.mean_stage_ms);
    state.path_ms = std::max(state.path_ms, behind_ms_[at(module)]);
    state.depth = std::max(state.depth, behind_depth_[at(module)]);
    if (shared) state.extra_ms += alone(option);
    return true;
  }

  /// Time of moving a module's output between different layouts, over a step (Entrain, P_reshard).
  double reshard_ms(std::int32_t module, const LayoutOption& from, const LayoutOption& to) const {
    if (input_.objective != LayoutObjective::entrain || input_.placement == Placement::shared ||
        (from.tp == to.tp && from.cp == to.cp))
      return 0;
    const bool in_node = from.devices / from.dp + to.devices / to.dp <= input_.devices_per_node;
    const double speed = in_node ? input_.node_gigabytes_per_s : input_.network_gigabytes_per_s;
    if (speed == 0) return 0;
    const double bytes = facts_.boundary_bytes[at(module)] *
                         static_cast<double>(input_.global_batch) / from.dp *
                         (facts_.gradient_out[at(module)] ? 2 : 1);
    return bytes / (speed * 1e6);
  }

  void finish(const State& state) {
    ++evaluated_;
    double ms = cost(state);
    if (input_.placement == Placement::shared) {
      const SharedStep step = shared_step(state);
      ms = step.ms;
      for (std::size_t m = 0; m < chosen_.size(); ++m) {
        const LayoutOption& option = *chosen_[m].option;
        const auto kept = static_cast<double>(step.kept[m]);
        chosen_[m].memory_bytes = option.state_bytes + option.offloaded_bytes +
                                  kept * (option.activation_bytes - option.offloaded_bytes);
        chosen_[m].host_memory_bytes = option.leaving_bytes + kept * option.offloaded_bytes;
      }
    }
    const bool equal = std::abs(ms - best_ms_) <= 1e-12 * ms;
    if (equal ? state.devices >= best_devices_ : ms >= best_ms_) return;
    best_ms_ = ms;
    best_devices_ = state.devices;
    best_.expected_step_ms = ms;
    best_.microbatch_size = size_;
    best_.modules.clear();
    for (std::size_t m = 0; m < chosen_.size(); ++m) {
      const auto& option = *chosen_[m].option;
      ModuleLayout layout{option.tp,
                          option.cp,
                          option.pp,
                          option.dp,
                          {0},
                          chosen_[m].memory_bytes,
                          chosen_[m].host_memory_bytes};
      const auto layers = input_.modules[m].layers;
      for (std::int32_t stage = 0; stage < option.pp; ++stage)
        layout.cuts.push_back(layout.cuts.back() + layers / option.pp +
                              (stage < layers % option.pp ? 1 : 0));
      best_.modules.push_back(std::move(layout));
    }
  }

  struct Chosen {
    const LayoutOption* option = nullptr;
    double memory_bytes = 0;
    double host_memory_bytes = 0;
  };

  const LayoutInput& input_;
  const LayoutFacts& facts_;
  std::int64_t size_ = 1;
  std::int64_t microbatches_ = 1;
  std::vector<std::vector<LayoutOption>> options_;
  std::vector<std::int32_t> least_devices_;  // By position in the order, as are the next two.
  std::vector<double> least_stage_ms_;
  std::vector<double> least_extra_ms_;
  std::vector<Chosen> chosen_;              // By module, as are the next two.
  std::vector<double> behind_ms_;           // Fills from the module to the sink.
  std::vector<std::int32_t> behind_depth_;  // Stages from the module to the sink.
  double best_ms_ = kInfinity;
  std::int32_t best_devices_ = std::numeric_limits<std::int32_t>::max();
  LayoutChoice best_;
  std::int64_t evaluated_ = 0;
};

Error nothing_fits(const LayoutInput& input, const LayoutFacts& facts) {
  const auto error = [](std::string message, std::string fix) {
    return Error{Errc::infeasible, std::move(message), "layout", std::move(fix)};
  };
  const auto smallest =
      *std::min_element(input.microbatch_sizes.begin(), input.microbatch_sizes.end());
  const bool divides =
      std::any_of(input.microbatch_sizes.begin(), input.microbatch_sizes.end(),
                  [&](std::int64_t size) { return input.global_batch % size == 0; });
  if (!divides)
    return error("a global batch of " + std::to_string(input.global_batch) +
                     " cannot be cut into microbatches of any size given",
                 "use a batch of " +
                     std::to_string(std::max(
                         smallest, (input.global_batch + smallest / 2) / smallest * smallest)) +
                     ", or add a microbatch size");
  if (static_cast<std::size_t>(input.devices) < input.modules.size() &&
      input.placement == Placement::disjoint)
    return error(
        std::to_string(input.devices) + " devices cannot hold " +
            std::to_string(input.modules.size()) + " modules on devices of their own",
        "use at least " + std::to_string(input.modules.size()) + " devices, or shared placement");
  // Memory: what the smallest share of each module takes, with one microbatch in flight.
  LayoutInput roomy = input;
  roomy.device_memory_bytes = kInfinity;
  std::size_t worst = 0;
  double worst_bytes = 0;
  SharedBytes together;
  for (std::size_t m = 0; m < input.modules.size(); ++m) {
    const auto bytes_of = [](const LayoutOption& option) {
      return option.state_bytes + option.activation_bytes;
    };
    const auto options = layout_options(roomy, facts, static_cast<std::int32_t>(m),
                                        input.global_batch / smallest, {1}, input.devices);
    const auto least = std::ranges::min_element(options, {}, bytes_of);
    const double bytes = least == options.end() ? kInfinity : bytes_of(*least);
    if (least != options.end()) together.add(*least, input.modules[m].next.empty());
    if (bytes > worst_bytes) {
      worst = m;
      worst_bytes = bytes;
    }
  }
  const double all_bytes = input.placement == Placement::shared ? together.at_once() : together.all;
  if (worst_bytes == kInfinity)
    return error("module '" + input.modules[worst].name + "' has no valid tp x cp of at most " +
                     std::to_string(std::min(input.devices, input.devices_per_node)) +
                     " devices of one node",
                 "add 1 to its valid_tp and valid_cp");
  const auto bytes = [](double value) { return std::to_string(static_cast<std::int64_t>(value)); };
  return error("no layout of " + std::to_string(input.devices) + " devices fits into " +
                   bytes(input.device_memory_bytes) + " bytes per device; module '" +
                   input.modules[worst].name + "' alone needs at least " + bytes(worst_bytes) +
                   " with one microbatch in flight, all modules together " + bytes(all_bytes),
               "use more devices, devices with more memory, or smaller microbatches");
}

}  // namespace

Result<LayoutChoice> search_layout(const LayoutInput& input) {
  auto facts = layout_facts(input);
  if (!facts.ok()) return facts.error();
  Search search(input, facts.value());
  search.run();
  if (!search.found()) return nothing_fits(input, facts.value());
  return std::move(search).choice();
}

}  // namespace troupe::scheduler
