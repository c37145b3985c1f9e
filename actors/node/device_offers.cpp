#include "actors/node/device_offers.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace troupe::actors {

Result<Offers> offer(ExecutorState& state, Collection collection) {
  Offers offers{state.resources->node, state.configuration->epoch_number, {}};
  std::map<std::string, at::Tensor> tensors;
  if (collection == Collection::first_gradients) {
    tensors = state.first_gradients;
  } else if (state.executor) {
    auto own = state.executor->parameters();
    if (!own.ok()) return std::move(own).error();
    tensors = std::move(own).value();
  }
  const auto head = static_cast<transport::Peer>(state.resources->setup.job.cluster.nodes);
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t index =
        (static_cast<std::uint64_t>(state.slot.local_index) << 32) + offers.tensors.size();
    offers.tensors.push_back({name,
                              static_cast<std::uint8_t>(tensor.scalar_type()),
                              {tensor.sizes().begin(), tensor.sizes().end()},
                              index});
    auto owner = std::make_shared<const at::Tensor>(tensor.cpu().contiguous());
    const auto tag =
        transport::make_tag(state.configuration->epoch_number, transport::TagKind::state,
                            static_cast<std::uint64_t>(collection), index);
    state.resources->transport->send(head, tag, {owner->const_data_ptr(), owner->nbytes(), owner});
  }
  return offers;
}

}  // namespace troupe::actors
