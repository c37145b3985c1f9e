// In which order the gradients of a parameter group are added up. A value of the layout: the bits
// of a sum follow from it.

#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {
/// How the holders of a group are added up.
enum class SumOrder : std::uint8_t {
  chain,         ///< Holder after holder.
  tree_by_node,  ///< The holders of each node first, then node after node.
};

/// Its name in plans.
constexpr std::string_view to_string(SumOrder order) {
  return order == SumOrder::chain ? "chain" : "tree_by_node";
}

}  // namespace troupe
