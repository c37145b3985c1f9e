#include "app/node_end.hpp"

#include <sys/prctl.h>

#include <caf/all.hpp>
#include <cstdint>
#include <iostream>
#include <string>

#include "actors/link/heartbeat.hpp"
#include "app/signals.hpp"

namespace troupe::app {

std::chrono::milliseconds TimeToEnd::after_signal() const {
  return std::chrono::ceil<std::chrono::milliseconds>(
      actors::seconds(is_draining ? drain_s : stop_s));
}

Waited wait_for_end(std::future<actors::JobEnd>& ended, const actors::NodeActor& node,
                    const TimeToEnd& time) {
  Waited waited;
  int count = 0;
  const int unheard = take_signals_until(
      [&] {
        if (time.waits_for_head) prctl(PR_SET_PDEATHSIG, 0);  // Of this thread, which asked for it.
        return ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      },
      {},
      [&] {
        return EndLimits{time.after_signal(), std::chrono::milliseconds(0)};
      },
      [&](int seen) {
        waited.signal = seen;
        ++count;
        caf::anon_send(node, actors::stop_atom::value, static_cast<std::int32_t>(seen));
      });
  // After a second one nobody waits.
  waited.is_late = unheard != 0 && count == 1;
  return waited;
}

void say_stayed_too_long(NodeId node, double drain_s) {
  std::cerr << "troupe: node " + std::to_string(node.value) +
                   " was to leave, and holds state of the job still after " +
                   actors::seconds_text(drain_s) +
                   " (cluster.drain_timeout_s): it ends, which the job takes for a loss; raise "
                   "that key where its machine stays longer\n";
}

}  // namespace troupe::app
