#include "runtime/door/door.hpp"

#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <condition_variable>
#include <csignal>
#include <mutex>

namespace troupe::door {
namespace {

using Catch::Matchers::ContainsSubstring;
using Clock = std::chrono::steady_clock;
using Session = std::unique_ptr<TlsSession>;

constexpr auto kWait = std::chrono::seconds(20);

/// A door with what came through it and what it told.
class OpenDoor {
 public:
  explicit OpenDoor(const JobKey& key, DoorOptions options = {}) {
    std::signal(SIGPIPE, SIG_IGN);
    auto listening = listen_at({"127.0.0.1", 0});
    REQUIRE(listening.ok());
    door_.emplace(
        std::move(listening).value(), key,
        [this](Session session) { record([&] { let_in_.push_back(std::move(session)); }); },
        [this](const std::string& line) { record([&] { lines_.push_back(line); }); }, options);
    door_->start();
  }

  HostPort address() const { return {"127.0.0.1", door_->port()}; }

  /// The next connection that was let in; null if none is within the time.
  Session next(std::chrono::milliseconds time = kWait) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return !let_in_.empty(); });
    if (let_in_.empty()) return nullptr;
    auto session = std::move(let_in_.front());
    let_in_.erase(let_in_.begin());
    return session;
  }

  std::string first_line() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kWait, [&] { return !lines_.empty(); });
    return lines_.empty() ? "" : lines_.front();
  }

 private:
  template <class Change>
  void record(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Session> let_in_;
  std::vector<std::string> lines_;
  std::optional<Door> door_;
};

Socket connected(const HostPort& address) {
  auto socket = connect_to(address, Clock::now() + kWait);
  REQUIRE(socket.ok());
  return std::move(socket).value();
}

Result<Session> knock(const HostPort& address, const JobKey& key,
                      std::chrono::milliseconds time = kWait) {
  const TlsContext context(key, TlsContext::Side::client);
  return shake_hands(context, connected(address), address, Clock::now() + time);
}

void say(const Socket& socket, const std::string& text) {
  REQUIRE(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == std::ssize(text));
}

/// Whether the other side closes the connection within the time.
bool is_closed(const Socket& socket, std::chrono::milliseconds time = kWait) {
  const auto deadline = Clock::now() + time;
  char byte = 0;
  while (wait_for(socket, /*write=*/false, deadline))
    if (recv(socket.get(), &byte, 1, 0) <= 0) return true;
  return false;
}

void move_all(TlsSession& from, TlsSession& to, const std::string& text) {
  std::size_t sent = 0, moved = 0;
  std::string received(text.size(), ' ');
  for (std::size_t got = 0; got < text.size(); got += moved) {
    if (sent < text.size() &&
        from.write(text.data() + sent, text.size() - sent, moved) == TlsSession::Outcome::done)
      sent += moved;
    moved = 0;
    if (to.pending() == 0 && !wait_for(to.socket(), false, Clock::now() + kWait)) FAIL("no bytes");
    to.read(received.data() + got, text.size() - got, moved);
  }
  CHECK(received == text);
}

TEST_CASE("who has the key is let in, and both can speak", "[door]") {
  const auto key = JobKey::random();
  OpenDoor door(key);
  auto client = knock(door.address(), key);
  REQUIRE(client.ok());
  auto server = door.next();
  REQUIRE(server);
  move_all(*client.value(), *server, "to the head");
  move_all(*server, *client.value(), std::string(1'000'000, 'x'));
}

TEST_CASE("who has another key is refused, and both know why", "[door][errors]") {
  OpenDoor door(JobKey::random());
  const auto client = knock(door.address(), JobKey::random());
  REQUIRE_FALSE(client.ok());
  CHECK(client.error().code == Errc::invalid_argument);
  CHECK_THAT(client.error().message, ContainsSubstring("has another key"));
  CHECK_THAT(door.first_line(), ContainsSubstring("has another key"));
  CHECK_FALSE(door.next(std::chrono::milliseconds(100)));
}

TEST_CASE("TLS without the key is not let in", "[door][errors]") {
  OpenDoor door(JobKey::random());
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(context.get()), &SSL_free);
  const Socket socket = connected(door.address());
  SSL_set_fd(client.get(), socket.get());
  const auto deadline = Clock::now() + kWait;
  int result = -1;
  do {
    result = SSL_connect(client.get());
  } while (result != 1 && SSL_get_error(client.get(), result) == SSL_ERROR_WANT_READ &&
           wait_for(socket, false, deadline));
  CHECK(result != 1);
  CHECK_THAT(door.first_line(), ContainsSubstring("has no key"));
  CHECK_FALSE(door.next(std::chrono::milliseconds(100)));
}

TEST_CASE("a server without the key is not believed", "[door][errors]") {
  // It has the key's name and another key, which is what a false head could have.
  OpenDoor impostor(JobKey::random());
  CHECK_FALSE(knock(impostor.address(), JobKey::random()).ok());
}

TEST_CASE("other protocols are refused at once", "[door][errors]") {
  OpenDoor door(JobKey::random());
  const Socket socket = connected(door.address());
  say(socket, "GET / HTTP/1.0\r\n\r\n");
  CHECK(is_closed(socket));
  CHECK_THAT(door.first_line(), ContainsSubstring("speaks another protocol"));
}

TEST_CASE("who says nothing leaves after a while", "[door][errors]") {
  DoorOptions options;
  options.handshake_time = std::chrono::milliseconds(100);
  OpenDoor door(JobKey::random(), options);
  const Socket socket = connected(door.address());
  CHECK(is_closed(socket));
  CHECK_THAT(door.first_line(), ContainsSubstring("in time"));
}

TEST_CASE("strangers who wait take nobody's place", "[door]") {
  const auto key = JobKey::random();
  DoorOptions options;
  options.unproven_max = 8;
  options.handshake_time = std::chrono::minutes(10);
  OpenDoor door(key, options);
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connected(door.address()));
  REQUIRE(knock(door.address(), key).ok());
  CHECK(door.next());
  // The first 93 made room, in their order; the last ones still wait.
  CHECK(is_closed(strangers[0]));
  CHECK(is_closed(strangers[92]));
  CHECK_FALSE(is_closed(strangers[99], std::chrono::milliseconds(100)));
}

TEST_CASE("a connection that was let in outlives the door", "[door]") {
  const auto key = JobKey::random();
  std::optional<OpenDoor> door(std::in_place, key);
  auto client = knock(door->address(), key);
  REQUIRE(client.ok());
  auto server = door->next();
  REQUIRE(server);
  const HostPort address = door->address();
  door.reset();
  move_all(*client.value(), *server, "still here");
  CHECK_FALSE(connect_to(address, Clock::now() + kWait).ok());
}

}  // namespace
}  // namespace troupe::door
