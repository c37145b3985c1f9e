// Where processes of a job come in: a port, and a thread that asks everybody for the key.
//
// Nothing of what a stranger sends goes further than OpenSSL's handshake. Strangers can take
// neither memory nor places: so many are asked at a time, for so long, and where all places are
// taken the one that has been there longest makes room.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/door/refusal_log.hpp"
#include "runtime/door/tls_session.hpp"

namespace troupe::door {

struct DoorOptions {
  std::size_t unproven_max = 64;                   ///< Connections that have not shown the key yet.
  std::chrono::milliseconds handshake_time{5000};  ///< For one of them.
};

class Door {
 public:
  /// Takes over a connection whose peer has the key. Called from the door's thread; must not block.
  using Admit = std::function<void(std::unique_ptr<TlsSession>)>;
  /// Takes a line about refused connections (`RefusalLog`), from the door's thread.
  using Tell = std::function<void(const std::string&)>;

  /// Nobody is let in before `start`. REQUIRES: the socket listens.
  Door(Socket listening, const JobKey& key, Admit admit, Tell tell, DoorOptions options = {});
  /// Closes the port; connections that were let in stay.
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  void start();
  std::uint16_t port() const { return port_of(listening_); }

 private:
  using Clock = std::chrono::steady_clock;
  /// A connection that has not shown the key.
  struct Visitor {
    std::unique_ptr<TlsSession> session;
    std::string name;  ///< Its address.
    Clock::time_point leaves_at;
    bool wants_write = false;
  };

  void run();
  void accept_all();
  void make_room();
  /// Goes on with a handshake; true when the visitor is done, let in or not.
  bool ask(Visitor& visitor);
  void refuse(const Visitor& visitor, const std::string& why);
  void refuse_slow(Clock::time_point now);
  int wait_ms(Clock::time_point now) const;

  Socket listening_;
  const TlsContext context_;
  const Admit admit_;
  const Tell tell_;
  const DoorOptions options_;
  RefusalLog log_;
  std::vector<Visitor> visitors_;  ///< Longest here first.
  Socket wake_;                    ///< Readable when the thread shall end.
  bool rests_ = false;             ///< No descriptor is left: accepting waits a moment.
  std::thread thread_;
};

}  // namespace troupe::door
