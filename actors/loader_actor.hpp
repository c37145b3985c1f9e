// Measures and decodes a node's share of each batch and says what it found.

#pragma once

#include <map>
#include <memory>
#include <optional>

#include "actors/executor_actor.hpp"
#include "actors/protocol.hpp"
#include "runtime/data/batch_loader.hpp"

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
