#include "tests/transport/nccl/fake/world.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace fake_nccl {
namespace {

using Clock = std::chrono::steady_clock;

bool is_busy(Comm comm) {
  const std::lock_guard lock(comm->mutex);
  return comm->pending.has_value() || !comm->held.empty();
}

template <class T>
void add_backwards(const std::vector<std::vector<std::byte>>& inputs, std::size_t count, void* to) {
  std::vector<T> sum(count);
  for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, input->data() + i * sizeof(T), sizeof(T));
      sum[i] = input == inputs.rbegin() ? value : static_cast<T>(sum[i] + value);
    }
  }
  std::memcpy(to, sum.data(), count * sizeof(T));
}

void push(Comm comm, Stream* stream, std::function<void()> work) {
  ++comm->running;
  stream->push([comm, work = std::move(work)] {
    work();
    --comm->running;
  });
}

void stall(Comm comm, Code late) {
  if (late != Code::success) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    comm->error = static_cast<int>(late);
  }
  while (!comm->is_stopping) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

/// By what this work goes.
std::vector<Link> links_of(Comm comm, const std::vector<Launched>& all) {
  std::set<Link> links;
  for (const auto& one : all) {
    if (!one.work) links.insert(Link{0, one.part.peer});
    for (int rank = 0; one.work && rank < comm->ranks; ++rank) links.insert(Link{1, rank});
  }
  std::erase_if(links, [=](const Link& link) { return link.peer == comm->rank; });
  return {links.begin(), links.end()};
}

/// Puts what was launched on one communicator and stream there; returns whether that takes a while:
/// ranks that have had nothing to do with each other connect first, and both must have called.
bool start(Comm comm, Stream* stream, std::vector<Launched> all) {
  int taken_ms = 0;
  std::optional<Fault> broken;
  for (const auto& one : all) {
    if (one.fault && one.fault->kind == "taken") taken_ms = one.fault->value;
    if (one.fault && (one.fault->kind == "stall" || one.fault->kind == "late")) broken = one.fault;
  }
  const auto links = links_of(comm, all);
  if (call(comm, links)) {
    const std::lock_guard lock(world().mutex);
    ++world().calls["connect"];
  }
  auto begin_work = [comm, stream, broken, all = std::move(all)] {
    push(comm, stream, [comm, broken, all] {
      if (broken) {
        return stall(comm,
                     broken->kind == "late" ? static_cast<Code>(broken->value) : Code::success);
      }
      std::vector<Part> parts;
      for (const auto& one : all) {
        if (!one.work) {
          parts.push_back(one.part);
        } else if (!one.work()) {
          return;
        }
      }
      transfer(comm, std::move(parts));
    });
  };
  const auto are_peers_there = [comm, links] { return have_called(comm, links); };
  if (taken_ms == 0 && are_peers_there()) {
    begin_work();
    return false;
  }
  const std::lock_guard lock(comm->mutex);
  if (comm->is_stopping) {  // Nobody asks for what is held any more.
    begin_work();
    return false;
  }
  comm->held.push_back(
      {Clock::now() + std::chrono::milliseconds(taken_ms), are_peers_there, begin_work});
  return true;
}

}  // namespace

World::World() {
  if (const char* text = std::getenv("FAKE_NCCL_SCRIPT")) script.set(text);
}

World& world() {
  static auto* const all = new World;  // Streams may outlive `main`.
  return *all;
}

Group& group() {
  // No thread_local: the thread sanitizer sees races where the C library frees that of a library
  // that was opened late.
  static std::mutex mutex;
  static auto* const groups = new std::map<std::thread::id, Group>;
  const std::lock_guard lock(mutex);
  return (*groups)[std::this_thread::get_id()];
}

std::optional<Code> begin(const std::string& function, Comm comm, std::optional<Fault>& fault,
                          bool is_launch) {
  {
    const std::lock_guard lock(world().mutex);
    ++world().calls[function];
  }
  if (comm != nullptr && !world().is_live(comm)) {
    world().misused(function + " of a communicator that has ended");
    return Code::invalid_argument;
  }
  std::vector<std::string> ways{function};
  if (is_launch) ways.push_back("launch");
  fault = world().script.at(ways, comm != nullptr ? comm->rank : -1);
  if (!fault) return std::nullopt;
  if (fault->kind == "die") _exit(9);
  if (fault->kind == "error") return static_cast<Code>(fault->value);
  if (fault->kind == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(fault->value));
  if (fault->kind == "calm") {
    ++comm->calm_calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(fault->value));
    --comm->calm_calls;
  }
  while (fault->kind == "forever" || (fault->kind == "hang" && comm == nullptr)) pause();
  if (fault->kind == "hang") {
    while (!comm->is_aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Code::internal_error;
  }
  return std::nullopt;
}

void expect_idle(const std::string& function, Comm comm) {
  if (is_busy(comm)) world().misused(function + " while a call before it goes on");
}

