// The parent's side of a node in a process of its own: one line per call, one line back.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "tests/transport/node_protocol.hpp"
#include "tests/transport/test_node.hpp"

namespace troupe::transport::testing {
namespace {

class ProcessNode final : public TestNode {
 public:
  explicit ProcessNode(std::vector<std::string> command) {
    int to_child[2], from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe2 failed");
    }
    std::vector<char*> arguments;
    for (auto& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    to_ = fdopen(to_child[1], "w");
    from_ = fdopen(from_child[0], "r");
    if (ask("hello") != "hello") throw std::runtime_error("the helper program does not answer");
  }

  ~ProcessNode() override {
    vanish();
    fclose(to_);
    fclose(from_);
  }

  std::vector<std::byte> address() override { return from_hex(ask("address")); }

  Outcome connect(Peer peer, const std::vector<std::byte>& address) override {
    return to_outcome(ask("connect " + std::to_string(peer) + " " + to_hex(address)));
  }
  int send(Peer peer, Tag tag, std::size_t bytes, std::uint64_t seed) override {
    std::ostringstream line;
    line << "send " << peer << ' ' << tag << ' ' << bytes << ' ' << seed;
    return std::stoi(ask(line.str()));
  }
  int receive(Peer peer, Tag tag, std::size_t bytes) override {
    std::ostringstream line;
    line << "receive " << peer << ' ' << tag << ' ' << bytes;
    return std::stoi(ask(line.str()));
  }
  int collective(const CollectiveCall& call) override {
    std::ostringstream line;
    line << "collective " << call;
    return std::stoi(ask(line.str()));
  }
  void cancel(int operation) override { ask("cancel " + std::to_string(operation)); }
  Outcome wait(int operation, int milliseconds) override {
    return to_outcome(
        ask("wait " + std::to_string(operation) + " " + std::to_string(milliseconds)));
  }
  void disconnect(Peer peer) override { ask("disconnect " + std::to_string(peer)); }
  void drop_older_than(EpochNumber epoch) override { ask("drop " + std::to_string(epoch)); }
  std::vector<Peer> failures() override {
    std::istringstream line(ask("failures"));
    std::vector<Peer> peers;
    for (Peer peer = 0; line >> peer;) peers.push_back(peer);
    return peers;
  }

  void vanish() override {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  void become_zombie() override { kill(process_, SIGKILL); }
  void freeze() override {
    kill(process_, SIGSTOP);
    waitpid(process_, nullptr, WUNTRACED);
  }

 private:
  std::string ask(const std::string& line) {
    std::fprintf(to_, "%s\n", line.c_str());
    std::fflush(to_);
    std::string answer;
    for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
      if (c == EOF) throw std::runtime_error("the helper program died at: " + line);
      answer += static_cast<char>(c);
    }
    if (answer.starts_with("fault ")) throw std::runtime_error(answer);
    return answer;
  }

  pid_t process_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace

std::unique_ptr<TestNode> make_process_node(const std::string& backend,
                                            const TransportOptions& options,
                                            const std::string& network_namespace) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::string> command{(folder / "transport_node").string(),
                                   backend,
                                   std::to_string(options.self),
                                   std::to_string(options.receives_max.count()),
                                   std::to_string(options.unexpected_max.count()),
                                   options.ucx.tls,
                                   options.ucx.net_devices,
                                   std::to_string(options.ucx.connect_timeout.count())};
  if (!network_namespace.empty()) {
    // Process ids of its own as well: on another host nobody can watch the process either.
    command.insert(command.begin(), {"ip", "netns", "exec", network_namespace, "unshare", "--pid",
                                     "--fork", "--kill-child"});
  }
  return std::make_unique<ProcessNode>(std::move(command));
}

}  // namespace troupe::transport::testing
