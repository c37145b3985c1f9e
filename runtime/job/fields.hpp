// The keys of the job file: for each section one function that names every key, the member it
// fills and the values it takes. Reading, writing and "did you mean" all walk these.
//
// Private to runtime/job. A visitor offers flag, integer, number, pair, text, choice, path,
// duration; `S` is the section, const for a writer. To add a key: a member in job.hpp, a line here.

#pragma once

#include <limits>

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
void describe_source(V& v, S& x) {
  v.word("format", x.format, kFormats);
  v.input_path("json", x.json);
  v.input_path("media", x.media);
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
}

template <class V, class S>
void describe_train(V& v, S& x) {
  v.duration(x.duration);
  v.integer("global_batch_size", x.global_batch_size, {1, 100'000'000});
  v.integer("microbatches", x.microbatches, {1, 1'000'000});
  v.choice("dtype", x.dtype, kDtypes);
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

template <class V, class S>
void describe_scheduler(V& v, S& x) {
  v.word("schedule", x.schedule, kSchedules);
  v.input_path("profile", x.profile);
  v.integer("max_in_flight", x.max_in_flight, {0, 1'000'000});
}

template <class V, class S>
void describe_balancer(V& v, S& x) {
  v.word("dealing", x.dealing, kDealings);
  v.word("exchange", x.exchange, kExchanges);
  v.word("policy", x.policy, kPolicies);
  v.integer("evaluations", x.evaluations, {1, 1'000'000});
  v.flag("adaptive_correction", x.adaptive_correction);
}

template <class V, class S>
void describe_cluster(V& v, S& x) {
  v.integer("local_nodes", x.local_nodes, {0, 1024});
  v.integer("nodes", x.nodes, kSmallCount);
  v.integer("devices_per_node", x.devices_per_node, {1, 1024});
  v.word("device", x.device, kDevices);
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
  v.number("join_timeout_s", x.join_timeout_s, kSeconds);
  v.number("heartbeat_interval_s", x.heartbeat_interval_s, kSeconds);
  v.number("heartbeat_timeout_s", x.heartbeat_timeout_s, kSeconds);
  v.number("head_timeout_s", x.head_timeout_s, {0, kSeconds.max});
  v.number("stop_timeout_s", x.stop_timeout_s, kSeconds);
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

template <class V, class S>
void describe_debug(V& v, S& x) {
  v.flag("parameter_hashes", x.parameter_hashes);
}

template <class V, class S>
void describe_slow_shape(V& v, S& x) {
  v.text("module", x.module);
  v.integer("min_rows", x.min_rows, {0, kCountMax});
  v.integer("max_rows", x.max_rows, {0, kCountMax});
  v.number("factor", x.factor, {1, 1000});
  v.flag("per_sample", x.per_sample);
  v.integer("node", x.node, {0, kSmallCount.max});
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
}

// Hyperparameters in Hugging Face's names. One overload per family's values.

template <class V>
void describe_vision(V& v, auto& x) {
  v.integer("depth", x.depth, {1, 10'000});
  v.integer("embed_dim", x.embed_dim, kWidth);
  v.integer("num_heads", x.num_heads, kWidth);
  v.number("mlp_ratio", x.mlp_ratio, {0.01, 1000});
  v.integer("hidden_size", x.hidden_size, kWidth);
  v.integer("patch_size", x.patch_size, {1, 1024});
  v.integer("spatial_merge_size", x.spatial_merge_size, {1, 64});
  v.integer("temporal_patch_size", x.temporal_patch_size, {1, 64});
  v.integer("in_channels", x.in_channels, {1, 64});
}

template <class V>
void describe_audio(V& v, auto& x) {
  v.integer("encoder_layers", x.encoder_layers, {1, 10'000});
  v.integer("d_model", x.d_model, kWidth);
  v.integer("encoder_attention_heads", x.encoder_attention_heads, kWidth);
  v.integer("encoder_ffn_dim", x.encoder_ffn_dim, kWidth);
  v.integer("num_mel_bins", x.num_mel_bins, {1, 201});
  v.integer("max_source_positions", x.max_source_positions, {1, 1 << 20});
}

template <class V>
void describe_projector(V& v, auto& x) {
  v.integer("input_size", x.input_size, {0, 1 << 20});
  v.integer("hidden_size", x.hidden_size, {0, 1 << 20});
  v.integer("output_size", x.output_size, {0, 1 << 20});
}

template <class V>
void describe_llm(V& v, auto& x) {
  v.integer("num_hidden_layers", x.num_hidden_layers, {1, 10'000});
  v.integer("hidden_size", x.hidden_size, kWidth);
  v.integer("intermediate_size", x.intermediate_size, kWidth);
  v.integer("num_attention_heads", x.num_attention_heads, kWidth);
  v.integer("num_key_value_heads", x.num_key_value_heads, kWidth);
  v.integer("head_dim", x.head_dim, {0, 1 << 20});
  v.integer("vocab_size", x.vocab_size, {1, 1 << 26});
  v.number("rms_norm_eps", x.rms_norm_eps, {1e-30, 1});
  v.number("rope_theta", x.rope_theta, {1, 1e12});
  v.flag("tie_word_embeddings", x.tie_word_embeddings);
}

/// Walks the config of whatever family `config` holds.
template <class V, class Variant>
void describe_config(V& v, Variant& config) {
  if (auto* vision = std::get_if<VisionConfig>(&config)) describe_vision(v, *vision);
  if (auto* audio = std::get_if<AudioConfig>(&config)) describe_audio(v, *audio);
  if (auto* projector = std::get_if<ProjectorConfig>(&config)) describe_projector(v, *projector);
  if (auto* llm = std::get_if<LlmConfig>(&config)) describe_llm(v, *llm);
}

}  // namespace troupe::job
