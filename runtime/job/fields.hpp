// The keys of the job file: for each section one function that names every key, the member it
// fills and the values it takes. Reading, writing and "did you mean" all walk these.
//
// Private to runtime/job. A visitor offers flag, integer, number, pair, text, choice, path, paths,
// duration; `S` is the section, const for a writer. To add a key: a member in job.hpp, a line here.

#pragma once

#include <limits>
#include <string>
#include <vector>

#include "models/family/family.hpp"
#include "runtime/job/field_values.hpp"
#include "runtime/job/job.hpp"

namespace troupe::job {

template <class V, class S>
void describe_identity(V& v, S& x) {
  v.text("name", x.name);
  v.integer("seed", x.seed, {0, std::numeric_limits<std::int64_t>::max()});
  v.output_path("run_dir", x.run_dir);
}

template <class V, class S>
void describe_plugins(V& v, S& x) {
  v.input_paths("libraries", x.libraries);
}

/// `formats`: their names.
template <class V, class S>
void describe_source(V& v, S& x, const std::vector<std::string>& formats) {
  v.word("format", x.format, formats);
  v.input_path("json", x.json);
  v.input_path("media", x.media);
  v.numbers("nodes", x.nodes, {0, kSmallCount.max - 1});
}

template <class V, class S>
void describe_data(V& v, S& x) {
  v.integer("max_pixels", x.max_pixels, {1, 1 << 30});
  v.integer("min_pixels", x.min_pixels, {1, 1 << 30});
  v.integer("max_seq_len", x.max_seq_len, {1, 1 << 30});
  v.number("max_bad_fraction", x.max_bad_fraction, {0, 1});
  v.flag("shuffle", x.shuffle);
  v.integer("prefetch", x.prefetch, {1, 1024});
  v.integer("threads", x.threads, {1, 1024});
  v.flag("pad_audio", x.pad_audio);
  v.number("read_timeout_s", x.read_timeout_s, kSeconds);
  v.text("index", x.index);
}

template <class V, class S>
void describe_train(V& v, S& x) {
  v.duration(x.duration);
  v.integer("global_batch_size", x.global_batch_size, {1, 100'000'000});
  v.integer("microbatches", x.microbatches, {1, 1'000'000});
  v.choice("dtype", x.dtype, kDtypes);
  v.flag("recompute", x.recompute);
  v.flag("deterministic", x.deterministic);
  v.flag("dump_gradients", x.dump_gradients);
  v.integer("max_nonfinite_in_a_row", x.max_nonfinite_in_a_row, kSmallCount);
  v.number("stall_timeout_s", x.stall_timeout_s, kSeconds);
}

template <class V, class S>
void describe_optimizer(V& v, S& x) {
  v.number("lr", x.lr, {1e-12, 1000});
  v.number("min_lr", x.min_lr, {0, 1000});
  v.integer("warmup_steps", x.warmup_steps, {0, kCountMax});
  v.number("weight_decay", x.weight_decay, {0, 1000});
  v.pair("betas", x.beta1, x.beta2, {0, 0.999999999});
  v.number("eps", x.eps, {1e-30, 1});
  v.number("max_grad_norm", x.max_grad_norm, {0, 1e30});
}

/// `schedules`: their names.
template <class V, class S>
void describe_scheduler(V& v, S& x, const std::vector<std::string>& schedules) {
  v.word("schedule", x.schedule, schedules);
  v.input_path("profile", x.profile);
  v.integer("max_in_flight", x.max_in_flight, {0, 1'000'000});
  v.word("offload_encoders", x.offload_encoders, kOffloads);
  v.word("boundary", x.boundary, kBoundaries);
}

/// `policies`: their names.
template <class V, class S>
void describe_balancer(V& v, S& x, const std::vector<std::string>& policies) {
  v.word("dealing", x.dealing, kDealings);
  v.word("exchange", x.exchange, kExchanges);
  v.word("items", x.items, kItemUnits);
  v.word("policy", x.policy, policies);
  v.integer("evaluations", x.evaluations, {1, 1'000'000});
  v.flag("adaptive_correction", x.adaptive_correction);
}

/// `devices`: their names.
template <class V, class S>
void describe_cluster(V& v, S& x, const std::vector<std::string>& devices) {
  v.integer("local_nodes", x.local_nodes, {0, 1024});
  v.integer("nodes", x.nodes, kSmallCount);
  v.integer("devices_per_node", x.devices_per_node, {1, 1024});
  v.word("device", x.device, devices);
  v.integer("threads_per_device", x.threads_per_device, {1, 1024});
  v.number("device_memory_gib", x.device_memory_gib, {0, 1'000'000});
  v.number("device_tflops", x.device_tflops, {0, 1'000'000});
  v.integer("fault_tolerance", x.fault_tolerance, {0, 100'000});
  v.integer("spares", x.spares, {0, 100'000});
  v.integer("min_nodes", x.min_nodes, {0, 100'000});
  v.text("listen", x.listen);
  v.input_path("key", x.key);
  v.text("data_interface", x.data_interface);
  v.word("transport", x.transport, kTransports);
  v.word("sums", x.sums, kSums);
  v.word("rows", x.rows, kRows);
  v.number("sum_timeout_s", x.sum_timeout_s, kSeconds);
  v.number("join_timeout_s", x.join_timeout_s, kSeconds);
  v.number("open_timeout_s", x.open_timeout_s, kSeconds);
  v.number("heartbeat_interval_s", x.heartbeat_interval_s, kSeconds);
  v.number("heartbeat_timeout_s", x.heartbeat_timeout_s, kSeconds);
  v.number("head_timeout_s", x.head_timeout_s, {0, kSeconds.max});
  v.number("stop_timeout_s", x.stop_timeout_s, kSeconds);
  v.number("drain_timeout_s", x.drain_timeout_s, kSeconds);
}

template <class V, class S>
void describe_checkpoint(V& v, S& x) {
  v.integer("every_steps", x.every_steps, {0, kCountMax});
  v.number("every_minutes", x.every_minutes, {0, 1'000'000});
  v.integer("keep_last", x.keep_last, {0, 1'000'000});
  v.output_path("dir", x.dir);
  v.number("timeout_s", x.timeout_s, kSeconds);
}

template <class V, class S>
void describe_recovery(V& v, S& x) {
  v.flag("from_checkpoint", x.from_checkpoint);
  v.number("wait_for_nodes_s", x.wait_for_nodes_s, {0, kSeconds.max});
  v.flag("drain_slow", x.drain_slow);
}

template <class V, class S>
void describe_observe(V& v, S& x) {
  v.text("metrics_listen", x.metrics_listen);
}

/// `observers`: their names.
template <class V, class S>
void describe_watch(V& v, S& x, const std::vector<std::string>& observers) {
  v.word("name", x.name, observers);
  v.text("module", x.module);
  v.flag("rows", x.rows);
  v.flag("gradients", x.gradients);
  v.flag("losses", x.losses);
  v.integer("every_steps", x.every_steps, {1, kCountMax});
  v.integer("queue", x.queue, {1, 1'000'000});
  v.text("options", x.options);
}

template <class V, class S>
void describe_debug(V& v, S& x) {
  v.flag("parameter_hashes", x.parameter_hashes);
  v.number("delayed_device_ms", x.delayed_device_ms, {0, 1000});
  v.integer("warm_up_bytes", x.warm_up_bytes, {0, kCountMax});
}

template <class V, class S>
void describe_slow_shape(V& v, S& x) {
  v.text("module", x.module);
  v.integer("min_rows", x.min_rows, {0, kCountMax});
  v.integer("max_rows", x.max_rows, {0, kCountMax});
  v.number("factor", x.factor, {1, 1000});
  v.flag("per_sample", x.per_sample);
  v.integer("node", x.node, {0, kSmallCount.max});
  v.integer("from_step", x.from_step, {1, kCountMax});
  v.integer("to_step", x.to_step, {0, kCountMax});
}

template <class V, class S>
void describe_later_layout(V& v, S& x) {
  v.integer("from_step", x.step, {2, kCountMax});
}

template <class V, class S>
void describe_module_layout(V& v, S& x) {
  v.integer("tp", x.tp, kSmallCount);
  v.integer("cp", x.cp, kSmallCount);
  v.integer("pp", x.pp, kSmallCount);
  v.integer("dp", x.dp, kSmallCount);
}

/// All of a module but its `config`; `kind` and `family` come first, because that depends on them.
template <class V, class S>
void describe_module(V& v, S& x) {
  v.choice("kind", x.kind, kModuleKinds);
  v.text("family", x.family);
  v.text("next", x.next);
  v.flag("freeze", x.freeze);
  v.number("lr", x.lr, {0, 1000});
  v.number("initializer_range", x.initializer_range, {0, 1000});
  if (x.kind == ModuleKind::llm) v.choice("attention", x.attention, kAttentionRules);
}

/// Lets a family name its keys to a visitor.
template <class V>
class ConfigWalk final : public models::ConfigFields {
 public:
  explicit ConfigWalk(V& visitor) : v_(visitor) {}

  void flag(const char* key, bool& x) override { v_.flag(key, x); }
  void integer(const char* key, std::int32_t& x, std::int64_t min, std::int64_t max) override {
    v_.integer(key, x, Range<std::int64_t>{min, max});
  }
  void number(const char* key, double& x, double min, double max) override {
    v_.number(key, x, Range<double>{min, max});
  }
  void word(const char* key, std::string& x, const std::vector<std::string>& words) override {
    v_.word(key, x, words);
  }

 private:
  V& v_;
};

/// Walks the keys of `[modules.NAME.config]`, which are the family's.
template <class V>
void describe_config(V& v, const models::Family& family, FamilyConfig& config) {
  ConfigWalk<V> walk(v);
  family.fields(walk, config);
}

}  // namespace troupe::job
