#include "actors/link/tls_doorman.hpp"

#include <caf/io/abstract_broker.hpp>

#include "actors/link/tls_scribe.hpp"

namespace troupe::actors {

TlsDoorman::TlsDoorman(caf::io::network::default_multiplexer& multiplexer, door::Socket listening,
                       const door::JobKey& key, door::Door::Tell tell)
    : doorman(caf::io::network::accept_hdl_from_socket(listening.get())),
      multiplexer_(multiplexer),
      port_(door::port_of(listening)) {
  door_.emplace(
      std::move(listening), key,
      [this](std::unique_ptr<door::TlsSession> session) {
        // A shared pointer, because what is posted must be copyable.
        std::shared_ptr<door::TlsSession> shared = std::move(session);
        multiplexer_.post(
            [self = caf::intrusive_ptr<TlsDoorman>(this), shared] { self->let_in(shared); });
      },
      std::move(tell));
}

void TlsDoorman::graceful_shutdown() {
  door_.reset();
  detach(&multiplexer_, false);
}

void TlsDoorman::let_in(std::shared_ptr<door::TlsSession> session) {
  if (detached()) return;
  auto scribe = caf::make_counted<TlsScribe>(multiplexer_, std::move(session));
  const auto connection = scribe->hdl();
  parent()->add_scribe(std::move(scribe));
  doorman::new_connection(&multiplexer_, connection);
}

}  // namespace troupe::actors
