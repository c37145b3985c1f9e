#include "actors/link/observing.hpp"

#include "actors/link/protocol.hpp"

namespace troupe::actors {

static_assert(caf::id_block::troupe::end <= caf::id_block::troupe_observing::begin);

namespace {

/// Of what stands beside values and ids.
constexpr std::uint64_t kFrame = 128;

std::uint64_t weight_of_ids(const std::vector<std::string>& ids) {
  std::uint64_t weight = 0;
  for (const auto& id : ids) weight += id.size() + 16;
  return weight;
}

}  // namespace

std::uint64_t weight_of(const SeenPiece& piece) {
  return kFrame + weight_of_ids(piece.ids) + piece.bytes.size();
}

std::uint64_t weight_of(const SeenStep& step) { return kFrame + weight_of_ids(step.ids); }

}  // namespace troupe::actors
