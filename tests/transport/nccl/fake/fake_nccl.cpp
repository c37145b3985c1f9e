// NCCL's functions for tests without a GPU: communicators between threads and processes of this
// machine that work on host memory, wait as little as NCCL does, and go wrong where the script says
// so. As in NCCL the first work between two ranks begins when both have launched some, and that
// they send and receive connects them for no collective.
//
// Harsher than NCCL in one thing: nobody hears that a peer has failed or gone, so that every rank
// has to find out by itself. Sums run from the last rank to the first: an order of its own, as NCCL
// has.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "tests/transport/nccl/fake/control.hpp"
#include "tests/transport/nccl/fake/world.hpp"

using namespace fake_nccl;

extern "C" {

void fake_nccl_script(const char* text) { world().script.set(text); }
int fake_nccl_live() {
  const std::lock_guard lock(world().mutex);
  return static_cast<int>(world().live.size());
}
int fake_nccl_misuses() {
  const std::lock_guard lock(world().mutex);
  return world().misuses;
}
const char* fake_nccl_first_misuse() { return world().first_misuse.c_str(); }
int fake_nccl_calls(const char* function) {
  const std::lock_guard lock(world().mutex);
  return world().calls[function];
}
void* fake_nccl_stream() { return new Stream; }
void fake_nccl_stream_end(void* stream) { delete static_cast<Stream*>(stream); }
std::uint64_t fake_nccl_stream_mark(void* stream) { return static_cast<Stream*>(stream)->mark(); }
int fake_nccl_stream_reached(void* stream, std::uint64_t mark) {
  return static_cast<Stream*>(stream)->reached(mark) ? 1 : 0;
}
void fake_nccl_stream_push(void* stream, void (*work)(void*), void* argument) {
  static_cast<Stream*>(stream)->push([=] { work(argument); });
}

Code ncclGetVersion(int* version) {
#ifdef FAKE_NCCL_OLD
  *version = 21805;
#else
  *version = 22809;
#endif
  if (const char* text = std::getenv("FAKE_NCCL_VERSION")) *version = std::atoi(text);
  return Code::success;
}

const char* ncclGetErrorString(Code code) {
  static const char* const kWords[] = {"no error",       "unhandled cuda error", "system error",
                                       "internal error", "invalid argument",     "invalid usage",
                                       "remote error",   "in progress"};
  const auto number = static_cast<unsigned>(code);
  return number < std::size(kWords) ? kWords[number] : "unknown";
}

Code ncclGetUniqueId(nccl::UniqueId* id) {
  std::optional<Fault> fault;
  if (const auto code = begin("id", nullptr, fault)) return *code;
  std::random_device random;
  const auto name = "fake_nccl-" + std::to_string(random()) + std::to_string(random());
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, name.c_str(), name.size());
  return Code::success;
}

Code ncclCommInitRankConfig(Comm* made, int ranks, nccl::UniqueId id, int rank,
                            nccl::Config* config) {
  if (config == nullptr || config->blocking != 0) world().misused("init that waits");
  {
    const std::lock_guard lock(world().mutex);
    ++world().calls["init"];
  }
  // NCCL hands the handle out before it begins: a call that hangs can be aborted.
  auto fault = world().script.at({"init"}, rank);
  if (fault && fault->kind == "die") _exit(9);
  if (fault && fault->kind == "error") return static_cast<Code>(fault->value);
  while (fault && fault->kind == "forever") pause();
  const auto comm = open_comm(id.internal, rank, ranks, fault);
  if (comm == nullptr) return Code::system_error;
  __atomic_store_n(made, comm, __ATOMIC_RELEASE);
  if (fault && fault->kind == "slow") {
    std::this_thread::sleep_for(std::chrono::milliseconds(fault->value));
  }
  while (fault && fault->kind == "hang" && !comm->is_aborted) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Code::in_progress;
}

Code ncclCommSplit(Comm parent, int color, int key, Comm* made, nccl::Config*) {
  std::optional<Fault> fault;
  if (const auto code = begin("split", parent, fault)) return *code;
  expect_idle("split", parent);
  const auto number = parent->splits++;
  if (number >= kSplitsMax) return Code::internal_error;
  const bool is_absent = fault && fault->kind == "absent";
  auto& words = parent->segment->splits[number];
  if (!is_absent) {
    words[parent->rank] = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(color)) << 32) |
                          static_cast<std::uint64_t>(key + 1);
  }
  return derive(
      parent,
      [=, words = &words]() -> Comm {
        if (fault && (fault->kind == "never" || fault->kind == "absent")) return nullptr;
        std::vector<std::pair<int, int>> members;  // Key, rank.
        for (int rank = 0; rank < parent->ranks; ++rank) {
          const auto word = (*words)[rank].load();
          if (word == 0) return nullptr;
          if (static_cast<int>(word >> 32) == color) {
            members.emplace_back(static_cast<int>(word & 0xFFFFFFFF), rank);
          }
        }
        if (color == nccl::kNoColor) return parent;  // None.
        std::ranges::sort(members);
        int own = 0;
        while (members[static_cast<std::size_t>(own)].second != parent->rank) ++own;
        const auto name =
            parent->name + "-s" + std::to_string(number) + "c" + std::to_string(color);
        return open_comm(name, own, static_cast<int>(members.size()), std::nullopt);
      },
      made);
}

