#include "engine/execution/loss_shape.hpp"

#include <utility>

#include "engine/execution/packing.hpp"

namespace troupe::engine {

Status check_losses(const ModuleSpec& llm, const at::Tensor& losses, std::size_t samples,
                    const std::string& of) {
  const bool is_there = losses.defined();
  if (is_there && losses.dim() == 1 && std::cmp_equal(losses.size(0), samples)) return Done{};
  return Error{Errc::internal,
               "layer '" + llm.layers.back().name + "' of module '" + llm.name + "' gives " +
                   (is_there ? "losses of the shape " + shape_text(losses) : "no losses") + of +
                   ", instead of " + std::to_string(samples) + ": one for each sample",
               {},
               "correct the last layer of its family: it is to return the loss of each sample, "
               "summed over its trained tokens, in the order of the samples"};
}

}  // namespace troupe::engine
