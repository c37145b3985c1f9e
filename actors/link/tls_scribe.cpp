#include "actors/link/tls_scribe.hpp"

#include <caf/io/network/interfaces.hpp>

namespace troupe::actors {

namespace network = caf::io::network;

TlsScribe::TlsScribe(network::default_multiplexer& multiplexer,
                     std::shared_ptr<door::TlsSession> session)
    : scribe(network::conn_hdl_from_socket(session->socket().get())),
      stream_(multiplexer, std::move(session)) {}

void TlsScribe::configure_read(caf::io::receive_policy::config config) {
  if (config.second > kMessageBytesMax) {
    // Before anything of that size is asked for.
    stream_.passivate();
    detach(&stream_.backend(), true);
    return;
  }
  stream_.configure_read(config);
  if (launched_) return;
  launched_ = true;
  stream_.start(this);
}

void TlsScribe::graceful_shutdown() {
  stream_.graceful_shutdown();
  detach(&stream_.backend(), false);
}

std::string TlsScribe::addr() const {
  auto address = network::remote_addr_of_fd(stream_.fd());
  return address ? *address : "";
}

std::uint16_t TlsScribe::port() const {
  auto port = network::remote_port_of_fd(stream_.fd());
  return port ? *port : 0;
}

}  // namespace troupe::actors
