#include "runtime/door/loopback_check.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "runtime/door/tls_session.hpp"

namespace troupe::door {

namespace {

using Clock = std::chrono::steady_clock;

Error late(const char* what) {
  return {Errc::timed_out, std::string(what) + " over the loopback took too long", "", ""};
}

/// Both sides by turns, in this thread: none of their calls blocks.
Status shake_hands_with_itself(Socket near, Socket far, Clock::time_point deadline) {
  const JobKey key = JobKey::random();
  const TlsContext server_side(key, TlsContext::Side::server);
  const TlsContext client_side(key, TlsContext::Side::client);
  TlsSession server(server_side, std::move(near));
  TlsSession client(client_side, std::move(far));
  using Outcome = TlsSession::Outcome;
  for (;;) {
    const Outcome asked = client.handshake();
    const Outcome answered = server.handshake();
    if (asked == Outcome::done && answered == Outcome::done) return Done{};
    for (const auto& [outcome, side] : {std::pair(asked, &client), std::pair(answered, &server)})
      if (outcome == Outcome::failed)
        return Error{Errc::transport_failed, "the TLS handshake failed: its peer " + side->why(),
                     "", "look at the settings of OpenSSL (OPENSSL_CONF)"};
    if (Clock::now() >= deadline) return late("the TLS handshake");
  }
}

}  // namespace

std::string tls_library() {
  return std::string("OpenSSL ") + OpenSSL_version(OPENSSL_VERSION_STRING);
}

Result<std::chrono::microseconds> check_loopback(Clock::time_point deadline) {
  const auto begin = Clock::now();
  auto listening = listen_at({"127.0.0.1", 0});
  if (!listening.ok()) return std::move(listening).error();
  auto far = connect_to({"127.0.0.1", port_of(listening.value())}, deadline);
  if (!far.ok()) return std::move(far).error();
  if (!wait_for(listening.value(), /*write=*/false, deadline)) return late("a connection");
  Socket near(accept4(listening.value().get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (near.get() < 0) return late("a connection");
  auto shaken = shake_hands_with_itself(std::move(near), std::move(far).value(), deadline);
  if (!shaken.ok()) return std::move(shaken).error();
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

}  // namespace troupe::door
