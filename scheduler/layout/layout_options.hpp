// What a module's layouts cost: the table that the layout search chooses from.
//
// Pure. Helper of layout.cpp.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/layout/layout.hpp"

namespace troupe::scheduler {

/// Facts about the input that do not depend on the layout.
struct LayoutFacts {
  std::vector<std::int32_t> order;                ///< Modules, the llm first, then what feeds it.
  std::vector<std::vector<std::int32_t>> before;  ///< Modules that feed each module.
  std::vector<bool> has_backward;                 ///< Per module.
  std::vector<bool> gradient_out;                 ///< Per module: its output wants a gradient.
  /// Per module, per draw: prefix sums over a random order of samples (milliseconds, bytes). One
  /// draw of the mean for `entrain`.
  std::vector<std::vector<std::vector<double>>> time_ms;
  /// The same for activations, of 64 draws whatever the objective.
  std::vector<std::vector<std::vector<double>>> activation_bytes;
  std::vector<double> boundary_bytes;  ///< Per module, mean of a sample.
  /// The same prefix sums over what a module hands on; empty where rows do not count.
  std::vector<std::vector<std::vector<double>>> row_bytes;

  /// Module time of a microbatch of `count` samples in one draw.
  double time_of(std::int32_t module, std::size_t draw, std::int64_t count) const;
  /// Largest activations of a microbatch of `count` samples over the draws.
  double largest_activations(std::int32_t module, std::int64_t count) const;
  /// The same of what it hands to the llm; 0 where it feeds another module, or rows do not count.
  double largest_rows(const LayoutInput& input, std::int32_t module, std::int64_t count) const;
};

/// Checks the input and derives the facts.
///
/// Errors: invalid_argument, as `search_layout`.
Result<LayoutFacts> layout_facts(const LayoutInput& input);

/// One way to lay out one module, for a given number of microbatches.
struct LayoutOption {
  std::int32_t tp = 1, cp = 1, pp = 1, dp = 1;
  std::int32_t devices = 1;
  std::int64_t samples = 1;  ///< Per microbatch and replica.
  /// Whole module on one device, per draw; shared by all options with these `samples`.
  std::shared_ptr<const std::vector<double>> module_ms;
  double stage_factor = 1;      ///< What the slowest stage takes of it.
  double mean_stage_ms = 0;     ///< Mean of the slowest stage.
  double fill_ms = 0;           ///< All stages once, mean.
  double state_bytes = 0;       ///< Of the most loaded device.
  double activation_bytes = 0;  ///< Of one microbatch in flight on that device.
  double offloaded_bytes = 0;   ///< Of these.
  double leaving_bytes = 0;     ///< Of its state.
  double row_bytes = 0;  ///< That one hands to the llm, all of it; 0 where rows do not count.
  double update_ms = 0;  ///< Sum of that device's gradients, and its update.
};

/// What modules that share their devices need there at least, on the most loaded device of each.
struct SharedBytes {
  double all = 0;             ///< State, and a microbatch of each module.
  double llm = 0;             ///< Of these the llm's microbatch,
  double leaving = 0;         ///< parameters that are in host memory beside it,
  double offloaded = 0;       ///< and activations that are.
  double most_offloaded = 0;  ///< Of one module.

  void add(const LayoutOption& option, bool is_llm);

  /// Beside the llm's microbatch is nothing that is offloaded or leaves, and what is offloaded is
  /// there one module after the other.
  double at_once() const;
};

/// Options of a module that fit `most_devices`, by mean_stage_ms, then devices. Of pipeline degrees
/// with the same largest stage only the smallest is listed. `microbatches` is the count per step
/// and replica; `dp` lists the degrees to try; those that do not divide the batch are left out.
std::vector<LayoutOption> layout_options(const LayoutInput& input, const LayoutFacts& facts,
                                         std::int32_t module, std::int64_t microbatches,
                                         const std::vector<std::int32_t>& dp,
                                         std::int32_t most_devices);

}  // namespace troupe::scheduler
