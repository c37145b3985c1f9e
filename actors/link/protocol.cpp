#include "actors/link/protocol.hpp"

namespace troupe::actors {

void add_messages(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::troupe>();
}

}  // namespace troupe::actors
