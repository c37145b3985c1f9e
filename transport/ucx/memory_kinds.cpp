#include "transport/ucx/memory_kinds.hpp"

#include <algorithm>

#include "transport/ucx/status.hpp"

namespace troupe::transport {

ucs_memory_type_t memory_type(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::host: return UCS_MEMORY_TYPE_HOST;
    case MemoryKind::cuda: return UCS_MEMORY_TYPE_CUDA;
    case MemoryKind::other: break;
  }
  return UCS_MEMORY_TYPE_UNKNOWN;
}

bool all_take(std::span<const ucp_context_attr_t> contexts, MemoryKind kind) {
  if (kind == MemoryKind::host) return true;
  if (kind == MemoryKind::other || contexts.empty()) return false;
  return std::ranges::all_of(contexts, [kind](const ucp_context_attr_t& context) {
    return (context.field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) != 0 &&
           (context.memory_types & UCS_BIT(memory_type(kind))) != 0;
  });
}

Result<ucp_context_attr_t> memory_of(const UcxContext& context) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (const auto status = ucp_context_query(context.get(), &attributes); status != UCS_OK)
    return ucx_error("ucp_context_query", status);
  return attributes;
}

}  // namespace troupe::transport
