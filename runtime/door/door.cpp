#include "runtime/door/door.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace troupe::door {

namespace {

/// How long accepting waits where the process has no descriptor left.
constexpr int kRestMs = 100;

/// `10.0.0.7:41234` of an accepted connection.
std::string name_of(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = {};
  std::uint16_t port = 0;
  if (peer.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    port = ntohs(address.sin_port);
  } else if (peer.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(peer);
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
    port = ntohs(address.sin6_port);
  }
  return std::string(text) + ":" + std::to_string(port);
}

}  // namespace

Door::Door(Socket listening, const JobKey& key, Admit admit, Tell tell, DoorOptions options)
    : listening_(std::move(listening)),
      context_(key, TlsContext::Side::server),
      admit_(std::move(admit)),
      tell_(std::move(tell)),
      options_(options),
      wake_(eventfd(0, EFD_CLOEXEC)) {}

Door::~Door() {
  if (!thread_.joinable()) return;
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Door::start() {
  thread_ = std::thread([this] { run(); });
}

void Door::run() {
  std::vector<pollfd> watched;
  for (;;) {
    watched = {{wake_.get(), POLLIN, 0},
               {listening_.get(), static_cast<short>(rests_ ? 0 : POLLIN), 0}};
    for (const Visitor& visitor : visitors_)
      watched.push_back({visitor.session->socket().get(),
                         static_cast<short>(visitor.wants_write ? POLLOUT : POLLIN), 0});
    poll(watched.data(), watched.size(), wait_ms(Clock::now()));
    if (watched[0].revents != 0) return;
    std::size_t place = 2;
    std::erase_if(visitors_,
                  [&](Visitor& visitor) { return watched[place++].revents != 0 && ask(visitor); });
    refuse_slow(Clock::now());
    rests_ = false;
    if (watched[1].revents != 0) accept_all();
  }
}

int Door::wait_ms(Clock::time_point now) const {
  if (visitors_.empty()) return rests_ ? kRestMs : -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(visitors_.front().leaves_at - now).count();
  const auto bounded = std::max<std::int64_t>(0, left);
  return static_cast<int>(rests_ ? std::min<std::int64_t>(kRestMs, bounded) : bounded);
}

void Door::accept_all() {
  // No more than there are places, so that those who wait are asked in between.
  for (std::size_t i = 0; i < options_.unproven_max; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    Socket accepted(accept4(listening_.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.get() < 0) {
      rests_ = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      return;
    }
    const int yes = 1;
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    make_room();
    visitors_.push_back({std::make_unique<TlsSession>(context_, std::move(accepted)), name_of(peer),
                         Clock::now() + options_.handshake_time});
  }
}

void Door::make_room() {
  if (visitors_.size() < options_.unproven_max) return;
  refuse(visitors_.front(), "had not shown the key when others wanted in");
  visitors_.erase(visitors_.begin());
}

bool Door::ask(Visitor& visitor) {
  switch (visitor.session->handshake()) {
    case TlsSession::Outcome::done: admit_(std::move(visitor.session)); return true;
    case TlsSession::Outcome::failed: refuse(visitor, visitor.session->why()); return true;
    case TlsSession::Outcome::wants_write: visitor.wants_write = true; return false;
    case TlsSession::Outcome::wants_read: visitor.wants_write = false; return false;
  }
  return true;
}

void Door::refuse(const Visitor& visitor, const std::string& why) {
  if (const auto line = log_.refused(visitor.name, why, Clock::now())) tell_(*line);
}

void Door::refuse_slow(Clock::time_point now) {
  std::erase_if(visitors_, [&](const Visitor& visitor) {
    if (now < visitor.leaves_at) return false;
    refuse(visitor, "had not shown the key in time");
    return true;
  });
}

}  // namespace troupe::door
