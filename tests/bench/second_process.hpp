// Two processes that talk by actors, for benches: over plain TCP, or as a job does, behind the door
// (TLS 1.3 with a key). `NAME_bench --serve KIND WAY` is the second process.

#pragma once

#include <sys/types.h>

#include <caf/all.hpp>
#include <cstdint>

namespace troupe::bench {

/// Answers (ping, number) with the number, (ping, text) with its size.
caf::behavior pong(caf::event_based_actor*);

/// A system that lives until the program ends. The destructor of CAF 0.17 sometimes waits for ever
/// for the thread of a detached actor that exchanged messages with another process. `remote`: with
/// the settings of the engine's control plane, without which a remote round trip costs 250 us
/// instead of 90.
caf::actor_system& immortal_system(bool remote);

/// The second process: publishes a pong, says on which port, ends with its standard input.
int serve(bool detached, bool behind_door);

/// Runs `serve` where the command line asks for it, and ends the program then.
void serve_if_asked(int count, char** arguments);

/// Runs this program with `--serve` and knows its port.
class Server {
 public:
  Server(bool detached, bool behind_door);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  std::uint16_t port() const { return port_; }

 private:
  pid_t process_ = -1;
  int input_ = -1;
  std::uint16_t port_ = 0;
};

/// The pong of a server, which listens on this machine. Throws where it cannot be had.
caf::actor connect(caf::actor_system& system, std::uint16_t port, bool behind_door);

}  // namespace troupe::bench
