// What NCCL's functions of the fake have in common: the process's communicators, what was launched,
// and how a call begins and ends.

#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/transport/nccl/fake/comm.hpp"
#include "tests/transport/nccl/fake/script.hpp"
#include "tests/transport/nccl/fake/stream.hpp"

namespace fake_nccl {

namespace nccl = troupe::transport::nccl;

/// All of this process.
struct World {
  Script script;
  std::mutex mutex;
  std::set<Comm> live;
  std::map<std::string, int> calls;
  int misuses = 0;
  std::string first_misuse;

  World();  ///< With the script of the environment.
  void misused(const std::string& how) {
    const std::lock_guard lock(mutex);
    if (misuses++ == 0) first_misuse = how;
  }
  bool is_live(Comm comm) {
    const std::lock_guard lock(mutex);
    return live.contains(comm);
  }
};

World& world();

/// What was launched since `group_start`.
struct Launched {
  Comm comm;
  Stream* stream;
  std::function<bool()> work;  ///< A collective; empty for a part.
  Part part;
  std::optional<Fault> fault;
};
/// Of this thread.
struct Group {
  int depth = 0;
  bool has_failed = false;  ///< One of its calls: the end clears it.
  std::vector<Launched> launched;
};
Group& group();

/// Begins a call: what is wrong with it, or what the script lets go wrong at once. `fault` is what
/// goes wrong later.
std::optional<Code> begin(const std::string& function, Comm comm, std::optional<Fault>& fault,
                          bool is_launch = false);
/// A call that must not come while one before it goes on.
void expect_idle(const std::string& function, Comm comm);

Comm open_comm(const std::string& name, int rank, int ranks, const std::optional<Fault>& fault);
void end_comm(Comm comm);
/// Derives a communicator: `make` gives it when all ranks have come, null before; `parent` itself
/// stands for none.
Code derive(Comm parent, std::function<Comm()> make, Comm* made);
Code state_of(Comm comm);

std::size_t bytes_of(nccl::DataType type);
/// Sums from the last rank to the first; false when the communicator stops first. So does
/// `copy_from`.
bool reduce_to(Comm comm, const void* from, void* to, std::size_t count, nccl::DataType type,
               int root);
bool copy_from(Comm comm, void* data, std::size_t bytes, int root);

/// Launches `work`, or a part where that is empty.
Code launch(const std::string& function, Comm comm, nccl::Stream stream, std::function<bool()> work,
            Part part);
Code end_group();

}  // namespace fake_nccl
