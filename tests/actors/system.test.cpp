#include "actors/link/system.hpp"

#include <atomic>
#include <caf/all.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/link/tls_scribe.hpp"
#include "tests/actors/fake_actors.hpp"

namespace troupe::actors {
namespace {

using Catch::Matchers::ContainsSubstring;
using Clock = std::chrono::steady_clock;

constexpr double kWaitSeconds = 20;
const std::string kJob(3'000'000, 'x');  // Larger than a record of TLS and a socket's buffer.

/// A head that is only a door: a supervisor of no job behind it.
class Head {
 public:
  explicit Head(const door::JobKey& key) {
    std::signal(SIGPIPE, SIG_IGN);
    auto listening = door::listen_at({"127.0.0.1", 0});
    REQUIRE(listening.ok());
    seen_.welcome.resolved_job = kJob;
    supervisor_ = system_.spawn(fake_supervisor, &seen_);
    address_ = {"127.0.0.1", publish(system_, supervisor_, std::move(listening).value(), key,
                                     [](const std::string&) {})};
  }
  ~Head() { caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown); }

  const HostPort& address() const { return address_; }

 private:
  SystemConfig config_;
  caf::actor_system system_{config_};
  SupervisorSeen seen_;
  SupervisorActor supervisor_;
  HostPort address_;
};

/// A node's process as far as it looks for a job.
struct Seeker {
  SystemConfig config;
  caf::actor_system system{config};

  Result<SupervisorActor> find(const HostPort& address, const KeySource& key,
                               double timeout_s = kWaitSeconds, double attempt_s = kWaitSeconds) {
    return find_supervisor(system, address, key, timeout_s, attempt_s);
  }
};

KeySource always(const door::JobKey& key) {
  return [key]() -> Result<door::JobKey> { return key; };
}

TEST_CASE("who has the key finds the supervisor, and is heard", "[actors]") {
  const auto key = door::JobKey::random();
  Head head(key);
  Seeker node;
  const auto found = node.find(head.address(), always(key));
  REQUIRE(found.ok());
  caf::scoped_actor self(node.system);
  std::string answer;
  self->request(found.value(), std::chrono::seconds(20), join_atom::value, NodeHello{})
      .receive([&](const NodeWelcome& welcome) { answer = welcome.resolved_job; },
               [](const caf::error&) {});
  CHECK(answer == kJob);
}

TEST_CASE("a node with another key hears so at once", "[actors][errors]") {
  Head head(door::JobKey::random());
  Seeker node;
  const auto begin = Clock::now();
  const auto found = node.find(head.address(), always(door::JobKey::random()), 600);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == Errc::invalid_argument);
  CHECK_THAT(found.error().message, ContainsSubstring("has another key"));
  CHECK_THAT(found.error().fix, ContainsSubstring("--key"));
  CHECK(Clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("a key that changes while a node looks is tried again", "[actors]") {
  const auto key = door::JobKey::random();
  Head head(key);
  Seeker node;
  int asked = 0;
  // First there is none, then a killed job's, then this job's.
  const auto found = node.find(head.address(), [&]() -> Result<door::JobKey> {
    ++asked;
    if (asked == 1) return Error{Errc::not_found, "not yet", "", ""};
    return asked == 2 ? door::JobKey::random() : key;
  });
  CHECK(found.ok());
}

TEST_CASE("a node that nobody lets in says what the last attempt met", "[actors][errors]") {
  Seeker node;
  auto listening = door::listen_at({"127.0.0.1", 0});
  REQUIRE(listening.ok());
  const HostPort silent{"127.0.0.1", door::port_of(listening.value())};
  const auto found = node.find(silent, always(door::JobKey::random()), 0.5);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == Errc::timed_out);
  CHECK_THAT(found.error().message,
             ContainsSubstring("within 0.5 s") && ContainsSubstring("does not shake hands"));
}

TEST_CASE("a head that leaves after the handshake is looked for again", "[actors][errors]") {
  const auto key = door::JobKey::random();
  auto listening = door::listen_at({"127.0.0.1", 0});
  REQUIRE(listening.ok());
  std::atomic<int> visits = 0;
  door::Door door(
      std::move(listening).value(), key,
      [&](const std::unique_ptr<door::TlsSession>&) { ++visits; }, [](const std::string&) {});
  door.start();
  Seeker node;
  const auto found = node.find({"127.0.0.1", door.port()}, always(key), 1);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == Errc::timed_out);
  CHECK_THAT(found.error().message, ContainsSubstring("who listens there left"));
  CHECK(visits > 1);
}

TEST_CASE("a head that says nothing once it let a node in is asked again", "[actors][errors]") {
  const auto key = door::JobKey::random();
  auto listening = door::listen_at({"127.0.0.1", 0});
  REQUIRE(listening.ok());
  std::mutex mutex;
  std::vector<std::unique_ptr<door::TlsSession>> let_in;  // Connected, and never spoken with.
  door::Door door(
      std::move(listening).value(), key,
      [&](std::unique_ptr<door::TlsSession> session) {
        const std::lock_guard lock(mutex);
        let_in.push_back(std::move(session));
      },
      [](const std::string&) {});
  door.start();
  Seeker node;
  const auto found = node.find({"127.0.0.1", door.port()}, always(key), 2, 0.25);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == Errc::timed_out);
  const std::lock_guard lock(mutex);
  CHECK(let_in.size() > 1);
}

TEST_CASE("a message that announces more than any of ours ends its connection", "[actors]") {
  const auto key = door::JobKey::random();
  Head head(key);
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  auto socket = door::connect_to(head.address(), deadline);
  REQUIRE(socket.ok());
  const door::TlsContext context(key, door::TlsContext::Side::client);
  auto session = door::shake_hands(context, std::move(socket).value(), head.address(), deadline);
  REQUIRE(session.ok());
  // CAF's header: kind client_handshake, flags, and the length of what follows: 2 GB.
  const unsigned char header[32] = {1, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff};
  std::size_t moved = 0;
  REQUIRE(session.value()->write(header, sizeof header, moved) == door::TlsSession::Outcome::done);
  auto outcome = door::TlsSession::Outcome::wants_read;
  char bytes[4096];
  while (outcome != door::TlsSession::Outcome::failed &&
         door::wait_for(session.value()->socket(), false, deadline))
    outcome = session.value()->read(bytes, sizeof bytes, moved);
  CHECK(outcome == door::TlsSession::Outcome::failed);
  // The head is well: another node gets in.
  Seeker node;
  CHECK(node.find(head.address(), always(key)).ok());
}

TEST_CASE("who is told how to join a job is told of its key", "[actors]") {
  CHECK(join_command("127.0.0.1:7000", "") == "troupe node --join 127.0.0.1:7000");
  CHECK(join_command("127.0.0.1:7000", "job.key") ==
        "troupe node --join 127.0.0.1:7000 --key job.key");
  CHECK(join_command("10.0.0.4:7000", "") == "troupe node --join 10.0.0.4:7000 --key FILE");
}

}  // namespace
}  // namespace troupe::actors
