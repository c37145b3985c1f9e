#include "runtime/door/tls_session.hpp"

#include <openssl/err.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace troupe::door {

namespace {

/// Names the key in the handshake; all jobs use the same, and each has its own key.
constexpr std::string_view kIdentity = "troupe job";
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherCode[] = {0x13, 0x01};

const JobKey& key_of(const SSL* ssl) {
  return *static_cast<const JobKey*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

/// The key in OpenSSL's form. The caller owns it.
SSL_SESSION* session_of(SSL* ssl) {
  const auto key = key_of(ssl).bytes();
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipherCode);
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, key.data(), key.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity), bytes) == kIdentity)
    *session = session_of(ssl);
  return 1;
}

int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* bytes,
            SSL_SESSION** session) {
  *session = digest == nullptr || digest == EVP_sha256() ? session_of(ssl) : nullptr;
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *bytes = kIdentity.size();
  return 1;
}

/// The connection ended, in whatever way TCP has.
bool is_end_of_connection(unsigned long code) {
  return code == 0 || ERR_SYSTEM_ERROR(code) ||
         ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

/// A failed handshake's reason in our words.
std::string reason(unsigned long code) {
  if (is_end_of_connection(code)) return "left before it had shown the key";
  switch (ERR_GET_REASON(code)) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR: return "has another key";
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_CERTIFICATE_VERIFY_FAILED: return "has no key";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_BAD_RECORD_TYPE: return "speaks another protocol";
    default: break;
  }
  const char* words = ERR_reason_error_string(code);
  return "sent no sound handshake" + (words == nullptr ? "" : std::string(" (") + words + ")");
}

}  // namespace

struct TlsContext::Shared {
  JobKey key;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{nullptr, &SSL_CTX_free};
};

TlsContext::TlsContext(const JobKey& key, Side side) : shared_(std::make_shared<Shared>()) {
  shared_->key = key;
  shared_->context.reset(
      SSL_CTX_new(side == Side::server ? TLS_server_method() : TLS_client_method()));
  SSL_CTX* context = shared_->context.get();
  const bool made = context != nullptr &&
                    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context, kCipher) == 1;
  if (!made) std::abort();  // This OpenSSL cannot do what it was built for.
  SSL_CTX_set_app_data(context, &shared_->key);
  SSL_CTX_set_psk_find_session_callback(context, find_key);
  SSL_CTX_set_psk_use_session_callback(context, use_key);
  // Without an authority to trust, no certificate passes: the key is the only way.
  SSL_CTX_set_verify(context, side == Side::client ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

TlsSession::TlsSession(const TlsContext& context, Socket socket)
    : shared_(context.shared_),
      socket_(std::move(socket)),
      ssl_(SSL_new(shared_->context.get()), &SSL_free) {
  if (!ssl_ || SSL_set_fd(ssl_.get(), socket_.get()) != 1) std::abort();  // Out of memory.
  if (SSL_is_server(ssl_.get()) == 1)
    SSL_set_accept_state(ssl_.get());
  else
    SSL_set_connect_state(ssl_.get());
}

TlsSession::~TlsSession() = default;

TlsSession::Outcome TlsSession::outcome_of(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_NONE: return Outcome::done;
    case SSL_ERROR_WANT_READ: return Outcome::wants_read;
    case SSL_ERROR_WANT_WRITE: return Outcome::wants_write;
    default: return Outcome::failed;
  }
}

TlsSession::Outcome TlsSession::handshake() {
  ERR_clear_error();
  auto outcome = outcome_of(SSL_do_handshake(ssl_.get()));
  if (outcome == Outcome::failed) {
    why_ = reason(ERR_peek_error());
    peer_left_ = is_end_of_connection(ERR_peek_error());
  }
  // A handshake that ended without the key would be none.
  if (outcome == Outcome::done && SSL_session_reused(ssl_.get()) != 1) {
    why_ = "has no key";
    outcome = Outcome::failed;
  }
  return outcome;
}

TlsSession::Outcome TlsSession::read(void* data, std::size_t bytes, std::size_t& moved) {
  moved = 0;
  ERR_clear_error();
  return outcome_of(SSL_read_ex(ssl_.get(), data, bytes, &moved));
}

TlsSession::Outcome TlsSession::write(const void* data, std::size_t bytes, std::size_t& moved) {
  moved = 0;
  ERR_clear_error();
  return outcome_of(SSL_write_ex(ssl_.get(), data, bytes, &moved));
}

std::size_t TlsSession::pending() const {
  return static_cast<std::size_t>(std::max(0, SSL_pending(ssl_.get())));
}

Result<std::unique_ptr<TlsSession>> shake_hands(const TlsContext& context, Socket socket,
                                                const HostPort& peer,
                                                std::chrono::steady_clock::time_point deadline) {
  auto session = std::make_unique<TlsSession>(context, std::move(socket));
  for (;;) {
    const auto outcome = session->handshake();
    if (outcome == TlsSession::Outcome::done) return session;
    if (outcome == TlsSession::Outcome::failed)
      return Error{session->peer_left() ? Errc::transport_failed : Errc::invalid_argument,
                   "who listens there " + session->why(), peer.text(),
                   "give every node the key of the job: --key FILE or TROUPE_KEY"};
    if (!wait_for(session->socket(), outcome == TlsSession::Outcome::wants_write, deadline))
      return Error{Errc::timed_out, "who listens there does not shake hands", peer.text(),
                   "check the address: it is what `troupe train` says it listens on"};
  }
}

}  // namespace troupe::door
