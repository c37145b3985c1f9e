#include "engine/execution/allocator_settings.hpp"

namespace troupe::engine {

AllocatorSettings settings_with_share(const char* cuda, const char* general, double share) {
  const std::string key = "per_process_memory_fraction";
  // Set beside it, the first would hide the second.
  const bool is_general = cuda == nullptr && general != nullptr;
  const char* const said = is_general ? general : cuda;
  AllocatorSettings settings{is_general ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF",
                             said != nullptr ? said : ""};
  if (settings.text.find(key) != std::string::npos) return settings;
  if (!settings.text.empty()) settings.text += ",";
  settings.text += key + ":" + std::to_string(share);
  return settings;
}

}  // namespace troupe::engine
