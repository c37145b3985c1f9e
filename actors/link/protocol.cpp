#include "actors/link/protocol.hpp"

#include "actors/link/observing.hpp"

namespace troupe::actors {

void add_messages(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::troupe>();
  config.add_message_types<caf::id_block::troupe_observing>();
}

}  // namespace troupe::actors
