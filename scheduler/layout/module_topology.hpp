// Names resolved to indices and checked, for `partition_modules`. Internal to scheduler/.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/layout/module_partition.hpp"

namespace troupe::scheduler {

/// Where the layers of an attached module may ride.
struct Attachment {
  std::int32_t host = -1;    ///< -1: not attached.
  bool before_host = false;  ///< True: last layers ride in the host's first stage.
};

struct ModuleTopology {
  std::vector<std::vector<std::int32_t>> next;  ///< Per module.
  std::vector<std::int32_t> order;              ///< Topological; input order where free.
  std::vector<Attachment> attachments;          ///< Per module.
};

/// Errors: as `partition_modules` for names, cycles and attachments.
Result<ModuleTopology> resolve_modules(const std::vector<PlannedModule>& modules);

}  // namespace troupe::scheduler
