#include "models/widths.hpp"

namespace troupe::models {

namespace {

const ModuleConfig* find_before(const ModuleConfig& module, const std::vector<ModuleConfig>& all) {
  for (const auto& other : all)
    if (other.next == module.name && other.kind != ModuleKind::llm) return &other;
  return nullptr;
}

std::int32_t llm_width(const std::vector<ModuleConfig>& all) {
  for (const auto& other : all)
    if (const auto* llm = std::get_if<LlmConfig>(&other.config)) return llm->hidden_size;
  return 0;
}

// `depth` bounds the walk where projectors name each other in a circle.
std::int32_t output_width(const ModuleConfig& module, const std::vector<ModuleConfig>& all,
                          std::size_t depth);

ProjectorConfig resolve(const ModuleConfig& module, const std::vector<ModuleConfig>& all,
                        std::size_t depth) {
  auto config = std::get<ProjectorConfig>(module.config);
  const auto* before = config.input_size == 0 ? find_before(module, all) : nullptr;
  if (before && depth < all.size()) config.input_size = output_width(*before, all, depth + 1);
  if (config.output_size == 0) config.output_size = llm_width(all);
  if (config.hidden_size == 0) config.hidden_size = config.output_size;
  return config;
}

std::int32_t output_width(const ModuleConfig& module, const std::vector<ModuleConfig>& all,
                          std::size_t depth) {
  if (const auto* vision = std::get_if<VisionConfig>(&module.config)) return vision->hidden_size;
  if (const auto* audio = std::get_if<AudioConfig>(&module.config)) return audio->d_model;
  if (const auto* llm = std::get_if<LlmConfig>(&module.config)) return llm->hidden_size;
  return resolve(module, all, depth).output_size;
}

}  // namespace

ProjectorConfig resolve_projector(const ModuleConfig& module,
                                  const std::vector<ModuleConfig>& all) {
  return resolve(module, all, 0);
}

std::int32_t output_width(const ModuleConfig& module, const std::vector<ModuleConfig>& all) {
  return output_width(module, all, 0);
}

}  // namespace troupe::models
