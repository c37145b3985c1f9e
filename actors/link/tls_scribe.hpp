// CAF's end of a connection whose peer has shown the job's key.

#pragma once

#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/stream.hpp>
#include <caf/io/scribe.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/door/tls_session.hpp"

namespace troupe::actors {

/// The largest message between processes: what they say fits into a small part of it, and a header
/// that announces more is none of ours.
inline constexpr std::size_t kMessageBytesMax = std::size_t{256} << 20;

/// How CAF moves bytes through a session.
class TlsPolicy {
 public:
  using State = caf::io::network::rw_state;
  using Native = caf::io::network::native_socket;

  explicit TlsPolicy(std::shared_ptr<door::TlsSession> session) : session_(std::move(session)) {}

  State read_some(std::size_t& moved, Native, void* data, std::size_t bytes) {
    return state_of(session_->read(data, bytes, moved));
  }
  State write_some(std::size_t& moved, Native, const void* data, std::size_t bytes) {
    moved = 0;
    return bytes == 0 ? State::success : state_of(session_->write(data, bytes, moved));
  }
  /// Decrypted bytes wake nobody: they are taken before the network is waited for.
  bool must_read_more(Native, std::size_t threshold) const {
    return session_->pending() >= threshold;
  }

 private:
  static State state_of(door::TlsSession::Outcome outcome) {
    using Outcome = door::TlsSession::Outcome;
    if (outcome == Outcome::done) return State::success;
    return outcome == Outcome::failed ? State::failure : State::indeterminate;
  }

  std::shared_ptr<door::TlsSession> session_;
};

/// Belongs to the multiplexer's thread once it is handed to a broker.
class TlsScribe final : public caf::io::scribe {
 public:
  /// Takes the session's socket over. REQUIRES: the handshake is done.
  TlsScribe(caf::io::network::default_multiplexer& multiplexer,
            std::shared_ptr<door::TlsSession> session);

  void configure_read(caf::io::receive_policy::config config) override;
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void flush() override { stream_.flush(this); }
  void graceful_shutdown() override;
  std::string addr() const override;
  std::uint16_t port() const override;
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  class Stream final : public caf::io::network::stream {
   public:
    Stream(caf::io::network::default_multiplexer& multiplexer,
           std::shared_ptr<door::TlsSession> session)
        : stream(multiplexer, session->release_socket()), policy_(std::move(session)) {}
    void handle_event(caf::io::network::operation operation) override {
      handle_event_impl(operation, policy_);
    }

   private:
    TlsPolicy policy_;
  };

  bool launched_ = false;
  Stream stream_;
};

}  // namespace troupe::actors
