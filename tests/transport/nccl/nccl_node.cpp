// The helper program: a rank of NCCL groups in a process of its own, which does what its standard
// input says, a line in and a line out.
//
// usage: nccl_node SELF
//
//   hello | address | connect PEER ADDRESS | disconnect PEER | script TEXT... | lose
//   open GENERATION LIMIT_MS ATTEMPT_MS MAY_SHRINK RANK MEMBER...
//     the group of a generation, out of the one before
//   sum SEED COUNT LIMIT_MS | rows SEED COUNT LIMIT_MS
//   state: live communicators, how often NCCL was misused and the first way
//
// Answers: `ok ...` or `failed CODE MESSAGE`; nodes that were lost end whatever is under way.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <mutex>
#include <sstream>

#include "tests/transport/nccl/fake_device.hpp"
#include "tests/transport/node_protocol.hpp"
#include "transport/nccl/nccl_group.hpp"

namespace troupe::transport::testing {
namespace {

std::string to_answer(const Status& status) {
  if (status.ok()) return "ok";
  return "failed " + std::string(to_string(status.error().code)) + " " + status.error().message;
}

class Node {
 public:
  explicit Node(Peer self) {
    TransportOptions options;
    options.self = self;
    options.ucx.tls = "self,tcp";
    options.ucx.net_devices = "lo";
    transport_ = std::move(create_transport("ucx", options)).value();
    transport_->on_peer_failure([this](Peer peer, const Error& why) {
      const std::lock_guard lock(mutex_);
      if (group_) group_->lose(peer, why);
    });
    context_ = std::make_shared<NcclContext>(nccl_.library(), short_limits());
    stream_ = nccl_.stream("gpu " + std::to_string(self));
  }

  std::string answer(std::istringstream& line) {
    std::string call;
    line >> call;
    if (call == "hello") return "hello";
    if (call == "address") return to_hex(transport_->address());
    if (call == "connect") return connect(line);
    if (call == "open") return open(line);
    if (call == "sum") return sum(line);
    if (call == "rows") return rows(line);
    if (call == "state") {
      return "ok " + std::to_string(nccl_.live()) + " " + std::to_string(nccl_.misuses()) + " " +
             nccl_.first_misuse();
    }
    if (call == "script") {
      std::string text;
      std::getline(line, text);
      return nccl_.script(text), "ok";
    }
    int number = 0;
    line >> number;
    if (call == "disconnect") {
      transport_->disconnect(number, {Errc::cancelled, "the test disconnects", "", ""});
      return "ok";
    }
    return "failed internal unknown call " + call;
  }

 private:
  std::string connect(std::istringstream& line) {
    Peer peer = -1;
    std::string address;
    line >> peer >> address;
    return to_answer(transport_->connect(peer, from_hex(address)));
  }

  std::string open(std::istringstream& line) {
    NcclGroupOptions options;
    int limit_ms = 0, attempt_ms = 0;
    line >> options.generation >> limit_ms >> attempt_ms >> options.may_shrink >> options.rank;
    for (Peer member = 0; line >> member;) options.members.push_back(member);
    options.name = "sums";
    options.group_id = 7;
    options.attempt = std::chrono::milliseconds(attempt_ms);
    const auto deadline = within(std::chrono::milliseconds(limit_ms));
    std::unique_ptr<NcclGroup> old;
    {
      const std::lock_guard lock(mutex_);
      old = std::move(group_);
    }
    auto made = old ? NcclGroup::rebuild(std::move(old), options.members, options.rank,
                                         options.generation, deadline)
                    : NcclGroup::create(*transport_, context_, stream_, options, deadline);
    if (!made) return to_answer(made.error());
    const std::lock_guard lock(mutex_);
    group_ = std::move(made).value();
    return "ok";
  }

  std::string sum(std::istringstream& line) {
    CollectiveCall call;
    call.kind = "all_reduce";
    call.scalar = Scalar::fp32;
    line >> call.seed >> call.count >> call.deadline_ms;
    if (!group_) return "failed not_found there is no group";
    call.rank = group_->rank();
    const auto outcome = run_collective(*group_, call);
    if (outcome.ok) return "ok " + std::to_string(outcome.digest);
    return "failed " + std::string(to_string(outcome.code)) + " " + outcome.message;
  }

  /// Rows to the next rank and from the one before.
  std::string rows(std::istringstream& line) {
    std::uint64_t seed = 0;
    std::size_t bytes = 0;
    int limit_ms = 0;
    line >> seed >> bytes >> limit_ms;
    if (!group_) return "failed not_found there is no group";
    const auto own = group_->rank(), ranks = group_->size();
    const auto sent = std::make_shared<std::vector<std::byte>>(
        pattern(seed + static_cast<std::uint64_t>(own), bytes));
    const auto received = std::make_shared<std::vector<std::byte>>(bytes);
    const NcclRowsTo to[] = {{(own + 1) % ranks, {sent->data(), bytes, sent}}};
    const NcclRowsFrom from[] = {{(own + ranks - 1) % ranks, {received->data(), bytes, received}}};
    const auto limit = within(std::chrono::milliseconds(limit_ms));
    const auto status =
        group_->exchange_rows(to, from, limit).wait(limit + std::chrono::seconds(5));
    if (!status) return to_answer(status);
    return "ok " + std::to_string(digest_of(received->data(), bytes));
  }

  FakeNccl nccl_;
  std::mutex mutex_;  ///< Of `group_`, which the transport's thread reads.
  std::unique_ptr<NcclGroup> group_;
  std::shared_ptr<NcclContext> context_;
  std::shared_ptr<NcclStream> stream_;
  std::unique_ptr<Transport> transport_;  // Declared last: its thread calls the group.
};

int run(Peer self) {
  // Answers go where standard output went; what libraries print there goes to standard error.
  const int answers = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  Node node(self);
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    auto answer = node.answer(line);
    std::erase(answer, '\n');
    answer += '\n';
    if (write(answers, answer.data(), answer.size()) != static_cast<ssize_t>(answer.size())) break;
  }
  _exit(0);  // Calls that the script lets hang have threads that nobody can join.
}

}  // namespace
}  // namespace troupe::transport::testing

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // No helper outlives a test program that crashed.
  if (count != 2) return 2;
  return troupe::transport::testing::run(std::atoi(arguments[1]));
}
