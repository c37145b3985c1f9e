// A training job as the user described it: one value, complete, checked, with every default filled.
//
// What it is for: the only thing the rest of the program reads settings from. Plain values, no
// I/O; made by load_job.hpp, which alone knows TOML. Keys of the job file are the member names
// (`train.global_batch_size` is `job.train.global_batch_size`); every default stands here.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/cluster.hpp"
#include "runtime/observers/watch.hpp"
#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/model_config.hpp"

namespace troupe::job {

/// `[job]`: what the run is called and where it writes.
struct Identity {
  std::string name = "job";       ///< Letters, digits, `-`, `_`, `.`.
  std::uint64_t seed = 42;        ///< Of initial weights and of the data order.
  std::filesystem::path run_dir;  ///< Default `runs/<name>`; relative to the current directory.

  friend bool operator==(const Identity&, const Identity&) = default;
};

/// `[parallel.NAME]`: degrees of one module that the planner must keep; none: it may choose.
struct ModuleLayout {
  std::optional<std::int32_t> tp, cp, pp, dp;

  friend bool operator==(const ModuleLayout&, const ModuleLayout&) = default;
};

enum class LayoutMode : std::uint8_t {
  automatic,  ///< "auto": the planner chooses.
  manual,     ///< "manual": the layout by hand.
};

/// `[parallel]`. `layout` is empty if and only if the mode is automatic. A projector that no
/// stage names sits beside its encoder's last layer; the planner places it.
struct Parallel {
  LayoutMode mode = LayoutMode::automatic;      ///< Default: manual where pipelines are given.
  HandLayout layout;                            ///< Written by hand.
  std::map<std::string, ModuleLayout> modules;  ///< By module name; only those given.

  friend bool operator==(const Parallel&, const Parallel&) = default;
};

/// One `[[data.sources]]`. Paths are absolute after loading.
struct DataSource {
  std::string format = "llava";  ///< Or one of a plug-in.
  std::filesystem::path json;    ///< The list of samples.
  std::filesystem::path media;   ///< Folder that image and audio paths start from; default: json's.
  /// Nodes that see it, by number, ascending; none: all of them.
  std::vector<std::int32_t> nodes = {};

  friend bool operator==(const DataSource&, const DataSource&) = default;
};

/// Words of `data.index` that name no folder.
inline constexpr const char* kIndexAuto = "auto";
inline constexpr const char* kIndexOff = "off";  ///< Nothing is kept.

/// `[data]`.
struct Data {
  std::vector<DataSource> sources;    ///< At least one.
  std::int64_t max_pixels = 1003520;  ///< Budget of one image after resizing.
  std::int64_t min_pixels = 3136;
  std::int64_t max_seq_len = 4096;  ///< Tokens of one sample, media rows included; longer: dropped.
  double max_bad_fraction = 0.001;  ///< Share of bad samples above which the run stops.
  bool shuffle = true;              ///< Seeded order per epoch; false: order of the files.
  std::int32_t prefetch = 2;        ///< Batches decoded ahead of training; >= 1.
  std::int32_t threads = 1;         ///< Decoding threads per node; >= 1.
  bool pad_audio = false;           ///< Pad every audio window to 30 s, as Whisper's own training.
  double read_timeout_s = 300;      ///< For one file; a job whose file system hangs ends after it.
  /// Where lengths that were read are kept: a folder, absolute after loading, or a word above.
  std::string index = kIndexAuto;

  friend bool operator==(const Data&, const Data&) = default;
};

enum class DurationUnit : std::uint8_t { steps, epochs, samples, tokens };

/// How long to train. Samples and tokens end with the first step that reaches them; tokens are
/// llm tokens, media rows included.
struct Duration {
  DurationUnit unit = DurationUnit::steps;
  std::int64_t amount = 1;  ///< >= 1.

  /// The amount, where it is one of tokens; else 0.
  std::int64_t tokens() const { return unit == DurationUnit::tokens ? amount : 0; }
  friend bool operator==(const Duration&, const Duration&) = default;
};

/// `[train]`.
struct Train {
  Duration duration;                    ///< Exactly one of the keys steps, epochs, samples, tokens.
  std::int64_t global_batch_size = 16;  ///< Samples per optimizer step, over all pipelines.
  std::int64_t microbatches = 4;        ///< Mean per pipeline and step; <= global_batch_size.
  Dtype dtype = Dtype::fp32;
  bool recompute = false;                   ///< Layers keep their input and run again in backward.
  bool deterministic = true;                ///< Of accelerators' operators; sums: `cluster.sums`.
  bool dump_gradients = false;              ///< Writes gradients/step-1.safetensors.
  std::int32_t max_nonfinite_in_a_row = 5;  ///< Skipped steps after which the run stops; >= 1.
  double stall_timeout_s = 3600;  ///< Of a step, and ten of the longest: ends the job, or a node.

