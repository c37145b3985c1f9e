#include "runtime/job/key_help.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/job/key_list.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::job {

namespace {

using Alias = std::pair<std::string_view, std::string_view>;

/// Names of the same thing in Megatron, torchtitan, VeOmni, Hugging Face, LLaMA-Factory, nanotron.
constexpr auto kAliases = std::to_array<Alias>({
    {"tensor_model_parallel_size", "parallel.NAME.tp"},
    {"tensor_parallel_degree", "parallel.NAME.tp"},
    {"tensor_parallel_size", "parallel.NAME.tp"},
    {"tp_size", "parallel.NAME.tp"},
    {"pipeline_model_parallel_size", "parallel.NAME.pp"},
    {"pipeline_parallel_degree", "parallel.NAME.pp"},
    {"pp_size", "parallel.NAME.pp"},
    {"context_parallel_size", "parallel.NAME.cp"},
    {"context_parallel_degree", "parallel.NAME.cp"},
    {"sequence_parallel_size", "parallel.NAME.cp"},
    {"cp_size", "parallel.NAME.cp"},
    {"ulysses_size", "parallel.NAME.cp"},
    {"sp_size", "parallel.NAME.cp"},
    {"data_parallel_size", "parallel.NAME.dp"},
    {"data_parallel_replicate_degree", "parallel.NAME.dp"},
    {"data_parallel_shard_degree", "parallel.NAME.dp"},
    {"dp_shard_size", "parallel.NAME.dp"},
    {"dp_size", "parallel.NAME.dp"},
    {"micro_batch_size", "train.microbatches (how many, not how large)"},
    {"per_device_train_batch_size", "train.microbatches (how many, not how large)"},
    {"gradient_accumulation_steps", "train.microbatches"},
    {"batch_accumulation_per_replica", "train.microbatches"},
    {"num_microbatches", "train.microbatches"},
    {"batch_size", "train.global_batch_size"},
    {"train_batch_size", "train.global_batch_size"},
    {"seq_length", "data.max_seq_len"},
    {"sequence_length", "data.max_seq_len"},
    {"max_length", "data.max_seq_len"},
    {"cutoff_len", "data.max_seq_len"},
    {"max_context_length", "data.max_seq_len"},
    {"train_iters", "train.steps"},
    {"train_steps", "train.steps"},
    {"max_steps", "train.steps"},
    {"iterations", "train.steps"},
    {"train_samples", "train.samples"},
    {"num_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"learning_rate", "optimizer.lr"},
    {"vit_lr", "modules.vision.lr"},
    {"aligner_lr", "modules.NAME.lr of the projector"},
    {"mm_projector_lr", "modules.NAME.lr of the projector"},
    {"mm_vision_tower_lr", "modules.vision.lr"},
    {"lr_min", "optimizer.min_lr"},
    {"min_lr_factor", "optimizer.min_lr (a rate, not a factor)"},
    {"lr_warmup_fraction", "optimizer.warmup_steps (steps, not a fraction)"},
    {"lr_warmup_ratio", "optimizer.warmup_steps (steps, not a ratio)"},
    {"warmup_ratio", "optimizer.warmup_steps (steps, not a ratio)"},
    {"lr_warmup_iters", "optimizer.warmup_steps"},
    {"clip_grad", "optimizer.max_grad_norm"},
    {"max_norm", "optimizer.max_grad_norm"},
    {"gradient_clipping", "optimizer.max_grad_norm"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_eps", "optimizer.eps"},
    {"adam_epsilon", "optimizer.eps"},
    {"freeze_vit", "modules.vision.freeze"},
    {"freeze_vision_model", "modules.vision.freeze"},
    {"freeze_vision_tower", "modules.vision.freeze"},
    {"freeze_audio_tower", "modules.audio.freeze"},
    {"freeze_llm", "modules.llm.freeze"},
    {"freeze_language_model", "modules.llm.freeze"},
    {"freeze_aligner", "modules.NAME.freeze of the projector"},
    {"freeze_vision_projection", "modules.NAME.freeze of the projector"},
    {"image_max_pixels", "data.max_pixels"},
    {"image_min_pixels", "data.min_pixels"},
    {"output_dir", "job.run_dir"},
    {"save_dir", "job.run_dir"},
    {"random_seed", "job.seed"},
    {"precision", "train.dtype"},
    {"torch_dtype", "train.dtype"},
    {"bf16", "train.dtype = \"bf16\""},
    {"gradient_checkpointing", "train.recompute"},
    {"enable_gradient_checkpointing", "train.recompute"},
    {"activation_checkpoint", "train.recompute"},
    {"recompute_granularity", "train.recompute (every layer, or none)"},
    {"recompute_activations", "train.recompute"},
    {"deterministic_mode", "train.deterministic"},
    {"full_determinism", "train.deterministic"},
    {"images", "media"},
    {"image_folder", "media"},
    {"json_path", "json"},
    {"data_path", "json"},
    {"num_workers", "data.threads"},
    {"nnodes", "cluster.nodes"},
    {"num_nodes", "cluster.nodes"},
    {"nproc_per_node", "cluster.devices_per_node"},
    {"gpus_per_node", "cluster.devices_per_node"},
    {"ffn_hidden_size", "modules.NAME.config.intermediate_size"},
    {"num_layers", "num_hidden_layers (llm), depth (vision) or encoder_layers (audio)"},
    {"num_query_groups", "modules.NAME.config.num_key_value_heads"},
    {"in_chans", "in_channels"},
    {"arch", "family"},
    {"model_type", "family"},
    {"type", "kind"},
});

/// Keys of such programs for what Troupe does not do, and what there is in their place. Whatever
/// key is spelled nearly so is for something else.
constexpr auto kNotThere = std::to_array<Alias>({
    {"lora", "there are no low-rank adapters; modules.NAME.freeze keeps weights as they are"},
    {"lora_rank", "there are no low-rank adapters; modules.NAME.freeze keeps weights as they are"},
    {"eval_every", "nothing is evaluated while a job trains; metrics.jsonl has each step's loss"},
    {"eval_steps", "nothing is evaluated while a job trains; metrics.jsonl has each step's loss"},
    {"sharded", "each replica has all of its moments; scheduler.offload_encoders makes room"},
    {"zero_stage", "each replica has all of its moments; scheduler.offload_encoders makes room"},
});

/// Of a key of `kNotThere`; empty: it is none.
std::string_view instead_of(std::string_view key) {
  const auto found = std::ranges::find(kNotThere, key, &Alias::first);
  return found == kNotThere.end() ? std::string_view() : found->second;
}

/// What another program's name is here; empty: none of theirs.
std::string ours_for(std::string_view key) {
  const auto found = std::ranges::find(kAliases, key, &Alias::first);
  return found == kAliases.end() ? std::string() : std::string(found->second);
}

std::string last_segment(const std::string& path) {
  const auto dot = path.find_last_of('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (auto& entry : key_list()) keys.push_back(std::move(entry.path));
  return keys;
}

/// `parallel.NAME.tp` with the module that the unknown key's own table names, if it names one.
std::string in_place(std::string path, const std::string& table) {
  const auto at = path.find("NAME");
  if (at == std::string::npos) return path;
  for (const std::string prefix : {"modules.", "parallel."}) {
    if (!table.starts_with(prefix)) continue;
    const auto name = table.substr(prefix.size(), table.find('.', prefix.size()) - prefix.size());
    return path.replace(at, 4, name);
  }
  return path;
}

}  // namespace

NearKey nearest_key(const std::string& path) {
  // Any module stands for all of them.
  std::string name, wanted = path;
  for (const std::string section : {"modules.", "parallel."}) {
    const auto end = path.find('.', section.size());
    if (!path.starts_with(section) || end == std::string::npos) continue;
    name = path.substr(section.size(), end - section.size());
    wanted = section + "NAME" + path.substr(end);
  }
  auto keys = known_keys();
  const auto named = [&](std::string key) {
    const auto at = key.find("NAME");
    return name.empty() || at == std::string::npos ? key : key.replace(at, 4, name);
  };
  for (const auto& key : keys)
    if (key == wanted) return {named(key), true};
  for (const auto& key : keys)
    if (last_segment(key) == path) return {named(key), true};
  const std::string key = last_segment(path), table = path.substr(0, path.size() - key.size());
  if (const auto instead = instead_of(key); !instead.empty())
    return {{}, false, in_place(std::string(instead), table)};
  const std::string ours = ours_for(key);
  return {named(nearest_word(wanted, keys)), false,
          ours.empty() ? ours : "write " + in_place(ours, table)};
}

std::string help_for_unknown(const std::string& table, const std::string& key,
                             const std::vector<std::string>& here) {
  if (const auto ours = ours_for(key); !ours.empty()) return "write " + in_place(ours, table);
  const auto all = known_keys();
  for (const auto& path : all)
    if (last_segment(path) == key) return "did you mean " + in_place(path, table) + "?";
  if (const auto instead = instead_of(key); !instead.empty())
    return "remove it: " + in_place(std::string(instead), table);
  if (const auto near = nearest_word(key, here); !near.empty())
    return "did you mean " + (table.empty() ? "" : table + ".") + near + "?";
  std::vector<std::string> names;
  for (const auto& path : all) names.push_back(last_segment(path));
  if (const auto near = nearest_word(key, names); !near.empty()) {
    const auto at = std::find(names.begin(), names.end(), near) - names.begin();
    return "did you mean " + in_place(all[static_cast<std::size_t>(at)], table) + "?";
  }
  std::string list;
  for (const auto& name : here) list += (list.empty() ? "" : ", ") + name;
  return "remove it; known here: " + list;
}

}  // namespace troupe::job
