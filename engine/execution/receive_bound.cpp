#include "engine/execution/receive_bound.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

namespace troupe::engine {

namespace {

Bytes sum_of_largest(std::vector<Bytes> sizes, std::size_t count) {
  count = std::min(count, sizes.size());
  std::partial_sort(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(count), sizes.end(),
                    std::greater<>());
  Bytes sum;
  for (std::size_t i = 0; i < count; ++i) sum += sizes[i];
  return sum;
}

}  // namespace

Bytes receive_bound(const IterationPlan& iteration, DeviceId device,
                    std::span<const Bytes> received) {
  std::map<StageId, std::map<MicrobatchId, Bytes>> borders;
  std::vector<Bytes> reductions, passing;
  const auto& actions = iteration.actions[device.index()];
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.kind == ActionKind::receive || action.kind == ActionKind::receive_gradient) {
      const Message& message = iteration.at(action.message);
      const MessageEnd& here =
          action.kind == ActionKind::receive ? message.destination : message.source;
      borders[here.stage][here.microbatch] += received[i];
    } else if (action.kind == ActionKind::receive_content) {
      const MessageEnd& here = iteration.at(action.delivery).destination;
      borders[here.stage][here.microbatch] += received[i];
    } else if (action.kind == ActionKind::relay || action.kind == ActionKind::relay_gradient) {
      passing.push_back(received[i]);
    } else {
      reductions.push_back(received[i]);
    }
  }
  Bytes bound = sum_of_largest(std::move(reductions), 2) + sum_of_largest(std::move(passing), 2);
  for (const auto& [stage, by_microbatch] : borders) {
    std::vector<Bytes> sizes;
    for (const auto& [microbatch, bytes] : by_microbatch) sizes.push_back(bytes);
    bound += sum_of_largest(std::move(sizes),
                            static_cast<std::size_t>(iteration.max_in_flight[stage.index()]));
  }
  return bound;
}

}  // namespace troupe::engine