#ifndef FAKE_NCCL_OLD
Code ncclCommShrink(Comm parent, int* excluded, int count, Comm* made, nccl::Config*, int flags) {
  std::optional<Fault> fault;
  if (const auto code = begin("shrink", parent, fault)) return *code;
  if (excluded == nullptr || count <= 0) return Code::invalid_argument;
  expect_idle("shrink", parent);
  if ((flags & nccl::kShrinkAbort) != 0) parent->is_stopping = true;
  const std::set<int> gone(excluded, excluded + count);
  int own = 0;
  auto name = parent->name + "-k" + std::to_string(parent->shrinks++);
  for (int rank = 0; rank < parent->ranks; ++rank) {
    if (gone.contains(rank)) name += "-" + std::to_string(rank);
    if (!gone.contains(rank) && rank < parent->rank) ++own;
  }
  const auto child = open_comm(name, own, parent->ranks - count, fault);
  if (child == nullptr) return Code::system_error;
  {
    // Not the user's until the parent says so.
    const std::lock_guard lock(world().mutex);
    world().live.erase(child);
  }
  return derive(
      parent,
      [=]() -> Comm {
        if (child->is_never_ready || !have_all_joined(child)) return nullptr;
        const std::lock_guard lock(world().mutex);
        world().live.insert(child);
        return child;
      },
      made);
}

Code ncclCommRevoke(Comm comm, int) {
  std::optional<Fault> fault;
  if (const auto code = begin("revoke", comm, fault)) return *code;
  comm->is_stopping = true;
  comm->is_revoked = true;
  {
    const std::lock_guard lock(comm->mutex);
    comm->held.clear();
    comm->error = 0;
  }
  return Code::in_progress;
}
#endif

Code ncclCommGetAsyncError(Comm comm, Code* state) {
  std::optional<Fault> fault;
  if (const auto code = begin("state", comm, fault)) return *code;
  *state = state_of(comm);
  return Code::success;
}

Code ncclCommAbort(Comm comm) {
  std::optional<Fault> fault;
  if (const auto code = begin("abort", comm, fault)) return *code;
  if (comm->calm_calls > 0) world().misused("abort amid a call that comes back");
  end_comm(comm);
  return Code::success;
}

Code ncclGroupStart() {
  ++group().depth;
  return Code::success;
}

Code ncclGroupEnd() {
  if (group().has_failed) {
    group() = {};
    return Code::internal_error;
  }
  std::optional<Fault> fault;
  const auto comm = group().launched.empty() ? nullptr : group().launched.front().comm;
  const auto code = begin("group_end", comm, fault);
  if (fault && !group().launched.empty() && !group().launched.front().fault)
    group().launched.front().fault = fault;
  if (code) {
    group().launched.clear();
    --group().depth;
    return *code;
  }
  return end_group();
}

Code ncclAllReduce(const void* from, void* to, std::size_t count, nccl::DataType type,
                   nccl::ReduceOp, Comm comm, nccl::Stream stream) {
  return launch("all_reduce", comm, stream,
                [=] {
                  return reduce_to(comm, from, to, count, type, 0) &&
                         copy_from(comm, to, count * bytes_of(type), 0);
                },
                {});
}

Code ncclReduce(const void* from, void* to, std::size_t count, nccl::DataType type, nccl::ReduceOp,
                int root, Comm comm, nccl::Stream stream) {
  return launch("reduce", comm, stream,
                [=] { return reduce_to(comm, from, to, count, type, root); }, {});
}

Code ncclBroadcast(const void*, void* to, std::size_t count, nccl::DataType type, int root,
                   Comm comm, nccl::Stream stream) {
  return launch("broadcast", comm, stream,
                [=] { return copy_from(comm, to, count * bytes_of(type), root); }, {});
}

Code ncclSend(const void* from, std::size_t count, nccl::DataType type, int to_rank, Comm comm,
              nccl::Stream stream) {
  auto* data = static_cast<std::byte*>(const_cast<void*>(from));
  return launch("send", comm, stream, nullptr, {true, to_rank, data, count * bytes_of(type), 0});
}

Code ncclRecv(void* to, std::size_t count, nccl::DataType type, int from_rank, Comm comm,
              nccl::Stream stream) {
  return launch("recv", comm, stream, nullptr,
                {false, from_rank, static_cast<std::byte*>(to), count * bytes_of(type), 0});
}
}
