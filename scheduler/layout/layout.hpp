// Layout search: for each module its own tensor, context, pipeline and data parallelism.
//
// Pure. Two published objectives over one search: Entrain (section 4.4.3, algorithm 3) and DFLOP
// (section 3.3, equations 1 to 5).

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

/// A module as the search sees it: equal layers.
struct LayoutModule {
  std::string name;
  std::vector<std::int32_t> next;  ///< Modules that take its output; the llm has none.
  bool freeze = false;
  std::int32_t layers = 1;
  double state_bytes = 0;  ///< Parameters, gradients and optimizer state of the whole module.
  std::vector<std::int32_t> valid_tp = {1};
  std::vector<std::int32_t> valid_cp = {1};
  /// How much faster than one device (tp, cp) is; missing: tp x cp.
  std::map<std::pair<std::int32_t, std::int32_t>, double> speedup;
  /// Of the whole module, added up over its replicas in every step; 0: none, and no update.
  double gradient_bytes = 0;
  // With `shared` placement, of modules other than the llm; the published searches move nothing.
  double offloaded_share = 0;  ///< Of activations, in host memory while the llm computes; 0 to 1.
  double leaving_bytes = 0;    ///< Of `state_bytes`: parameters that are there meanwhile.
};

/// One sample in one module, on one device.
struct ModuleSample {
  double forward_ms = 0;
  double backward_ms = 0;  ///< As the module is trained; ignored where nothing needs a gradient.
  double activation_bytes = 0;
  double boundary_bytes = 0;  ///< Output rows handed to each next module.
};

enum class Placement {
  disjoint,  ///< Every module on devices of its own; all work at once.
  shared,    ///< All on the same devices, one after the other, as in schedules of phases.
};

enum class LayoutObjective {
  entrain,  ///< One dp; longest path of fills + (K - 1) x slowest stage + resharding, on the mean.
  dflop,    ///< Own dp; mean over microbatches of (N_mb + depth - 1) x slowest stage.
};

struct LayoutInput {
  std::vector<LayoutModule> modules;
  std::vector<std::vector<ModuleSample>> samples;  ///< [sample][module].
  std::int32_t devices = 1;
  std::int32_t devices_per_node = 1;
  double device_memory_bytes = 0;
  std::int64_t global_batch = 1;
  std::vector<std::int64_t> microbatch_sizes;  ///< Of the llm, in samples.
  double node_gigabytes_per_s = 0;             ///< 0: transfers inside a node cost nothing.
  double network_gigabytes_per_s = 0;          ///< 0: transfers between nodes cost nothing.
  double update_gigabytes_per_s = 0;           ///< State that a device updates; 0: in no time.
  Placement placement = Placement::disjoint;
  /// With `shared` placement: rows between encoders and llm take room as they do in steps. The
  /// published searches count none.
  bool counts_rows = false;
  LayoutObjective objective = LayoutObjective::entrain;
  std::uint64_t seed = 0;
};

struct ModuleLayout {
  std::int32_t tp = 1, cp = 1, pp = 1, dp = 1;
  std::vector<std::int32_t> cuts;  ///< Stage s holds layers [cuts[s], cuts[s + 1]).
  double memory_bytes = 0;         ///< Of its most loaded device, this module alone.
  /// The same in host memory while the llm computes; 0 but with `shared` placement.
  double host_memory_bytes = 0;

  std::int32_t devices() const { return tp * cp * pp * dp; }
};

struct LayoutChoice {
  std::vector<ModuleLayout> modules;
  std::int64_t microbatch_size = 0;
  double expected_step_ms = 0;
  std::int64_t evaluated = 0;  ///< Whole layouts that were costed.
};

/// Finds the layout with the least expected step time that fits.
///
/// Model. A stage of a module on (tp, cp) takes the module's time / speedup x its share of layers,
/// forward and backward together; layers are cut as evenly as possible. A frozen module with
/// nothing trainable before it has no backward. Per device: state / tp x share of layers, and
/// activations of the heaviest drawn microbatch / (tp x cp) x share of layers x microbatches in
/// flight (stages from here to the sink, at most all microbatches). tp x cp stays inside a node.
/// Layouts need not use every device.
///
/// `entrain` looks at all splits of a replica's devices, not only at the proportional one, and lets
/// encoders that do not feed each other work side by side. It adds, for adjacent modules whose
/// (tp, cp) differ, their boundary bytes there and (if trained) back at the speed of the link: of
/// the node if a replica fits into one, else of the network. `dflop` draws 64 microbatches from the
/// samples (seeded); an encoder's microbatch has global_batch / (N_mb x dp) samples.
///
/// A step ends with the sum of gradients and the update of the module that takes longest for them
/// (with `shared` placement of all, one after the other): of n holders (dp x cp) each moves an nth
/// of a device's gradients n - 1 times twice, where several stand on a node first among themselves;
/// then a device updates its state.
///
/// With `shared` placement the modules' own step times add up, and so does their memory on a
/// device. Encoders keep the microbatches of a window beside those that the llm has in flight,
/// where both divide what state leaves of a device as steps do (`divide_room`). With `counts_rows`
/// rows that wait for the llm, or gradients that come back for encoders, count with each microbatch
/// of a window, as if a device had the llm's first stage and the encoders' last ones: those of the
/// heaviest drawn microbatch, / cp of who keeps them. Each further window fills and drains every
/// module anew. What rows need never excludes a layout, and is in no module's `memory_bytes`. An
/// llm with fewer microbatches in flight than it has stages, or microbatches where these are fewer,
/// is slower by as much. What is in host memory meanwhile takes no room beside the llm's, and its
/// moves are for the caller to count among the times of samples.
///
/// Ties: fewer devices, then the order in which options are listed (tp, cp, pp, dp ascending).
///
/// Cost: branch and bound over the modules from the llm upwards; 1,024 devices take milliseconds.
///
/// Errors:
/// - invalid_argument: no modules, samples or sizes, a list of the wrong length, a value that is
///   negative or not finite, a graph that has a circle or not exactly one module without next.
/// - infeasible: nothing fits. The message names the rule that failed (batch, devices or memory)
///   and the nearest value that works.
Result<LayoutChoice> search_layout(const LayoutInput& input);

}  // namespace troupe::scheduler