Comm open_comm(const std::string& name, int rank, int ranks, const std::optional<Fault>& fault) {
  const bool is_absent = fault && fault->kind == "absent";
  const auto comm = make_comm(name, rank, ranks, is_absent);
  if (comm == nullptr) return nullptr;
  comm->is_never_ready = is_absent || (fault && fault->kind == "never");
  const std::lock_guard lock(world().mutex);
  world().live.insert(comm);
  return comm;
}

void end_comm(Comm comm) {
  comm->is_stopping = true;
  comm->is_aborted = true;
  leave(comm);
  // Its work sees that it stops, and lets go of the memory, which stays with the process.
  while (comm->running > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  const std::lock_guard lock(world().mutex);
  world().live.erase(comm);
}

std::size_t bytes_of(nccl::DataType type) {
  if (type == nccl::DataType::int8) return 1;
  if (type == nccl::DataType::bfloat16) return 2;
  return type == nccl::DataType::float32 ? 4 : 8;
}

bool reduce_to(Comm comm, const void* from, void* to, std::size_t count, nccl::DataType type,
               int root) {
  const auto bytes = count * bytes_of(type);
  auto* own = static_cast<std::byte*>(const_cast<void*>(from));
  if (comm->rank != root) return transfer(comm, {{true, root, own, bytes, 0}});
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(comm->ranks));
  std::vector<Part> parts;
  for (int rank = 0; rank < comm->ranks; ++rank) {
    auto& input = inputs[static_cast<std::size_t>(rank)];
    input.resize(bytes);
    if (rank == root) {
      std::memcpy(input.data(), own, bytes);
    } else {
      parts.push_back({false, rank, input.data(), bytes, 0});
    }
  }
  if (!transfer(comm, std::move(parts))) return false;
  if (type == nccl::DataType::float32) add_backwards<float>(inputs, count, to);
  if (type == nccl::DataType::float64) add_backwards<double>(inputs, count, to);
  if (type == nccl::DataType::int64) add_backwards<std::uint64_t>(inputs, count, to);
  return true;
}

bool copy_from(Comm comm, void* data, std::size_t bytes, int root) {
  auto* own = static_cast<std::byte*>(data);
  if (comm->rank != root) return transfer(comm, {{false, root, own, bytes, 0}});
  std::vector<Part> parts;
  for (int rank = 0; rank < comm->ranks; ++rank) {
    if (rank != root) parts.push_back({true, rank, own, bytes, 0});
  }
  return transfer(comm, std::move(parts));
}

Code end_group() {
  if (--group().depth > 0) return Code::success;
  auto code = Code::success;
  std::vector<Launched> all;
  all.swap(group().launched);
  while (!all.empty()) {
    const auto first = all.front();
    std::vector<Launched> same;
    std::erase_if(all, [&](const Launched& one) {
      const bool is_same = one.comm == first.comm && one.stream == first.stream;
      if (is_same) same.push_back(one);
      return is_same;
    });
    if (start(first.comm, first.stream, std::move(same))) code = Code::in_progress;
  }
  return code;
}

Code launch(const std::string& function, Comm comm, nccl::Stream stream, std::function<bool()> work,
            Part part) {
  std::optional<Fault> fault;
  const auto code = begin(function, comm, fault, true);
  if (code) {
    group().has_failed = group().depth > 0;
    return *code;
  }
  expect_idle(function, comm);
  if (!comm->is_ready) world().misused(function + " before the communicator is ready");
  if (comm->is_stopping) return Code::invalid_usage;
  ++group().depth;
  group().launched.push_back({comm, static_cast<Stream*>(stream), std::move(work), part, fault});
  return end_group();
}

Code derive(Comm parent, std::function<Comm()> make, Comm* made) {
  const std::lock_guard lock(parent->mutex);
  parent->pending = Pending{std::move(make), made};
  return Code::in_progress;
}

Code state_of(Comm comm) {
  if (comm->error != 0) return static_cast<Code>(comm->error.load());
  const std::lock_guard lock(comm->mutex);
  while (!comm->held.empty() && Clock::now() >= comm->held.front().until &&
         comm->held.front().are_peers_there()) {
    comm->held.front().begin();
    comm->held.erase(comm->held.begin());
  }
  if (!comm->held.empty()) return Code::in_progress;
  if (comm->pending) {
    auto& [make, made] = *comm->pending;
    const auto child = make();
    if (child == nullptr) return Code::in_progress;
    // The handle appears when the parent's state says that it is done.
    if (child != comm) __atomic_store_n(made, child, __ATOMIC_RELEASE);
    comm->pending.reset();
    return Code::success;
  }
  if (comm->is_revoked) return comm->running > 0 ? Code::in_progress : Code::success;
  if (comm->is_never_ready || !have_all_joined(comm)) return Code::in_progress;
  comm->is_ready = true;
  return Code::success;
}

}  // namespace fake_nccl
