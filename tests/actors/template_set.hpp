// How pipelines of other sizes would be cut, for tests.

#pragma once

#include <memory>

#include "actors/link/shared_values.hpp"
#include "engine/setup/job_setup.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::actors {

/// Of a job on up to four nodes, all of whose layers are alike; a device holds so many of them.
inline TemplateSetPtr templates_of(const engine::JobSetup& setup, std::int64_t held = 100) {
  scheduler::TemplateRequest request;
  for (const auto& module : setup.model.modules)
    request.layers.insert(request.layers.end(), module.layers.size(), {1, 1, Bytes{1}, {}});
  request.node_count = 4;
  request.device_memory = Bytes{held};
  return std::make_shared<const scheduler::TemplateSet>(scheduler::make_templates(request).value());
}

}  // namespace troupe::actors
