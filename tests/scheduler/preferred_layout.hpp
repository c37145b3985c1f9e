// The layout that a job prefers when nodes come and go, in tests.

#pragma once

#include "scheduler/recovery/relayout.hpp"

namespace troupe::scheduler {

/// The first of `relayouts`.
inline Result<Relayout> relayout(const RelayoutRequest& request) {
  auto all = relayouts(request);
  if (!all.ok()) return std::move(all).error();
  return std::move(all.value().front());
}

}  // namespace troupe::scheduler
