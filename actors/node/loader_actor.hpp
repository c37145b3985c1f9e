// Measures and decodes a node's share of each batch and says what it found.

#pragma once

#include <map>
#include <memory>
#include <optional>

#include "actors/link/protocol.hpp"
#include "actors/node/executor_actor.hpp"
#include "runtime/data/batches/batch_loader.hpp"

namespace troupe::actors {

struct LoaderState {
  NodeResources* resources = nullptr;
  NodeActor node;
  std::optional<data::BatchLoader> loader;
  std::map<std::int64_t, engine::BatchOrder> orders;  ///< Requested and not yet reported.

  static inline const char* name = "loader";
};

LoaderActor::behavior_type loader(LoaderActor::stateful_pointer<LoaderState> self,
                                  NodeResources* resources, NodeActor node);

}  // namespace troupe::actors
