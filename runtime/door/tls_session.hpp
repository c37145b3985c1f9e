// A connection on which both sides have shown the job's key, encrypted from then on.
//
// TLS 1.3 with the key as an external pre-shared key and a fresh Diffie-Hellman exchange (RFC 8446,
// section 4.2.9: psk_dhe_ke): no certificates. Who has another key, or none, gets no further than
// the handshake, which OpenSSL bounds in size.

#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/door/job_key.hpp"
#include "runtime/door/listening.hpp"

namespace troupe::door {

/// What all connections of one side share. Thread-safe. Must outlive nothing: sessions hold on.
class TlsContext {
 public:
  enum class Side { server, client };
  TlsContext(const JobKey& key, Side side);

 private:
  friend class TlsSession;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// One connection. Not thread-safe; no call blocks.
class TlsSession {
 public:
  /// REQUIRES: the socket does not block.
  TlsSession(const TlsContext& context, Socket socket);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  enum class Outcome { done, wants_read, wants_write, failed };

  /// Goes on with the handshake; `done`: the peer has the key.
  Outcome handshake();

  /// Reads or writes some bytes; `moved` tells how many. `failed`: the connection is over, in order
  /// or not.
  Outcome read(void* data, std::size_t bytes, std::size_t& moved);
  Outcome write(const void* data, std::size_t bytes, std::size_t& moved);

  /// Bytes that a read gets without the network.
  std::size_t pending() const;

  /// Why the handshake failed, as half a sentence about the peer: "has another key".
  std::string why() const { return why_; }
  /// Whether the peer left without an answer, so that another attempt may end otherwise.
  bool peer_left() const { return peer_left_; }

  const Socket& socket() const { return socket_; }
  /// Leaves the descriptor to another owner; the session goes on with it.
  int release_socket() { return socket_.release(); }

 private:
  Outcome outcome_of(int result);

  std::shared_ptr<TlsContext::Shared> shared_;
  Socket socket_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  std::string why_;
  bool peer_left_ = false;
};

/// The whole handshake of a client; blocks until `deadline` at most. Errors: invalid_argument: the
/// peer has another key or is no Troupe; transport_failed: it left; timed_out.
Result<std::unique_ptr<TlsSession>> shake_hands(const TlsContext& context, Socket socket,
                                                const HostPort& peer,
                                                std::chrono::steady_clock::time_point deadline);

}  // namespace troupe::door
