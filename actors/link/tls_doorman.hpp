// CAF's end of the door: connections reach it after they have shown the job's key.

#pragma once

#include <caf/io/doorman.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <optional>

#include "runtime/door/door.hpp"

namespace troupe::actors {

/// Belongs to the multiplexer's thread once it is handed to a broker; the door asks for the key in
/// a thread of its own.
class TlsDoorman final : public caf::io::doorman {
 public:
  /// REQUIRES: the socket listens. `tell` as for `Door`.
  TlsDoorman(caf::io::network::default_multiplexer& multiplexer, door::Socket listening,
             const door::JobKey& key, door::Door::Tell tell);

  void launch() override { door_->start(); }
  void graceful_shutdown() override;
  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return port_; }
  // No socket of the event loop: the door posts what it lets in.
  bool new_connection() override { return false; }
  void add_to_loop() override {}
  void remove_from_loop() override {}

 private:
  void let_in(std::shared_ptr<door::TlsSession> session);

  caf::io::network::default_multiplexer& multiplexer_;
  const std::uint16_t port_;
  std::optional<door::Door> door_;
};

}  // namespace troupe::actors
