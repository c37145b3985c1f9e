// The helper program: a node that does what its standard input says, see node_protocol.hpp.
//
// usage: transport_node BACKEND SELF RECEIVES_MAX UNEXPECTED_MAX TLS NET_DEVICES CONNECT_TIMEOUT_MS

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "tests/transport/node_protocol.hpp"

namespace troupe::transport::testing {
namespace {

std::string answer(TestNode& node, std::istringstream& line) {
  std::string call;
  line >> call;
  Peer peer = -1;
  Tag tag;
  std::size_t bytes = 0;
  std::uint64_t seed = 0;
  int operation = 0, milliseconds = 0;
  if (call == "hello") return "hello";
  if (call == "address") return to_hex(node.address());
  if (call == "connect") {
    std::string address;
    line >> peer >> address;
    return to_text(node.connect(peer, from_hex(address)));
  }
  if (call == "send") {
    line >> peer >> tag >> bytes >> seed;
    return std::to_string(node.send(peer, tag, bytes, seed));
  }
  if (call == "receive") {
    line >> peer >> tag >> bytes;
    return std::to_string(node.receive(peer, tag, bytes));
  }
  if (call == "collective") {
    CollectiveCall collective;
    line >> collective;
    return std::to_string(node.collective(collective));
  }
  if (call == "wait") {
    line >> operation >> milliseconds;
    return to_text(node.wait(operation, milliseconds));
  }
  if (call == "failures") {
    std::string peers;
    for (const auto lost : node.failures()) peers += std::to_string(lost) + " ";
    return peers;
  }
  if (call == "cancel" && line >> operation) return node.cancel(operation), "ok";
  if (call == "disconnect" && line >> peer) return node.disconnect(peer), "ok";
  if (call == "drop" && line >> seed) {
    node.drop_older_than(static_cast<EpochNumber>(seed));
    return "ok";
  }
  return "fault unknown call " + call;
}

/// Answers go where standard output went; what libraries print there goes to standard error.
class Answers {
 public:
  Answers() : pipe_(dup(STDOUT_FILENO)) { dup2(STDERR_FILENO, STDOUT_FILENO); }
  bool write(std::string text) const {
    text += '\n';
    return ::write(pipe_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }

 private:
  int pipe_;
};

int run(char** arguments) {
  const Answers answers;
  TransportOptions options;
  options.self = std::atoi(arguments[2]);
  options.receives_max = Bytes{std::atoll(arguments[3])};
  options.unexpected_max = Bytes{std::atoll(arguments[4])};
  options.ucx.tls = arguments[5];
  options.ucx.net_devices = arguments[6];
  options.ucx.connect_timeout = std::chrono::milliseconds(std::atoll(arguments[7]));
  auto transport = create_transport(arguments[1], options);
  std::string text;
  if (!transport) {
    std::getline(std::cin, text);
    answers.write("fault " + transport.error().message);
    return 1;
  }
  const auto node = make_local_node(std::move(transport).value());
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    if (!answers.write(answer(*node, line))) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace troupe::transport::testing

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // No helper outlives a test program that crashed.
  if (count != 8) return 2;
  return troupe::transport::testing::run(arguments);
}
