// In which order the gradients of a parameter group are added up, and by what. A value of the
// layout: the bits of a sum follow from it, but for `nccl`.

#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {
/// How the holders of a group are added up.
enum class SumOrder : std::uint8_t {
  chain,         ///< Holder after holder.
  tree_by_node,  ///< The holders of each node first, then node after node.
  nccl_chain,    ///< As a chain, with its bits, in one call of all holders to NCCL.
  nccl,          ///< One call too, in NCCL's own order: bits depend on sizes and machines.
};

/// Whether all holders call NCCL together, instead of giving each other chunks.
constexpr bool is_by_nccl(SumOrder order) {
  return order == SumOrder::nccl_chain || order == SumOrder::nccl;
}

/// Its name in plans.
constexpr std::string_view to_string(SumOrder order) {
  switch (order) {
    case SumOrder::chain: return "chain";
    case SumOrder::tree_by_node: return "tree_by_node";
    case SumOrder::nccl_chain: return "nccl_chain";
    case SumOrder::nccl: return "nccl";
  }
  return "";
}

}  // namespace troupe
