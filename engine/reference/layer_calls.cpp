#include "engine/reference/layer_calls.hpp"

#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::engine {

std::string work_words(const std::vector<std::string>& ids, std::int64_t step) {
  constexpr std::size_t kNamedMax = 3;
  std::vector<std::string> words;
  for (const std::string& id : ids) words.push_back("'" + id + "'");
  return (ids.size() == 1 ? "sample " : "samples ") + joined_up_to(kNamedMax, words) + " in step " +
         std::to_string(step);
}

at::Tensor run_layers(const ModuleSpec& module, std::vector<std::unique_ptr<models::Layer>>& layers,
                      at::Tensor rows, const models::PackedBatch& batch, const std::string& work) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const plugins::CallingUser calling("layer '" + module.layers[i].name + "' of module '" +
                                       module.name + "' on " + work);
    rows = layers[i]->forward(rows, batch);
  }
  return rows;
}

std::string backward_words(const std::string& work) { return "the backward of a layer on " + work; }

}  // namespace troupe::engine