  friend bool operator==(const Train&, const Train&) = default;
};

/// `[optimizer]`: AdamW with linear warm-up, then a cosine from `lr` to `min_lr`.
struct Optimizer {
  double lr = 1e-3;  ///< Peak; a module's own `lr` replaces it there.
  double min_lr = 0;
  std::int64_t warmup_steps = 0;
  double weight_decay = 0.01;  ///< Only on tensors of two or more dimensions.
  double beta1 = 0.9;          ///< `betas = [0.9, 0.95]` in the job file.
  double beta2 = 0.95;
  double eps = 1e-8;
  double max_grad_norm = 1;  ///< Over all parameters; 0: no clipping.

  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

/// `[scheduler]`: what every device does in which order.
struct Scheduler {
  std::string schedule = "1f1b";  ///< A schedule of `troupe solve schedule`.
  /// A file that `troupe profile` wrote. Empty: the newest one that fits, or measured at the start.
  std::filesystem::path profile;
  /// Most microbatches in flight per stage; 0: as the schedule likes. One that cannot is refused.
  std::int32_t max_in_flight = 0;
  /// What encoders have in host memory while nothing needs it: "off", nothing; "activations" that
  /// forwards keep, or "parameters" while the llm computes, under a schedule of phases; "moments"
  /// and masters but for the update, under any; "both" activations and moments; "all".
  std::string offload_encoders = "off";
  /// How rows go from one module to the next where both have replicas or grids of their own:
  /// "direct", "leader", "gather-scatter", or "auto", the one that is predicted to take least.
  std::string boundary = "auto";

  bool offloads(std::string_view what) const {  ///< "activations", "moments" or "parameters".
    return offload_encoders == what || offload_encoders == "all" ||
           (offload_encoders == "both" && what != "parameters");
  }

  friend bool operator==(const Scheduler&, const Scheduler&) = default;
};

/// `[balancer]`: which sample goes into which microbatch.
struct Balancer {
  /// How samples are shared out to pipelines, and to the llm replicas of a pipeline: by predicted
  /// work, or as many to each as its speed asks for.
  std::string dealing = "work";
  /// Whether encoders share the samples of a batch out among all their replicas, whoever trains
  /// them: "off", "per-phase", or "auto", which does where the step is predicted to be no longer.
  std::string exchange = "off";
  /// What of a sample an exchange moves: "whole" samples, or "ranges" of one's pictures and sounds.
  std::string items = "ranges";
  std::string policy = "in-order";  ///< A policy of `troupe balance`.
  /// Plans that "auto" may cost per pipeline and step, and thousands of exchanges that a search
  /// may look at: more plan better and take longer.
  std::int64_t evaluations = 200;
  /// Correct predictions of the profile by measured times while that pays.
  bool adaptive_correction = false;

  friend bool operator==(const Balancer&, const Balancer&) = default;
};

/// `[plugins]`: code of the user's own. It is loaded before the modules are read, on every node.
struct Plugins {
  std::vector<std::filesystem::path> libraries;  ///< Shared libraries made by `TROUPE_PLUGIN`.

  friend bool operator==(const Plugins&, const Plugins&) = default;
};

/// `[observe]`: how a running job can be watched.
struct Observation {
  /// Where Prometheus finds its figures: HOST:PORT, or a port, which is then on the loopback; port
  /// 0: any free one. Empty: nowhere. Whoever reaches the address can read them.
  std::string metrics_listen;
  std::vector<observers::Watch> observers;  ///< Of the user's own.

  friend bool operator==(const Observation&, const Observation&) = default;
};

/// One `[[debug.slow_shapes]]`: forwards and backwards of a module over this many rows take
/// `factor` times as long, as with a bad kernel for these sizes; on one node, as on a slow machine.
/// With `per_sample` each sample's share of the rows counts by itself, not all rows of a part.
struct SlowShape {
  std::string module;
  std::int64_t min_rows = 0;
  std::int64_t max_rows = 0;  ///< Included.
  double factor = 1;          ///< >= 1.
  bool per_sample = false;
  std::optional<std::int32_t> node;         ///< None: on all nodes.
  std::int64_t from_step = 1, to_step = 0;  ///< The last one included; 0: to the end.

  friend bool operator==(const SlowShape&, const SlowShape&) = default;
};

/// One `[[debug.layouts]]`: from this step on the job runs on this layout.
struct LaterLayout {
  std::int64_t step = 2;  ///< >= 2; ascending.
  HandLayout layout;

  friend bool operator==(const LaterLayout&, const LaterLayout&) = default;
};

/// `[debug]`: hooks of tests; they never change what is computed unless they say so.
struct Debug {
  bool parameter_hashes = false;  ///< Compares hashes of all holders' state at every COMMIT.
  std::vector<SlowShape> slow_shapes;
  /// Changes of the layout while the job runs. Devices may then idle, in `[parallel]` too.
  std::vector<LaterLayout> layouts;
  /// Above 0: work of a device completes up to so many milliseconds late, on a thread of its own.
  double delayed_device_ms = 0;
  /// Above 0: who joins takes over so many bytes of state during a step, and does so always.
  std::int64_t warm_up_bytes = 0;

  friend bool operator==(const Debug&, const Debug&) = default;
};

/// The whole job. `modules` stand in topological order, the llm last, `next` filled.
struct Job {
  Identity job;
  Plugins plugins;
  std::vector<ModuleConfig> modules;
  Parallel parallel;
  Data data;
  Train train;
  Optimizer optimizer;
  Scheduler scheduler;
  Balancer balancer;
  Checkpointing checkpoint;
  Cluster cluster;
  Recovery recovery;
  Observation observe;
  Debug debug;

  /// Where its checkpoints are.
  std::filesystem::path checkpoint_dir() const {
    return checkpoint.dir.empty() ? job.run_dir / "checkpoints" : checkpoint.dir;
  }
  friend bool operator==(const Job&, const Job&) = default;
};

}  // namespace troupe::job
