#include <cmath>
#include <cstdlib>

#include "runtime/job/check_job.hpp"

namespace troupe::job {

namespace {

using std::to_string;

/// The divisor of `number` next to `wanted`, the larger of two equally near. Cost: O(number).
std::int32_t nearest_divisor(std::int32_t number, std::int32_t wanted) {
  for (std::int32_t distance = 0; distance < number; ++distance) {
    if (wanted + distance <= number && number % (wanted + distance) == 0) return wanted + distance;
    if (wanted > distance && number % (wanted - distance) == 0) return wanted - distance;
  }
  return 1;
}

/// Checks of one module's config; keys are told by their names in the job file.
class SizeCheck {
 public:
  SizeCheck(const std::string& module, Findings& findings)
      : path_("modules." + module + ".config"), findings_(findings) {}

  void fail(const char* key, std::string message, std::string fix) {
    findings_.add_at(path_ + "." + key, path_ + "." + key + ": " + std::move(message),
                     std::move(fix));
  }

  /// True where `count` divides `width`.
  bool divides(const char* count_key, std::int32_t count, const char* width_key,
               std::int32_t width) {
    if (width % count == 0) return true;
    fail(count_key, to_string(count) + " does not divide " + width_key + " " + to_string(width),
         std::string("try ") + count_key + " = " + to_string(nearest_divisor(width, count)));
    return false;
  }

 private:
  std::string path_;
  Findings& findings_;
};

void check(SizeCheck check, const VisionConfig& x) {
  if (check.divides("num_heads", x.num_heads, "embed_dim", x.embed_dim) &&
      (x.embed_dim / x.num_heads) % 4 != 0)
    check.fail("num_heads",
               "embed_dim / num_heads = " + to_string(x.embed_dim / x.num_heads) +
                   " is no multiple of 4, as 2-D rotary positions need",
               "choose num_heads so that each head has 4, 8, 16, 32 ... columns");
  if (x.in_channels != 3)
    check.fail("in_channels", "images have 3 channels, not " + to_string(x.in_channels),
               "write in_channels = 3 or leave it out");
  if (std::llround(x.embed_dim * x.mlp_ratio) < 1)
    check.fail("mlp_ratio", "embed_dim x mlp_ratio is below one column", "raise mlp_ratio");
}

void check(SizeCheck check, const AudioConfig& x) {
  check.divides("encoder_attention_heads", x.encoder_attention_heads, "d_model", x.d_model);
  if (x.d_model % 2 != 0 || x.d_model < 4)
    check.fail("d_model", to_string(x.d_model) + " cannot hold sine and cosine positions",
               "give an even number of at least 4");
  if (x.max_source_positions < 1500)
    check.fail("max_source_positions",
               to_string(x.max_source_positions) + " is less than a window of 30 s",
               "write max_source_positions = 1500 or leave it out");
}

void check(SizeCheck check, const LlmConfig& x) {
  const bool whole = x.head_dim != 0 || check.divides("num_attention_heads", x.num_attention_heads,
                                                      "hidden_size", x.hidden_size);
  const auto head_dim = x.head_dim != 0 ? x.head_dim : x.hidden_size / x.num_attention_heads;
  if (whole && (head_dim % 2 != 0 || head_dim == 0))
    check.fail(x.head_dim != 0 ? "head_dim" : "num_attention_heads",
               "a head of " + to_string(head_dim) + " columns is odd; rotary positions turn pairs",
               "choose an even head_dim");
  check.divides("num_key_value_heads", x.num_key_value_heads, "num_attention_heads",
                x.num_attention_heads);
  constexpr std::int32_t kTokenizerSize = 320;  // data::ByteTokenizer, the embedded tokenizer.
  if (x.vocab_size < kTokenizerSize)
    check.fail(
        "vocab_size",
        to_string(x.vocab_size) + " is less than the tokenizer's " + to_string(kTokenizerSize),
        "write vocab_size = " + to_string(kTokenizerSize) + " or leave it out");
}

/// Columns of what a module hands on; 0 where it follows from its neighbours.
std::int32_t output_width(const ModuleConfig& module) {
  if (const auto* vision = std::get_if<VisionConfig>(&module.config)) return vision->hidden_size;
  if (const auto* audio = std::get_if<AudioConfig>(&module.config)) return audio->d_model;
  if (const auto* projector = std::get_if<ProjectorConfig>(&module.config))
    return projector->output_size;
  return 0;
}

/// Columns that a module takes; 0 where they follow from its neighbours.
std::int32_t input_width(const ModuleConfig& module) {
  if (const auto* projector = std::get_if<ProjectorConfig>(&module.config))
    return projector->input_size;
  if (const auto* llm = std::get_if<LlmConfig>(&module.config)) return llm->hidden_size;
  return 0;
}

void check_widths(const ModuleConfig& from, const ModuleConfig& to, Findings& findings) {
  const auto out = output_width(from);
  const auto in = input_width(to);
  if (out == 0 || in == 0 || out == in) return;
  const bool both_fixed = from.kind == ModuleKind::encoder && to.kind == ModuleKind::llm;
  findings.add_at("modules." + from.name + ".config",
                  "modules." + from.name + " hands on " + to_string(out) + " columns, but " +
                      to.name + " takes " + to_string(in),
                  both_fixed ? "put a projector (kind = \"projector\") between them"
                             : "leave input_size and output_size out; they follow from the others");
}

}  // namespace

std::int32_t layer_count(const ModuleConfig& module) {
  if (const auto* vision = std::get_if<VisionConfig>(&module.config)) return vision->depth + 2;
  if (const auto* audio = std::get_if<AudioConfig>(&module.config))
    return audio->encoder_layers + 2;
  if (const auto* llm = std::get_if<LlmConfig>(&module.config)) return llm->num_hidden_layers + 2;
  return 1;
}

void check_sizes(const std::vector<ModuleConfig>& modules, Findings& findings) {
  for (const auto& module : modules) {
    const SizeCheck sizes{module.name, findings};
    if (const auto* vision = std::get_if<VisionConfig>(&module.config)) check(sizes, *vision);
    if (const auto* audio = std::get_if<AudioConfig>(&module.config)) check(sizes, *audio);
    if (const auto* llm = std::get_if<LlmConfig>(&module.config)) check(sizes, *llm);
    for (const auto& next : modules)
      if (next.name == module.next) check_widths(module, next, findings);
  }
}

}  // namespace troupe::job
